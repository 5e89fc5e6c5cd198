//! Preparation: from what a model wrote to a call that may run, or to the words that tell it why not.
//!
//! Resolve, authorise, parse, validate, bind; in this order, and without any I/O, so that all calls of a turn can be
//! prepared before the turn is journalled. Budgets, loops, order and taint are the session machine's.

pub(crate) mod arguments;
mod digest;
pub(crate) mod json;
mod resolve;
pub(crate) mod schema;
pub(crate) mod template;

use std::sync::Arc;

use ambit_core::session::{CallClass, Principal};
use ambit_core::{Digest, Effect, Gate, ToolCode};
use serde_json::Value;

use self::arguments::BadArguments;
use self::json::Json;
use crate::options::Binding;
use crate::registry::{Entry, Transport};
use crate::result::{self, Words};

pub(crate) use self::digest::digest;

/// One tool as a model is told about it.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// The name to call it by: unique, `[A-Za-z0-9_-]`, at most 64 characters.
    pub name: Arc<str>,
    /// What it is for.
    pub description: Arc<str>,
    /// JSON Schema of its arguments, without those that Ambit fills in.
    pub schema: Arc<Value>,
    /// Digest of that schema.
    pub digest: Digest,
    /// What the registry says about it.
    pub class: CallClass,
}

/// The tools of one session. Cheap to clone; a tool that disappears later stays known to it.
#[derive(Debug, Clone)]
pub struct Offer {
    tools: Arc<[Arc<Entry>]>,
    /// Named by the agent, and closed to this principal.
    closed: Arc<[Arc<Entry>]>,
    principal: Principal,
}

/// A call made ready, or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The tool as resolved, or the name as given where there is none (its first 128 characters).
    pub tool: Arc<str>,
    /// What will be sent: normalised, bound arguments filled in. As given where they cannot be read.
    pub arguments: String,
    /// Digest of the arguments' canonical form: equal for arguments that mean the same.
    pub canonical: Digest,
    /// Whether it may go.
    pub gate: Gate,
    /// What the model reads where it may not.
    pub refusal: Option<String>,
    /// What the registry says about the tool; of an unknown one, the strictest.
    pub class: CallClass,
}

/// Most characters of an unknown tool's name that are kept.
const NAME_CHARS_MAX: usize = 128;

impl Offer {
    pub(crate) fn new(entries: impl IntoIterator<Item = Arc<Entry>>, principal: Principal) -> Self {
        let (tools, closed): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| is_permitted(entry, &principal));
        Self { tools: tools.into(), closed: closed.into(), principal }
    }

    /// What the model is told, in the order in which the agent names its tools.
    pub fn declarations(&self) -> impl Iterator<Item = Declaration> + '_ {
        self.tools.iter().map(|entry| entry.declaration.clone())
    }

    /// The same offer with only those tools for whose name `keep` says yes.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(&str) -> bool) -> Self {
        self.tools = self.tools.iter().filter(|entry| keep(&entry.declaration.name)).cloned().collect();
        self
    }

    /// True if nothing may be called.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Makes one call ready. Does no I/O, and never fails: what is wrong becomes a refusal that says how to do better.
    #[must_use]
    pub fn prepare(&self, name: &str, arguments: &str) -> Prepared {
        let entry = match resolve::find(name, &self.tools) {
            Some(entry) => entry,
            None => {
                return match resolve::find(name, &self.closed) {
                    Some(entry) => refused(
                        entry,
                        arguments,
                        ToolCode::NotPermitted,
                        result::refusal_text(ToolCode::NotPermitted, &entry.declaration.name),
                    ),
                    None => self.unknown(name, arguments),
                };
            }
        };
        match self.arguments(entry, arguments) {
            Ok(members) => {
                let json = Json::Object(members);
                Prepared {
                    tool: Arc::clone(&entry.declaration.name),
                    canonical: digest(json.to_canonical().as_bytes()),
                    arguments: json.to_text(),
                    gate: Gate::Go,
                    refusal: None,
                    class: entry.declaration.class,
                }
            }
            Err(bad) => refused(entry, arguments, ToolCode::InvalidArguments, result::bad_arguments(&entry.declaration.name, &bad)),
        }
    }

    fn arguments(&self, entry: &Entry, text: &str) -> Result<Vec<(String, Json)>, BadArguments> {
        let mut members = arguments::read(text)?;
        for (name, binding) in &entry.bind {
            if members.iter().any(|(key, _)| key == &**name) {
                return Err(BadArguments::at(pointer(name), "is filled in by the system: leave it out"));
            }
            let value = match binding {
                Binding::PrincipalId => &self.principal.id,
                Binding::PrincipalTenant => &self.principal.tenant,
            };
            members.push((name.to_string(), Json::String(value.to_string())));
        }
        let json = Json::Object(members);
        let mistakes = entry.schema.mistakes(&json);
        if !mistakes.is_empty() {
            return Err(BadArguments::Mistakes(mistakes));
        }
        let Json::Object(members) = json else { return Ok(Vec::new()) };
        match &entry.transport {
            Transport::Http(tool) => {
                tool.url(&members).map_err(|misfit| BadArguments::at(pointer(&misfit.name), misfit.reason))?;
            }
            // Its client knows 64-bit integers and doubles: better refused than sent with other digits.
            Transport::Mcp(_) => {
                if let Some((name, _)) = members.iter().find(|(_, value)| !value.fits_64_bits()) {
                    return Err(BadArguments::at(
                        pointer(name),
                        "has an integer past 64 bits, which this tool cannot be sent: give it as a string",
                    ));
                }
            }
            Transport::Builtin(_) => {}
        }
        Ok(members)
    }

    fn unknown(&self, name: &str, arguments: &str) -> Prepared {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let nearest = resolve::nearest(&name, &self.tools);
        let words = Words::of(ToolCode::UnknownTool, format!("no tool `{name}` is offered"));
        let words =
            if nearest.is_empty() { words } else { words.with("nearest", Json::Array(nearest.into_iter().map(Json::from).collect())) };
        Prepared {
            tool: name.into(),
            arguments: arguments.to_owned(),
            canonical: digest(arguments.as_bytes()),
            gate: Gate::Refuse(ToolCode::UnknownTool),
            refusal: Some(words.text()),
            class: CallClass {
                effect: Effect::Irreversible,
                keyed: false,
                compensable: false,
                compensable_blind: false,
                compensation_keyed: false,
                reconcilable: false,
                // What it answers is Ambit's own words.
                trusted: true,
                egress: true,
                repeats: ambit_core::limit::REPEATS_DEFAULT,
                attempts: 1,
            },
        }
    }
}

fn refused(entry: &Entry, arguments: &str, code: ToolCode, text: String) -> Prepared {
    Prepared {
        tool: Arc::clone(&entry.declaration.name),
        arguments: arguments.to_owned(),
        canonical: digest(arguments.as_bytes()),
        gate: Gate::Refuse(code),
        refusal: Some(text),
        class: entry.declaration.class,
    }
}

fn is_permitted(entry: &Entry, principal: &Principal) -> bool {
    let options = &entry.options;
    (options.roles.is_empty() || options.roles.iter().any(|role| principal.roles.contains(role)))
        && (options.tenants.is_empty() || options.tenants.contains(&principal.tenant))
}

/// JSON pointer to a member of the arguments; empty for the whole.
fn pointer(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("/{}", name.replace('~', "~0").replace('/', "~1")) }
}

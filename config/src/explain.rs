//! What is in force and why: `config explain KEY` and `config show`. Secrets print as `***`.

use std::fmt;

use serde::Serialize;
use serde_json::Value as Json;

use crate::check::alike;
use crate::config::Config;
use crate::error::Problem;
use crate::node::Node;
use crate::revision::MASK;
use crate::shape::{Inside, Kind, SETTINGS, Shape, listed};

/// One key: its value, where that comes from, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The key.
    pub key: String,
    /// Every value that something says, the one in force first; empty if nothing says any.
    pub candidates: Vec<Candidate>,
    /// What holds if nothing says a value.
    pub otherwise: Option<String>,
    /// What it is.
    pub title: String,
    /// What it means; may be empty.
    pub meaning: String,
    /// What is allowed.
    pub allowed: String,
    /// In which unit it is counted.
    pub unit: Option<String>,
    /// What raising it costs at worst.
    pub cost: Option<String>,
}

/// A value and who says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// As TOML.
    pub value: String,
    /// File and line, variable, argument or built-in default.
    pub source: String,
}

impl Config {
    /// Explains one key, like `limits.deadline` or `models.primary.attempts`.
    ///
    /// # Errors
    /// A problem that names similar keys if there is no such key, and the keys of a table if it is one.
    pub fn explain(&self, key: &str) -> Result<Explanation, Box<Problem>> {
        let path: Vec<&str> = key.split('.').collect();
        let Some(shape) = SETTINGS.at(&path) else { return Err(Box::new(self.unknown(&path))) };
        if let Kind::Table(_) | Kind::Map { .. } = &shape.kind {
            let names: Vec<String> = match (&shape.kind, self.effective_at(&path)) {
                (Kind::Table(entries), _) => entries.iter().map(|(name, _)| name.clone()).collect(),
                (_, Some(Json::Object(entries))) => entries.keys().cloned().collect(),
                (_, _) => Vec::new(),
            };
            return Err(Box::new(
                Problem::new(None, key, "is a table").hint(format!("explain one of {}", listed(names.iter().map(String::as_str)))),
            ));
        }
        let of = |node: &Node| Candidate {
            value: if matches!(shape.kind, Kind::Secret) { MASK.into() } else { node.to_string() },
            source: node.place.to_string(),
        };
        let candidates: Vec<Candidate> = self.layers.candidates(&path).into_iter().map(of).collect();
        Ok(Explanation {
            key: key.to_owned(),
            otherwise: if candidates.is_empty() { Some(shape.default_in_words.clone().unwrap_or_else(|| "nothing".into())) } else { None },
            candidates,
            title: shape.title.clone(),
            meaning: shape.meaning.clone(),
            allowed: shape.allowed(),
            unit: shape.unit.clone(),
            cost: shape.cost.clone(),
        })
    }

    /// All settings in force as TOML, each with its source in a comment. Secrets are masked, so that it may be passed on.
    #[must_use]
    pub fn show(&self) -> String {
        let mut out = format!("# profile `{}`, revision {}\n", self.profile(), self.revision());
        self.write_table(&SETTINGS, &self.effective, &mut Vec::new(), &mut out);
        out
    }

    /// The same as JSON, without sources.
    #[must_use]
    pub const fn show_json(&self) -> &Json {
        &self.effective
    }

    fn effective_at(&self, path: &[&str]) -> Option<&Json> {
        path.iter().try_fold(&self.effective, |value, key| value.get(key))
    }

    fn unknown(&self, path: &[&str]) -> Problem {
        let problem = Problem::new(None, path.join("."), "unknown key");
        if let Some(what) = crate::unbuilt::setting(path, None) {
            return Problem { reason: format!("not built yet: {what}"), ..problem };
        }
        // The longest beginning that is known says where to look.
        let known = (0..path.len()).rev().find_map(|end| Some((end, SETTINGS.at(path.get(..end)?)?)));
        let Some((end, shape)) = known else { return problem };
        match shape.inside() {
            Inside::Table(entries) => {
                let names = entries.iter().map(|(name, _)| name.as_str());
                match path.get(end).and_then(|key| alike(key, names.clone())) {
                    Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
                    None => problem.hint(format!("known here: {}", listed(names))),
                }
            }
            Inside::Map(_) | Inside::Value => problem.hint("it is a value, and has no keys"),
        }
    }

    /// Writes the values of a table, then its tables.
    fn write_table(&self, shape: &Shape, value: &Json, path: &mut Vec<String>, out: &mut String) {
        let Json::Object(entries) = value else { return };
        let of = |key: &str| match shape.inside() {
            Inside::Table(known) => known.iter().find(|(name, _)| name == key).map(|(_, of)| of),
            Inside::Map(of) => Some(of),
            Inside::Value => None,
        };
        let is_table = |key: &str| of(key).is_some_and(|of| !matches!(of.inside(), Inside::Value));
        let mut keys: Vec<&String> = entries.keys().collect();
        keys.sort();
        if keys.iter().any(|key| !is_table(key)) {
            let header: Vec<String> =
                std::iter::once(self.profile().to_owned()).chain(path.iter().cloned()).map(|key| bare_or_quoted(&key)).collect();
            out.push_str(&format!("\n[{}]\n", header.join(".")));
        }
        for key in keys.iter().filter(|key| !is_table(key)) {
            let full = path.iter().chain([*key]).map(String::as_str).collect::<Vec<_>>().join(".");
            let source = self.place(&full).map_or_else(String::new, |place| format!("  # {place}"));
            out.push_str(&format!("{} = {}{source}\n", bare_or_quoted(key), toml_of(&entries[key.as_str()])));
        }
        for key in keys.iter().filter(|key| is_table(key)) {
            if let Some(of) = of(key) {
                path.push((*key).clone());
                self.write_table(of, &entries[key.as_str()], path, out);
                path.pop();
            }
        }
    }
}

/// A key as TOML wants it.
fn bare_or_quoted(key: &str) -> String {
    if crate::check::is_name(key) { key.to_owned() } else { toml_of(&Json::from(key)) }
}

/// A value as TOML on one line. JSON's escapes are TOML's, but for the one of `/`, which is never written.
fn toml_of(value: &Json) -> String {
    match value {
        Json::Null => "\"\"".into(),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => value.to_string(),
        Json::Array(items) => format!("[{}]", items.iter().map(toml_of).collect::<Vec<_>>().join(", ")),
        Json::Object(entries) => {
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{} = {}", bare_or_quoted(key), toml_of(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.candidates.split_first() {
            Some((first, rest)) => {
                writeln!(f, "{} = {}", self.key, first.value)?;
                writeln!(f, "  from: {}", first.source)?;
                for candidate in rest {
                    writeln!(f, "  overridden: {} ({})", candidate.value, candidate.source)?;
                }
            }
            None => writeln!(f, "{} is not set\n  then: {}", self.key, self.otherwise.as_deref().unwrap_or("nothing"))?,
        }
        writeln!(f, "  what: {}", self.title)?;
        for (name, text) in
            [("meaning", Some(&self.meaning).filter(|text| !text.is_empty())), ("unit", self.unit.as_ref()), ("cost", self.cost.as_ref())]
        {
            if let Some(text) = text {
                writeln!(f, "  {name}: {text}")?;
            }
        }
        write!(f, "  allowed: {}", self.allowed)
    }
}

//! The file of rules as people write it, and every check of it. An error names the line and what would be right.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::rule::{Argument, BUILT_IN, CallTemplate, Pick, Rule, Switch};
use super::template::Template;
use super::{Pace, Script};
use crate::error::ScriptError;

/// Largest file, bytes.
const FILE_MAX: usize = 1 << 20;
/// Most rules; each is tried in order on every call.
const RULES_MAX: usize = 256;
/// Most a pick may find.
const PICK_MAX: usize = 100;
/// Longest wait between two pieces: what a person still takes for speech.
const PACE_MAX: Duration = Duration::from_secs(10);
/// Before the first piece where nothing else is said.
const FIRST_DEFAULT: Duration = Duration::from_millis(200);
/// Before each further piece where nothing else is said.
const PIECE_DEFAULT: Duration = Duration::from_millis(15);
/// Characters of a piece where nothing else is said.
const CHARS_DEFAULT: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    pace: PaceFile,
    #[serde(default)]
    rule: Vec<Spanned<RuleFile>>,
    default: DefaultFile,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PaceFile {
    first: Option<Spanned<String>>,
    piece: Option<Spanned<String>>,
    chars: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultFile {
    reply: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    /// For people.
    #[serde(rename = "name")]
    _name: Option<String>,
    after: Option<String>,
    r#match: Option<Spanned<String>>,
    contains: Option<Spanned<String>>,
    asked: Option<Spanned<String>>,
    tools: Option<Switch>,
    #[serde(default)]
    pick: BTreeMap<String, Spanned<PickFile>>,
    reply: Option<Spanned<String>>,
    #[serde(default)]
    calls: Vec<Spanned<CallFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PickFile {
    from: String,
    find: Spanned<String>,
    most: Option<usize>,
    join: Option<String>,
    otherwise: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallFile {
    tool: String,
    #[serde(default)]
    arguments: toml::Table,
}

/// Reads and checks a file's text.
pub(super) fn parse(source: &str, text: &str) -> Result<Script, ScriptError> {
    let check = Check { source, text };
    if text.len() > FILE_MAX {
        return Err(check.wrong(0, format!("the file has {} bytes", text.len()), format!("at most {FILE_MAX} are read")));
    }
    let file: File = toml::from_str(text).map_err(|error| check.no_toml(&error))?;
    if let Some(excess) = file.rule.get(RULES_MAX) {
        return Err(check.wrong(
            excess.span().start,
            format!("rule {} is one too many", RULES_MAX + 1),
            format!("at most {RULES_MAX} are tried"),
        ));
    }
    let pace = check.pace(&file.pace)?;
    let rules = file.rule.into_iter().map(|rule| check.rule(rule)).collect::<Result<_, _>>()?;
    let default = check.template(&file.default.reply, |slot| BUILT_IN.contains(&slot), BUILT_IN.map(str::to_owned).to_vec())?;
    Ok(Script { pace, rules, default })
}

struct Check<'a> {
    source: &'a str,
    text: &'a str,
}

impl Check<'_> {
    fn wrong(&self, at: usize, reason: String, allowed: String) -> ScriptError {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ScriptError { source_name: self.source.to_owned(), line, reason, allowed }
    }

    fn no_toml(&self, error: &toml::de::Error) -> ScriptError {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().replace('\n', ", ");
        let (reason, allowed) = match message.split_once(", expected ") {
            Some((reason, expected)) => (reason.to_owned(), format!("expected {expected}")),
            None => (message, "expected `[pace]`, any number of `[[rule]]`, and `[default]` with a `reply`".to_owned()),
        };
        self.wrong(at, reason, allowed)
    }

    fn pace(&self, pace: &PaceFile) -> Result<Pace, ScriptError> {
        let wait = |value: &Option<Spanned<String>>, default| match value {
            None => Ok(default),
            Some(value) => wait(value.get_ref()).filter(|wait| *wait <= PACE_MAX).ok_or_else(|| {
                self.wrong(
                    value.span().start,
                    format!("`{}` is no wait", value.get_ref()),
                    "allowed are \"0ms\" to \"10s\", whole numbers of `ms` or `s`".to_owned(),
                )
            }),
        };
        let chars = match &pace.chars {
            None => CHARS_DEFAULT,
            Some(chars) => usize::try_from(*chars.get_ref()).ok().filter(|chars| (1..=10_000).contains(chars)).ok_or_else(|| {
                self.wrong(
                    chars.span().start,
                    format!("`chars = {}`", chars.get_ref()),
                    "allowed are 1 to 10000 characters a piece".to_owned(),
                )
            })?,
        };
        Ok(Pace { first: wait(&pace.first, FIRST_DEFAULT)?, piece: wait(&pace.piece, PIECE_DEFAULT)?, chars })
    }

    fn rule(&self, rule: Spanned<RuleFile>) -> Result<Rule, ScriptError> {
        let at = rule.span().start;
        let file = rule.into_inner();
        if file.reply.is_none() && file.calls.is_empty() {
            return Err(self.wrong(at, "this rule says and calls nothing".to_owned(), "it needs a `reply`, `calls`, or both".to_owned()));
        }
        if let (Some(_), Some(contains)) = (&file.r#match, &file.contains) {
            return Err(self.wrong(
                contains.span().start,
                "this rule has both `match` and `contains`".to_owned(),
                "it may have one of them".to_owned(),
            ));
        }
        if file.tools == Some(Switch::Off)
            && let Some(call) = file.calls.first()
        {
            return Err(self.wrong(
                call.span().start,
                "this rule calls a tool and is for tools switched off".to_owned(),
                "with `tools = \"off\"` only a `reply` is possible".to_owned(),
            ));
        }
        let mut rule = Rule {
            after: file.after,
            matches: self.regex(file.r#match.as_ref())?,
            contains: file.contains.map(|words| words.into_inner().to_lowercase()),
            asked: self.regex(file.asked.as_ref())?,
            tools: file.tools,
            picks: BTreeMap::new(),
            reply: None,
            calls: Vec::new(),
        };
        for (name, pick) in file.pick {
            rule.picks.insert(name, self.pick(pick)?);
        }
        rule.reply = file.reply.as_ref().map(|reply| self.template_of(&rule, reply)).transpose()?;
        for call in file.calls {
            let at = call.span();
            let CallFile { tool, arguments } = call.into_inner();
            let arguments = self.argument(&rule, at.start, toml::Value::Table(arguments))?;
            rule.calls.push(CallTemplate { tool, arguments });
        }
        Ok(rule)
    }

    fn pick(&self, pick: Spanned<PickFile>) -> Result<Pick, ScriptError> {
        let at = pick.span().start;
        let PickFile { from, find, most, join, otherwise } = pick.into_inner();
        let most = most.unwrap_or(1);
        if !(1..=PICK_MAX).contains(&most) {
            return Err(self.wrong(at, format!("`most = {most}`"), format!("allowed are 1 to {PICK_MAX}")));
        }
        let find = self.compile(&find)?;
        Ok(Pick { from, find, most, join: join.unwrap_or_else(|| ", ".to_owned()), otherwise })
    }

    fn regex(&self, text: Option<&Spanned<String>>) -> Result<Option<Regex>, ScriptError> {
        text.map(|text| self.compile(text)).transpose()
    }

    fn compile(&self, text: &Spanned<String>) -> Result<Regex, ScriptError> {
        Regex::new(text.get_ref()).map_err(|error| {
            let reason = error.to_string();
            let last = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            self.wrong(
                text.span().start,
                format!("`{}` is no regular expression: {last}", text.get_ref()),
                "expected the syntax of the Rust crate `regex`, best in single quotes".to_owned(),
            )
        })
    }

    fn template_of(&self, rule: &Rule, text: &Spanned<String>) -> Result<Template, ScriptError> {
        self.template(text, |slot| rule.knows(slot), known(rule))
    }

    fn template(&self, text: &Spanned<String>, knows: impl Fn(&str) -> bool, known: Vec<String>) -> Result<Template, ScriptError> {
        self.template_at(text.span().start, text.get_ref(), knows, known)
    }

    fn template_at(&self, at: usize, text: &str, knows: impl Fn(&str) -> bool, known: Vec<String>) -> Result<Template, ScriptError> {
        let template = Template::parse(text)
            .map_err(|reason| self.wrong(at, reason, "places are written `{name}`, braces of the text are doubled".to_owned()))?;
        if let Some(slot) = template.slots().find(|slot| !knows(slot)) {
            let known: Vec<_> = known.iter().map(|name| format!("`{{{name}}}`")).collect();
            let allowed = format!("known here are {} and groups of `match` and `asked`", known.join(", "));
            return Err(self.wrong(at, format!("nothing fills in `{{{slot}}}`"), allowed));
        }
        Ok(template)
    }

    fn argument(&self, rule: &Rule, at: usize, value: toml::Value) -> Result<Argument, ScriptError> {
        Ok(match value {
            toml::Value::String(text) => Argument::Text(self.template_at(at, &text, |slot| rule.knows(slot), known(rule))?),
            toml::Value::Array(list) => {
                Argument::List(list.into_iter().map(|item| self.argument(rule, at, item)).collect::<Result<_, _>>()?)
            }
            toml::Value::Table(table) => Argument::Table(
                table.into_iter().map(|(name, item)| Ok((name, self.argument(rule, at, item)?))).collect::<Result<_, ScriptError>>()?,
            ),
            toml::Value::Integer(number) => Argument::Plain(number.into()),
            toml::Value::Float(number) => Argument::Plain(number.into()),
            toml::Value::Boolean(yes) => Argument::Plain(yes.into()),
            toml::Value::Datetime(time) => Argument::Plain(Value::String(time.to_string())),
        })
    }
}

fn known(rule: &Rule) -> Vec<String> {
    rule.picks.keys().cloned().chain(BUILT_IN.map(str::to_owned)).collect()
}

fn wait(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

//! One rule: when it fits, and what is said then.

use std::collections::BTreeMap;

use regex::{Captures, Regex};
use serde_json::Value;

use super::template::Template;
use crate::chat::{Conversation, Message, RawCall, Tools};

/// Names that every rule can fill in: the caller's last words, the last message, and all results so far.
pub(super) const BUILT_IN: [&str; 3] = ["asked", "last", "results"];
/// Characters that `results` shows of each.
const RESULT_CHARS_MAX: usize = 300;

/// One rule, checked.
#[derive(Debug)]
pub(super) struct Rule {
    /// The last message is a result of this tool, `*` of any; else it is the caller's.
    pub(super) after: Option<String>,
    /// What the last message looks like.
    pub(super) matches: Option<Regex>,
    /// What the last message contains, in any case; lower case here.
    pub(super) contains: Option<String>,
    /// What the caller's last words look like.
    pub(super) asked: Option<Regex>,
    /// Whether tools must be on or off.
    pub(super) tools: Option<Switch>,
    pub(super) picks: BTreeMap<String, Pick>,
    pub(super) reply: Option<Template>,
    pub(super) calls: Vec<CallTemplate>,
}

/// Whether tools may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Switch {
    On,
    Off,
}

/// Something found in an earlier message.
#[derive(Debug)]
pub(super) struct Pick {
    /// A tool, whose last result is searched, or `user`.
    pub(super) from: String,
    /// Its first group is what is found, or all of it where it has none.
    pub(super) find: Regex,
    /// Finds so many at most, joined.
    pub(super) most: usize,
    pub(super) join: String,
    /// Where nothing is found; without it the rule does not fit.
    pub(super) otherwise: Option<String>,
}

/// A call with places to fill in.
#[derive(Debug)]
pub(super) struct CallTemplate {
    pub(super) tool: String,
    pub(super) arguments: Argument,
}

/// Arguments with places in their strings.
#[derive(Debug)]
pub(super) enum Argument {
    Text(Template),
    List(Vec<Argument>),
    Table(BTreeMap<String, Argument>),
    Plain(Value),
}

/// What a rule looks at.
pub(super) struct Scene<'a> {
    conversation: &'a Conversation,
    tools: &'a Tools,
    tools_on: bool,
    asked: &'a str,
}

/// What a rule says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) calls: Vec<RawCall>,
}

impl Rule {
    /// What it says in this scene; `None` if it does not fit.
    pub(super) fn play(&self, scene: &Scene<'_>) -> Option<Said> {
        let last = scene.conversation.messages().last()?;
        let text = match (last, self.after.as_deref()) {
            (Message::User { text }, None) => text,
            (Message::Tool { tool, text, .. }, Some(after)) if after == "*" || **tool == *after => text,
            (Message::User { .. } | Message::Tool { .. } | Message::Assistant { .. }, _) => return None,
        };
        if self.tools.is_some_and(|switch| (switch == Switch::On) != scene.tools_on) {
            return None;
        }
        if self.calls.iter().any(|call| !scene.tools_on || !scene.tools.offers(&call.tool)) {
            return None;
        }
        if self.contains.as_ref().is_some_and(|words| !text.to_lowercase().contains(words.as_str())) {
            return None;
        }
        let matched = captured(self.matches.as_ref(), text)?;
        let asked = captured(self.asked.as_ref(), scene.asked)?;
        let mut picked = BTreeMap::new();
        for (name, pick) in &self.picks {
            picked.insert(name.as_str(), pick.find(scene)?);
        }
        let value = |slot: &str| {
            let group = |captures: &Option<Captures<'_>>| {
                let captures = captures.as_ref()?;
                let group = match slot.parse() {
                    Ok(number) => captures.get(number),
                    Err(_) => captures.name(slot),
                };
                group.map(|group| group.as_str().to_owned())
            };
            picked.get(slot).cloned().or_else(|| group(&matched)).or_else(|| group(&asked)).or_else(|| scene.value(slot))
        };
        let text = self.reply.as_ref().map(|reply| reply.fill(value)).unwrap_or_default();
        let calls = self.calls.iter().map(|call| RawCall::new("", call.tool.as_str(), call.arguments.fill(&value).to_string()));
        Some(Said { text, calls: calls.collect() })
    }

    /// Names that its texts may fill in.
    pub(super) fn knows(&self, slot: &str) -> bool {
        let has = |regex: &Option<Regex>| {
            regex.as_ref().is_some_and(|regex| match slot.parse::<usize>() {
                Ok(number) => number < regex.captures_len(),
                Err(_) => regex.capture_names().flatten().any(|name| name == slot),
            })
        };
        BUILT_IN.contains(&slot) || self.picks.contains_key(slot) || has(&self.matches) || has(&self.asked)
    }
}

/// `None` if it does not match; nothing captured where there is nothing to match.
fn captured<'t>(regex: Option<&Regex>, text: &'t str) -> Option<Option<Captures<'t>>> {
    match regex {
        Some(regex) => regex.captures(text).map(Some),
        None => Some(None),
    }
}

impl Pick {
    fn find(&self, scene: &Scene<'_>) -> Option<String> {
        let text = if self.from == "user" { scene.asked } else { scene.result_of(&self.from).unwrap_or_default() };
        let found: Vec<&str> = self
            .find
            .captures_iter(text)
            .filter_map(|captures| captures.get(1).or_else(|| captures.get(0)))
            .map(|group| group.as_str())
            .take(self.most)
            .collect();
        if found.is_empty() { self.otherwise.clone() } else { Some(found.join(&self.join)) }
    }
}

impl Argument {
    fn fill(&self, value: &impl Fn(&str) -> Option<String>) -> Value {
        match self {
            Self::Text(template) => template.fill(value).into(),
            Self::List(list) => list.iter().map(|item| item.fill(value)).collect(),
            Self::Table(table) => table.iter().map(|(name, item)| (name.clone(), item.fill(value))).collect(),
            Self::Plain(plain) => plain.clone(),
        }
    }
}

impl<'a> Scene<'a> {
    pub(super) fn new(conversation: &'a Conversation, tools: &'a Tools, tools_on: bool) -> Self {
        let asked = conversation.messages().iter().rev().find_map(|message| match message {
            Message::User { text } => Some(&**text),
            Message::Assistant { .. } | Message::Tool { .. } => None,
        });
        Self { conversation, tools, tools_on: tools_on && !tools.is_empty(), asked: asked.unwrap_or_default() }
    }

    /// What a built-in name stands for.
    pub(super) fn value(&self, slot: &str) -> Option<String> {
        match slot {
            "asked" => Some(self.asked.to_owned()),
            "last" => self.conversation.messages().last().and_then(|message| match message {
                Message::User { text } | Message::Tool { text, .. } => Some(text.to_string()),
                Message::Assistant { text, .. } => text.as_deref().map(str::to_owned),
            }),
            "results" => Some(self.results()),
            _ => None,
        }
    }

    fn result_of(&self, name: &str) -> Option<&'a str> {
        self.conversation.messages().iter().rev().find_map(|message| match message {
            Message::Tool { tool, text, .. } if **tool == *name => Some(&**text),
            Message::Tool { .. } | Message::User { .. } | Message::Assistant { .. } => None,
        })
    }

    fn results(&self) -> String {
        let lines = self.conversation.messages().iter().filter_map(|message| match message {
            Message::Tool { tool, text, .. } => Some(format!("- {tool}: {}", text.chars().take(RESULT_CHARS_MAX).collect::<String>())),
            Message::User { .. } | Message::Assistant { .. } => None,
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

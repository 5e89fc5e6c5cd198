//! The answers of chat completion servers, read leniently: what is missing, null or of an odd type is nothing, and what
//! is unknown is skipped. A whole answer and a piece of a stream have the same shape but for one member's name.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::usage::Usage;

/// A completion, or a piece of one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Completion {
    /// `None` where there is none or it is null.
    #[serde(default)]
    pub(super) choices: Option<Vec<Choice>>,
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
    #[serde(default)]
    pub(super) error: Option<Value>,
    #[serde(default)]
    pub(super) model: Text,
}

/// The one choice that is asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Choice {
    #[serde(default, alias = "message")]
    pub(super) delta: Option<Delta>,
    #[serde(default)]
    pub(super) finish_reason: Text,
}

/// What a message says, or what a piece adds to it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    pub(super) content: Text,
    #[serde(default)]
    pub(super) refusal: Text,
    #[serde(default)]
    pub(super) reasoning_content: Text,
    /// The same thing under another name; read as a sign of life only.
    #[serde(default)]
    pub(super) reasoning: Text,
    #[serde(default)]
    pub(super) reasoning_details: Option<Value>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallDelta>>,
    /// What came before `tool_calls`.
    #[serde(default)]
    pub(super) function_call: Option<FunctionDelta>,
}

/// A call, or what a piece adds to one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CallDelta {
    #[serde(default)]
    pub(super) index: Count,
    #[serde(default)]
    pub(super) id: Text,
    #[serde(default)]
    pub(super) function: Option<FunctionDelta>,
    #[serde(default, rename = "type")]
    pub(super) _kind: IgnoredAny,
    /// Members that nobody here knows: their provider wants them back.
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

/// Name and arguments of a call, or pieces of them.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionDelta {
    #[serde(default)]
    pub(super) name: Text,
    #[serde(default)]
    pub(super) arguments: Json,
}

/// What was used.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireUsage {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    prompt_tokens_details: Option<Cached>,
    /// One provider's own name for the same.
    #[serde(default)]
    prompt_cache_hit_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
struct Cached {
    #[serde(default)]
    cached_tokens: Count,
}

impl WireUsage {
    /// `None` where it says nothing about either side.
    pub(super) fn read(&self) -> Option<Usage> {
        if self.prompt_tokens.0.is_none() && self.completion_tokens.0.is_none() {
            return None;
        }
        let cached = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens.0);
        Some(Usage {
            input: self.prompt_tokens.0.unwrap_or(0),
            cached: cached.or(self.prompt_cache_hit_tokens.0).unwrap_or(0),
            output: self.completion_tokens.0.unwrap_or(0),
        })
    }
}

/// A text: a string, the texts of an array of parts, or nothing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

/// A count: a whole number in any notation, or nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count(pub(super) Option<u64>);

/// Arguments: a string as it is, an object or array in its JSON text, or nothing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Json(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(|text| Self(text.into_owned()))
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut text = String::new();
        while let Some(part) = parts.next_element::<Text>()? {
            text.push_str(&part.0);
        }
        Ok(Cow::Owned(text))
    }

    /// A part: its member `text`.
    fn visit_map<A: MapAccess<'de>>(self, mut part: A) -> Result<Self::Value, A::Error> {
        let mut text = String::new();
        while let Some(key) = part.next_key::<Cow<'de, str>>()? {
            if key == "text" {
                text = part.next_value::<Text>()?.0;
            } else {
                part.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Cow::Owned(text))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let count = match &value {
            Value::Number(number) => number.as_u64().or_else(|| {
                // Some servers write 12.0; a cast saturates and maps what is negative or no number to nothing.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is what is wanted")]
                number.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64)
            }),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        Ok(Self(count))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            Value::Null => String::new(),
            value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => value.to_string(),
        }))
    }
}

/// What a provider wants back with a turn, as it is kept with the turn. Sent only to the target that said it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Carry {
    /// The target.
    pub(super) by: String,
    /// Members of the message.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) message: Map<String, Value>,
    /// Members of each call, by its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<Map<String, Value>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_types_are_read_as_what_they_mean_or_as_nothing() {
        let text = |json: &str| serde_json::from_str::<Text>(json).unwrap().0;
        assert_eq!(text("\"a\\nb\""), "a\nb");
        assert_eq!(text("null"), "");
        assert_eq!(text("[{\"type\":\"text\",\"text\":\"a\"},\"b\",{\"type\":\"image\",\"url\":{}},null]"), "ab");
        for json in ["1", "-1", "1.5", "true"] {
            assert_eq!(text(json), "", "{json}");
        }
        let count = |json: &str| serde_json::from_str::<Count>(json).unwrap().0;
        for (json, expected) in
            [("12", Some(12)), ("12.0", Some(12)), ("\" 12\"", Some(12)), ("null", None), ("-3", None), ("[]", None), ("\"x\"", None)]
        {
            assert_eq!(count(json), expected, "{json}");
        }
        let json = |json: &str| serde_json::from_str::<Json>(json).unwrap().0;
        assert_eq!(json("\"{\\\"a\\\":1}\""), "{\"a\":1}");
        assert_eq!(json("{\"a\": [2], \"b\": 1}"), "{\"a\":[2],\"b\":1}");
        assert_eq!(json("null"), "");
    }

    #[test]
    fn usage_is_read_under_each_name_and_is_none_where_nothing_is_said() {
        let usage = |json: &str| serde_json::from_str::<WireUsage>(json).unwrap().read();
        let cached = Some(Usage { input: 10, cached: 4, output: 5 });
        assert_eq!(usage("{\"prompt_tokens\":10,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4}}"), cached);
        assert_eq!(
            usage("{\"prompt_tokens\":10,\"completion_tokens\":5.0,\"prompt_cache_hit_tokens\":4,\"prompt_tokens_details\":null}"),
            cached
        );
        assert_eq!(usage("{\"completion_tokens\":5}"), Some(Usage { output: 5, ..Usage::default() }));
        assert_eq!(usage("{\"prompt_tokens\":null,\"total_tokens\":3}"), None);
    }
}

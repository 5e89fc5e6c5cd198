//! Values read leniently: what is missing, null or of an odd type is nothing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A text: a string, the texts of an array of parts, or nothing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

/// A count: a whole number in any notation, or nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

/// Arguments: a string as it is, an object or array in its JSON text, or nothing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Json(pub(crate) String);

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
}

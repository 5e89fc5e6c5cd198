//! A body's JSON as a tree, in which no key stands twice: of two values for one key, one would be ignored in silence.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::http::body::pointer;
use crate::http::problem::FieldError;

/// Most doubled keys that are told; one is enough to refuse.
const DOUBLED_TOLD_MAX: usize = 16;

/// Reads a body.
///
/// # Errors
/// What is no JSON, and every key that stands twice.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, Vec<FieldError>> {
    let doubled = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // Depth is bounded by serde_json itself, at 128.
    let read = Node { at: "", doubled: &doubled }.deserialize(&mut deserializer);
    let value = read.and_then(|value| deserializer.end().map(|()| value));
    let value = value.map_err(|wrong| vec![FieldError { detail: format!("the body is no JSON: {wrong}"), pointer: String::new() }])?;
    let doubled = doubled.into_inner();
    if doubled.is_empty() { Ok(value) } else { Err(doubled) }
}

/// A place in the tree.
#[derive(Clone, Copy)]
struct Node<'a> {
    at: &'a str,
    doubled: &'a RefCell<Vec<FieldError>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let at = format!("{}/{}", self.at, items.len());
            match access.next_element_seed(Node { at: &at, doubled: self.doubled })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let at = pointer(self.at, &key);
            let value = access.next_value_seed(Node { at: &at, doubled: self.doubled })?;
            if members.insert(key, value).is_some() {
                let mut doubled = self.doubled.borrow_mut();
                if doubled.len() >= DOUBLED_TOLD_MAX {
                    return Err(A::Error::custom("far too many keys stand twice"));
                }
                doubled.push(FieldError { detail: "stands twice; which one is meant?".into(), pointer: at });
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_right_is_read_as_it_is() {
        for text in [r#"{"a": [1, -2, 1.5, true, null, "x\n"], "b": {"c": 18446744073709551615}}"#, "[]", "1", "\"\"", "null"] {
            assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        assert_eq!(read(br#"{"a": {"k": 1}, "b": {"k": 2}}"#).unwrap(), json!({"a": {"k": 1}, "b": {"k": 2}}));
    }

    #[test]
    fn every_key_that_stands_twice_is_told_with_its_place() {
        let check = |text: &str, expected: &[&str]| {
            let errors = read(text.as_bytes()).unwrap_err();
            assert_eq!(errors.iter().map(|error| error.pointer.as_str()).collect::<Vec<_>>(), expected, "{text}");
        };
        check(r#"{"a": 1, "a": 1}"#, &["/a"]);
        check(r#"{"a": 1, "\u0061": 2}"#, &["/a"]);
        check(r#"{"x": [{}, {"a/b": 1, "a/b": 2}], "x": 3}"#, &["/x/1/a~1b", "/x"]);
        check(r#"{"a": 1"#, &[""]);
        check(r#"{} {}"#, &[""]);
        let many = |n: usize| format!("{{{}}}", vec![r#""a": 1"#; n + 1].join(","));
        check(&many(DOUBLED_TOLD_MAX), &["/a"; DOUBLED_TOLD_MAX]);
        check(&many(DOUBLED_TOLD_MAX + 1), &[""]);
        check(&("[".repeat(200) + &"]".repeat(200)), &[""]);
    }
}

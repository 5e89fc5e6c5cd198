//! JSON as a model wrote it: a tree that keeps every digit and the order of keys.
//!
//! `serde_json::Value` turns an integer past 64 bits into a double, and an account number is not the place to lose a
//! digit. So arguments are read here, numbers stay text until somebody needs their value, and depth is bounded where
//! recursion begins: whatever walks the tree afterwards may recurse.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Deepest nesting of arguments and schemas: deeper ones are refused before anything recurses over them.
pub(crate) const DEPTH_MAX: usize = 64;

/// One JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it was written.
    Number(Box<str>),
    /// A string, unescaped.
    String(String),
    /// Items in order.
    Array(Vec<Json>),
    /// Members in order; no key stands twice.
    Object(Vec<(String, Json)>),
}

/// Why a text is no JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotJson {
    /// What is wrong.
    pub(crate) reason: String,
    /// At which byte.
    pub(crate) at: usize,
}

/// The one text of all JSON values that mean the same, for digests: keys sorted as RFC 8785 sorts them, numbers by value.
#[must_use]
pub fn canonical(value: &Value) -> String {
    Json::from(value).to_canonical()
}

impl Json {
    /// Reads one value and nothing behind it.
    pub(crate) fn parse(text: &str) -> Result<Self, NotJson> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.space();
        if reader.at < text.len() {
            return Err(reader.not("something follows the value"));
        }
        Ok(value)
    }

    /// The value for those who calculate: integers past 64 bits become doubles here, and only here.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Number(text) => serde_json::from_str(text).unwrap_or(Value::Null),
            Self::String(text) => Value::String(text.clone()),
            Self::Array(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Object(members) => Value::Object(members.iter().map(|(k, v)| (k.clone(), v.to_value())).collect::<Map<_, _>>()),
        }
    }

    /// True if [`Json::to_value`] keeps every digit of every integer.
    pub(crate) fn fits_64_bits(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) | Self::String(_) => true,
            Self::Number(text) => {
                !text.bytes().all(|b| b.is_ascii_digit() || b == b'-') || text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok()
            }
            Self::Array(items) => items.iter().all(Self::fits_64_bits),
            Self::Object(members) => members.iter().all(|(_, v)| v.fits_64_bits()),
        }
    }

    /// The value without space, digits and order as written.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Form::AsWritten);
        out
    }

    /// The one text of all values that mean the same: keys sorted as RFC 8785 sorts them, numbers by value (`7.0` is
    /// `7`), every digit of an integer kept.
    pub(crate) fn to_canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Form::Canonical);
        out
    }

    fn write(&self, out: &mut String, form: Form) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(text) => match form {
                Form::AsWritten => out.push_str(text),
                Form::Canonical => out.push_str(&canonical_number(text)),
            },
            Self::String(text) => write_string(out, text),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out, form);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if form == Form::Canonical {
                    members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
                }
                out.push('{');
                for (i, (key, value)) in members.into_iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_string(out, key);
                    out.push(':');
                    value.write(out, form);
                }
                out.push('}');
            }
        }
    }
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    AsWritten,
    Canonical,
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => Self::Number(n.to_string().into()),
            Value::String(text) => Self::String(text.clone()),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::Object(members) => Self::Object(members.iter().map(|(k, v)| (k.clone(), Self::from(v))).collect()),
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number.to_string().into())
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Self {
        Self::Number(number.to_string().into())
    }
}

/// Writes a string with as few escapes as JSON allows.
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                // Writing into a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The one text of a number: all digits of an integer, the shortest decimal of anything else.
fn canonical_number(text: &str) -> String {
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        return if text == "-0" { "0".to_owned() } else { text.to_owned() };
    }
    // The reader has checked that it is finite.
    let value: f64 = text.parse().unwrap_or_default();
    // Below 1e21 a whole double is printed in full, as RFC 8785 does.
    if value.fract() == 0.0 && value.abs() < 1e21 {
        let whole = format!("{value:.0}");
        return if whole == "-0" { "0".to_owned() } else { whole };
    }
    format!("{value:e}")
}

/// Reads JSON by RFC 8259, no more and no less.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn not(&self, reason: impl Into<String>) -> NotJson {
        NotJson { reason: reason.into(), at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, NotJson> {
        if depth > DEPTH_MAX {
            return Err(self.not(format!("nested deeper than {DEPTH_MAX}")));
        }
        self.space();
        match self.peek() {
            None => Err(self.not("the text ends where a value should be")),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(),
        }
    }

    fn word(&mut self) -> Result<Json, NotJson> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (word, value) in [("true", Json::Bool(true)), ("false", Json::Bool(false)), ("null", Json::Null)] {
            if rest.starts_with(word) && !rest[word.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.not("no JSON value begins like this"))
    }

    fn number(&mut self) -> Result<Json, NotJson> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        match serde_json::from_str::<serde_json::Number>(text) {
            Ok(_) => Ok(Json::Number(text.into())),
            Err(_) => {
                self.at = start;
                Err(self.not("not a number that JSON can express"))
            }
        }
    }

    fn string(&mut self) -> Result<String, NotJson> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(self.not("the text ends within a string")),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let token = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_str(token).map_err(|_| {
            self.at = start;
            self.not("a string with a control character or a broken escape")
        })
    }

    fn array(&mut self, depth: usize) -> Result<Json, NotJson> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Json::Array(items));
                }
                Some(_) => return Err(self.not("expected `,` or `]`")),
                None => return Err(self.not("the text ends within an array")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, NotJson> {
        self.at += 1;
        let mut members = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            match self.peek() {
                Some(b'"') => {}
                Some(_) => return Err(self.not("expected a key in double quotes")),
                None => return Err(self.not("the text ends within an object")),
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.not("expected `:`"));
            }
            self.at += 1;
            members.push((key, self.value(depth + 1)?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                Some(_) => return Err(self.not("expected `,` or `}`")),
                None => return Err(self.not("the text ends within an object")),
            }
        }
        // Two readers may take two different ones of a pair: nobody can say what was validated.
        let mut keys: Vec<&str> = members.iter().map(|(k, _)| k.as_str()).collect();
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.not(format!("the key `{}` stands twice", pair[0].chars().take(64).collect::<String>())));
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_digit_and_the_order_of_keys_survive() {
        for text in ["{\"b\":12345678901234567890123,\"a\":-0.10}", "[1e3,\"\\u00e9\",true,false,null,{}]", "\"\\\"\\\\\\n\""] {
            let json = Json::parse(text).unwrap();
            assert_eq!(Json::parse(&json.to_text()).unwrap(), json, "{text}");
        }
        assert_eq!(Json::parse(" { \"b\" : 12345678901234567890123 } ").unwrap().to_text(), "{\"b\":12345678901234567890123}");
    }

    #[test]
    fn values_that_mean_the_same_have_one_canonical_text() {
        let canonical = |text: &str| Json::parse(text).unwrap().to_canonical();
        for (one, other) in [
            ("{\"a\":1,\"b\":2}", "{ \"b\":2, \"a\":1.0 }"),
            ("7", "7.0"),
            ("1e3", "1000"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("\"\\u0041\"", "\"A\""),
            ("0.1", "1e-1"),
        ] {
            assert_eq!(canonical(one), canonical(other), "{one} {other}");
        }
        assert_ne!(canonical("12345678901234567890123"), canonical("12345678901234567890124"));
        // UTF-16 order, not that of code points: RFC 8785 section 3.2.3.
        assert_eq!(canonical("{\"\u{fb33}\":1,\"\u{1f600}\":2}"), "{\"\u{1f600}\":2,\"\u{fb33}\":1}");
    }

    #[test]
    fn what_is_no_json_is_told_where_and_why() {
        for (text, at, reason) in [
            ("", 0, "ends"),
            ("{", 1, "ends"),
            ("{a:1}", 1, "double quotes"),
            ("{\"a\" 1}", 5, "`:`"),
            ("[1 2]", 3, "`,` or `]`"),
            ("{} x", 3, "follows"),
            ("01", 0, "number"),
            ("1e999", 0, "number"),
            ("\"\n\"", 0, "control"),
            ("\"abc", 4, "within a string"),
            ("\"\\", 3, "within a string"),
            ("tru", 0, "begins"),
            ("truefalse", 0, "begins"),
            ("{\"a\":1,\"a\":2}", 13, "`a` stands twice"),
        ] {
            let error = Json::parse(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
            assert_eq!(error.at, at, "{text}: {error:?}");
        }
    }

    #[test]
    fn nesting_is_bounded_at_the_limit_and_one_past_it() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(Json::parse(&nested(DEPTH_MAX + 1)).is_ok());
        assert!(Json::parse(&nested(DEPTH_MAX + 2)).unwrap_err().reason.contains("deeper"));
        assert!(Json::parse(&"[".repeat(1 << 20)).is_err());
    }

    #[test]
    fn integers_past_64_bits_are_found() {
        let fits = |text: &str| Json::parse(text).unwrap().fits_64_bits();
        assert!(fits("[18446744073709551615, -9223372036854775808, 1e30, \"x\"]"));
        assert!(!fits("{\"a\":[18446744073709551616]}"));
        assert!(!fits("-9223372036854775809"));
    }

    proptest! {
        #[test]
        fn never_panics_and_agrees_with_serde(text in "\\PC{0,64}") {
            let ours = Json::parse(&text);
            let theirs = serde_json::from_str::<Value>(&text);
            // Ours also refuses doubled keys.
            if let Ok(json) = &ours {
                prop_assert_eq!(json.to_value(), theirs.unwrap());
            }
        }

        #[test]
        fn reads_what_serde_writes(numbers in proptest::collection::vec(any::<f64>().prop_filter("finite", |f| f.is_finite()), 0..8), text in ".*") {
            let value = serde_json::json!({"n": numbers, "t": text, "o": {"x": null}});
            let json = Json::parse(&value.to_string()).unwrap();
            // Not `value` itself: serde reads a double with an error in its last bit now and then.
            prop_assert_eq!(json.to_value(), serde_json::from_str::<Value>(&value.to_string()).unwrap());
            let canonical = json.to_canonical();
            prop_assert_eq!(Json::parse(&canonical).unwrap().to_canonical(), canonical);
        }
    }
}

//! From the text that a model wrote to arguments: lossless repairs only.
//!
//! Models send nothing where `{}` is meant, wrap JSON in a code fence, or encode it twice. Undoing that loses nothing.
//! Anything else (a missing brace, single quotes) would be a guess about what was meant, and goes back to the model.

use super::json::{Json, NotJson};
use super::schema::Mistake;
use crate::options::ARGUMENTS_BYTES_MAX;

/// Why arguments are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadArguments {
    /// They are no JSON object.
    NotJson {
        /// What is wrong.
        reason: String,
        /// At which byte, where that helps.
        at: Option<usize>,
    },
    /// They do not fit the schema, or cannot be sent as they are.
    Mistakes(Vec<Mistake>),
}

impl BadArguments {
    /// One mistake at one place.
    pub(crate) fn at(pointer: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Mistakes(vec![Mistake { pointer: pointer.into(), reason: reason.into() }])
    }
}

/// Reads the members of the arguments.
pub(crate) fn read(text: &str) -> Result<Vec<(String, Json)>, BadArguments> {
    if text.len() > ARGUMENTS_BYTES_MAX {
        return Err(BadArguments::NotJson { reason: format!("{} bytes, more than {ARGUMENTS_BYTES_MAX}", text.len()), at: None });
    }
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    match Json::parse(text) {
        Ok(json) => object(json),
        // A fence is tried only where the text as it stands is no JSON: a repair never changes what was valid.
        Err(as_given) => match unfenced(text).map(Json::parse) {
            Some(Ok(json)) => object(json),
            Some(Err(_)) | None => Err(not_json(as_given)),
        },
    }
}

fn object(json: Json) -> Result<Vec<(String, Json)>, BadArguments> {
    match json {
        Json::Object(members) => Ok(members),
        Json::String(inner) => match Json::parse(inner.trim()) {
            Ok(Json::Object(members)) => Ok(members),
            _ if inner.trim().is_empty() => Ok(Vec::new()),
            Ok(_) | Err(_) => Err(no_object("a string")),
        },
        Json::Null => Err(no_object("null")),
        Json::Bool(_) => Err(no_object("a boolean")),
        Json::Number(_) => Err(no_object("a number")),
        Json::Array(_) => Err(no_object("an array")),
    }
}

fn no_object(what: &str) -> BadArguments {
    BadArguments::NotJson { reason: format!("arguments are a JSON object, not {what}"), at: None }
}

fn not_json(error: NotJson) -> BadArguments {
    BadArguments::NotJson { reason: error.reason, at: Some(error.at) }
}

/// What stands between one pair of code fences that is the whole text.
fn unfenced(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("```")?.strip_suffix("```")?;
    let inner = inner.strip_prefix("json").or_else(|| inner.strip_prefix("JSON")).unwrap_or(inner);
    (!inner.contains("```")).then(|| inner.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        match read(text) {
            Ok(members) => Json::Object(members).to_text(),
            Err(BadArguments::NotJson { reason, .. }) => format!("! {reason}"),
            Err(BadArguments::Mistakes(mistakes)) => format!("? {mistakes:?}"),
        }
    }

    #[test]
    fn lossless_repairs_are_made_and_no_others() {
        for (text, expected) in [
            ("", "{}"),
            ("  \n", "{}"),
            ("{\"a\": 1}", "{\"a\":1}"),
            ("```json\n{\"a\": 1}\n```", "{\"a\":1}"),
            ("```\n{\"a\": 1}```", "{\"a\":1}"),
            ("\"{\\\"a\\\": 1}\"", "{\"a\":1}"),
            ("```json\n\"{\\\"a\\\": 1}\"\n```", "{\"a\":1}"),
            ("\"\"", "{}"),
            ("{\"a\": \"```json {} ```\"}", "{\"a\":\"```json {} ```\"}"),
            ("{\"n\": 12345678901234567890123}", "{\"n\":12345678901234567890123}"),
            // Encoded three times, or not an object: a guess.
            ("\"\\\"{}\\\"\"", "! arguments are a JSON object, not a string"),
            ("[1]", "! arguments are a JSON object, not an array"),
            ("null", "! arguments are a JSON object, not null"),
            ("{'a': 1}", "! expected a key in double quotes"),
            ("{\"a\": 1", "! the text ends within an object"),
            ("``````", "! no JSON value begins like this"),
            ("```{}``````{}```", "! no JSON value begins like this"),
        ] {
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn size_is_bounded_at_the_limit_and_one_past_it() {
        let of = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
        assert!(check(&of(ARGUMENTS_BYTES_MAX)).starts_with('{'));
        assert!(check(&of(ARGUMENTS_BYTES_MAX + 1)).contains("more than"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[`\"{}\\\\jsona:,0-9 ]{0,40}") {
            let _ = read(&text);
        }
    }
}

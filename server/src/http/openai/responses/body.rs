//! The body of `POST /v1/responses`.

use serde_json::Value;

use crate::http::body::{Reader, pointer};
use crate::http::openai::ask::{Ask, plain_text};
use crate::http::openai::begin::Form;
use crate::http::problem::FieldError;

/// Requests in the form of the Responses API.
pub(crate) struct Responses;

impl Form for Responses {
    const WORDS: &'static str = "/input";

    fn read(body: &Value) -> Result<Ask, Vec<FieldError>> {
        let mut reader = Reader::default();
        let Some(object) = reader.object(body, "") else { return Err(reader.errors) };
        let given = |key: &str| object.get(key).filter(|value| !value.is_null());
        let mut ask = Ask::default();
        // The caller's context comes first, wherever it stands in the body.
        match given("instructions") {
            Some(Value::String(text)) => ask.said.context(text),
            Some(value) => reader.expected("/instructions", "a string", value),
            None => {}
        }
        match given("input") {
            Some(value) => ask.said.items(&mut reader, value, Self::WORDS),
            None => reader.wrong(Self::WORDS, "is required: a text, or a list of items"),
        }
        for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            let at = pointer("", key);
            match key.as_str() {
                "instructions" | "input" => {}
                "previous_response_id" => ask.previous = reader.session(value, &at),
                "max_output_tokens" => ask.output_tokens = reader.count(value, &at, 1),
                "max_tool_calls" => ask.tool_calls = reader.count(value, &at, 0),
                "background" => ask.background = reader.boolean(value, &at),
                "text" => text(&mut ask, &mut reader, value, &at),
                "conversation" => reader.wrong(&at, "there are no conversations here; continue with previous_response_id"),
                "prompt" => reader.wrong(&at, "there are no stored prompts here; an agent's instructions are in its configuration"),
                _ => {
                    if !ask.common(&mut reader, key, value, &at) {
                        ask.ignore(key);
                    }
                }
            }
        }
        if ask.background && ask.forget {
            reader.wrong("/store", "a background response is fetched later, and has to be kept until then");
        }
        ask.complete(reader, given("model").is_some())
    }
}

fn text(ask: &mut Ask, reader: &mut Reader, value: &Value, at: &str) {
    let Some(text) = reader.object(value, at) else { return };
    for (key, value) in text.iter().filter(|(_, value)| !value.is_null()) {
        match key.as_str() {
            "format" => plain_text(reader, value, &pointer(at, key)),
            _ => ask.ignore(&format!("text.{key}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(body: Value, places: &[&str]) {
        let errors = Responses::read(&body).map_or_else(|errors| errors, |_| Vec::new());
        let mut got: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        got.sort_unstable();
        assert_eq!(got, places, "{body} {errors:?}");
    }

    #[test]
    fn everything_wrong_is_said_at_once_with_its_place() {
        check(json!({}), &["/input", "/model"]);
        check(json!({"model": null, "input": null}), &["/input", "/model"]);
        check(json!([]), &[""]);
        let wrong = json!({"model": "a", "input": "x", "max_output_tokens": 0, "background": "yes", "instructions": 1, "previous_response_id": "7"});
        check(wrong, &["/background", "/instructions", "/max_output_tokens", "/previous_response_id"]);
        check(json!({"model": "a", "input": "x", "text": {"format": {"type": "json_schema"}}}), &["/text/format/type"]);
        check(json!({"model": "a", "input": "x", "conversation": "c", "prompt": {"id": "p"}}), &["/conversation", "/prompt"]);
        check(json!({"model": "a", "input": "x", "background": true, "store": false}), &["/store"]);
    }

    #[test]
    fn what_means_nothing_is_ignored_and_named() {
        let ask = Responses::read(&json!({
            "model": "a", "input": "x", "temperature": 0.2, "user": null, "truncation": "auto", "text": {"format": {"type": "text"}, "verbosity": "low"},
        }))
        .unwrap();
        let mut ignored: Vec<_> = ask.ignored().unwrap().split(", ").map(str::to_owned).collect();
        ignored.sort_unstable();
        assert_eq!(ignored, ["temperature", "text.verbosity", "truncation"]);
    }

    #[test]
    fn the_callers_context_comes_first() {
        let ask = Responses::read(&json!({"input": "x", "model": "a", "instructions": "be brief"})).unwrap();
        assert!(ask.said.input[0].contains("> be brief") && &*ask.said.input[1] == "x" && !ask.said.tainted);
    }
}

//! The body of `POST /v1/chat/completions`.

use serde_json::Value;

use crate::http::body::{Reader, pointer};
use crate::http::openai::ask::{Ask, plain_text};
use crate::http::openai::begin::Form;
use crate::http::problem::FieldError;

/// Requests in the form of chat completions.
pub(crate) struct Chat;

impl Form for Chat {
    const WORDS: &'static str = "/messages";

    fn read(body: &Value) -> Result<Ask, Vec<FieldError>> {
        let mut reader = Reader::default();
        let Some(object) = reader.object(body, "") else { return Err(reader.errors) };
        let given = |key: &str| object.get(key).filter(|value| !value.is_null());
        let mut ask = Ask::default();
        match given("messages") {
            Some(value) => ask.said.messages(&mut reader, value, Self::WORDS),
            None => reader.wrong(Self::WORDS, "is required: a list of messages"),
        }
        for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            let at = pointer("", key);
            match key.as_str() {
                "messages" => {}
                "max_completion_tokens" | "max_tokens" => {
                    let wish = reader.count(value, &at, 1);
                    ask.output_tokens = [ask.output_tokens, wish].into_iter().flatten().min();
                }
                "n" => {
                    if reader.count(value, &at, 1).is_some_and(|n| n > 1) {
                        reader.wrong(&at, "one session gives one answer; send the request again for another");
                    }
                }
                "response_format" => plain_text(&mut reader, value, &at),
                "modalities" => {
                    if value.as_array().is_none_or(|kinds| kinds.iter().any(|kind| kind != "text")) {
                        reader.wrong(&at, "only [\"text\"] is answered");
                    }
                }
                "audio" => reader.wrong(&at, "only text is answered"),
                "functions" | "function_call" => reader.wrong(&at, "is not taken; name the agent's tools in `tools`"),
                _ => {
                    if !ask.common(&mut reader, key, value, &at) {
                        ask.ignore(key);
                    }
                }
            }
        }
        ask.complete(reader, given("model").is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(mut body: Value, places: &[&str]) {
        body["model"] = "a".into();
        body["messages"] = json!([{"role": "user", "content": "hi"}]);
        let errors = Chat::read(&body).map_or_else(|errors| errors, |_| Vec::new());
        let got: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(got, places, "{body} {errors:?}");
    }

    #[test]
    fn what_cannot_be_had_is_refused_at_its_place() {
        check(json!({"n": 1, "modalities": ["text"], "response_format": {"type": "text"}, "audio": null}), &[]);
        check(json!({"n": 2}), &["/n"]);
        check(json!({"n": "1"}), &["/n"]);
        check(json!({"max_tokens": 0}), &["/max_tokens"]);
        check(json!({"response_format": {"type": "json_object"}}), &["/response_format/type"]);
        check(json!({"modalities": ["text", "audio"]}), &["/modalities"]);
        check(json!({"audio": {}}), &["/audio"]);
        check(json!({"functions": []}), &["/functions"]);
    }

    #[test]
    fn the_smaller_bound_on_tokens_counts() {
        let body = json!({"model": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 7, "max_completion_tokens": 9});
        assert_eq!(Chat::read(&body).unwrap().output_tokens, Some(7));
    }

    #[test]
    fn what_is_required_is_said() {
        let errors = Chat::read(&json!({})).unwrap_err();
        assert_eq!(errors.iter().map(|error| error.pointer.as_str()).collect::<Vec<_>>(), ["/messages", "/model"]);
    }
}

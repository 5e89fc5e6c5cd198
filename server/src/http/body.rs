//! The body of `POST /v1/sessions`: read as a whole, with everything that is wrong said at once, each with its pointer.

use std::collections::BTreeMap;
use std::sync::Arc;

use ambit_core::SessionId;
use ambit_core::session::OnLimit;
use ambit_orchestrator::{LimitsWish, METADATA_KEY_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_MAX};
use serde_json::{Map, Value};

use crate::http::problem::FieldError;

/// Said of a text of spaces alone.
const BLANK: &str = "is blank";
/// Most pieces of input, and most names of a list.
pub(crate) const INPUT_ITEMS_MAX: usize = 256;

/// Largest count that is understood: what `int64` of the OpenAPI document can say.
const COUNT_MAX: u64 = i64::MAX.unsigned_abs();

/// A request for a session as its body has it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SessionBody {
    pub(crate) agent: String,
    pub(crate) input: Vec<Arc<str>>,
    pub(crate) previous: Option<SessionId>,
    pub(crate) limits: LimitsWish,
    pub(crate) tools_allow: Option<Vec<String>>,
    pub(crate) tools_deny: Vec<String>,
    pub(crate) on_limit: OnLimit,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) stream: bool,
    pub(crate) background: bool,
    /// Whether the session goes on without its caller; `None` where the caller does not say.
    pub(crate) continues: Option<bool>,
}

/// Reads a body.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn read(value: &Value) -> Result<SessionBody, Vec<FieldError>> {
    let mut reader = Reader::default();
    let Some(object) = reader.object(value, "") else { return Err(reader.errors) };
    let mut body = SessionBody::default();
    for (key, value) in object {
        let at = pointer("", key);
        match key.as_str() {
            "agent" => body.agent = reader.text(value, &at).unwrap_or_default().to_owned(),
            "input" => body.input = reader.input(value, &at),
            "limits" => body.limits = reader.limits(value, &at),
            "tools" => reader.tools(value, &at, &mut body),
            "on_limit" => {
                body.on_limit = match reader.choice(value, &at, &["answer", "stop"]) {
                    Some("stop") => OnLimit::Stop,
                    _ => OnLimit::Answer,
                }
            }
            "metadata" => body.metadata = reader.metadata(value, &at),
            "stream" => body.stream = reader.boolean(value, &at),
            "background" => body.background = reader.boolean(value, &at),
            "on_disconnect" => body.continues = reader.choice(value, &at, &["cancel", "continue"]).map(|choice| choice == "continue"),
            "previous_session_id" => body.previous = reader.session(value, &at),
            "response_format" => reader.wrong(&at, "response formats are not built yet"),
            "resilience" => reader.wrong(&at, "switching resilience off for one request is not built yet"),
            _ => reader
                .wrong(&at, "unknown field; there are agent, input, previous_session_id, limits, tools, on_limit, metadata, stream, background, on_disconnect"),
        }
    }
    if !object.contains_key("agent") {
        reader.wrong("/agent", "is required: the name of an agent, see GET /v1/agents");
    }
    if !object.contains_key("input") {
        reader.wrong("/input", "is required: a text, or a list of messages");
    }
    if body.stream && body.background {
        reader.wrong("/background", "a background session is followed through its events; leave `stream` out");
    }
    if reader.errors.is_empty() { Ok(body) } else { Err(reader.errors) }
}

/// Reads the body of a request that tightens the limits of a session: the limits themselves, at least one.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn read_limits(value: &Value) -> Result<LimitsWish, Vec<FieldError>> {
    let mut reader = Reader::default();
    let wish = reader.limits(value, "");
    if reader.errors.is_empty() && wish == LimitsWish::default() {
        reader.wrong("", "names no limit; `limits` of a session lists those that can be tightened");
    }
    if reader.errors.is_empty() { Ok(wish) } else { Err(reader.errors) }
}

/// Reads members one by one, and gathers what is wrong with them.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) errors: Vec<FieldError>,
}

impl Reader {
    pub(crate) fn wrong(&mut self, at: &str, detail: impl Into<String>) {
        self.errors.push(FieldError { detail: detail.into(), pointer: at.into() });
    }

    pub(crate) fn expected(&mut self, at: &str, what: &str, got: &Value) {
        let got = match got {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.wrong(at, format!("expected {what}, got {got}"));
    }

    pub(crate) fn object<'a>(&mut self, value: &'a Value, at: &str) -> Option<&'a Map<String, Value>> {
        let object = value.as_object();
        if object.is_none() {
            self.expected(at, "an object", value);
        }
        object
    }

    pub(crate) fn text<'a>(&mut self, value: &'a Value, at: &str) -> Option<&'a str> {
        match value.as_str() {
            Some("") => {
                self.wrong(at, "is empty");
                None
            }
            Some(text) => Some(text),
            None => {
                self.expected(at, "a string", value);
                None
            }
        }
    }

    /// A text that says something.
    fn words<'a>(&mut self, value: &'a Value, at: &str) -> Option<&'a str> {
        let text = self.text(value, at)?;
        if text.trim().is_empty() {
            self.wrong(at, BLANK);
            return None;
        }
        Some(text)
    }

    pub(crate) fn session(&mut self, value: &Value, at: &str) -> Option<SessionId> {
        let id = value.as_str().and_then(|text| text.parse().ok());
        if id.is_none() {
            self.wrong(at, "expected the id of a session: ses_ and 26 characters");
        }
        id
    }

    pub(crate) fn boolean(&mut self, value: &Value, at: &str) -> bool {
        value.as_bool().unwrap_or_else(|| {
            self.expected(at, "true or false", value);
            false
        })
    }

    pub(crate) fn choice<'a>(&mut self, value: &'a Value, at: &str, choices: &[&str]) -> Option<&'a str> {
        match value.as_str() {
            Some(text) if choices.contains(&text) => Some(text),
            _ => {
                self.wrong(at, format!("expected one of {}", choices.join(", ")));
                None
            }
        }
    }

    /// A text, or messages of the user: `{"role": "user", "content": text | [{"type": "input_text", "text"}]}`.
    fn input(&mut self, value: &Value, at: &str) -> Vec<Arc<str>> {
        match value {
            Value::String(_) => self.words(value, at).map(Arc::from).into_iter().collect(),
            Value::Array(items) if items.is_empty() => {
                self.wrong(at, "is empty");
                Vec::new()
            }
            Value::Array(items) if items.len() > INPUT_ITEMS_MAX => {
                self.wrong(at, format!("has {} items, at most {INPUT_ITEMS_MAX} are taken", items.len()));
                Vec::new()
            }
            Value::Array(items) => {
                items.iter().enumerate().filter_map(|(index, item)| self.message(item, &pointer(at, &index.to_string()))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                self.expected(at, "a string or a list of messages", value);
                Vec::new()
            }
        }
    }

    fn message(&mut self, value: &Value, at: &str) -> Option<Arc<str>> {
        let message = self.object(value, at)?;
        for key in message.keys().filter(|key| !["type", "role", "content"].contains(&key.as_str())) {
            self.wrong(&pointer(at, key), "unknown field; a message has role and content");
        }
        if let Some(kind) = message.get("type") {
            self.choice(kind, &pointer(at, "type"), &["message"]);
        }
        match message.get("role") {
            Some(role) if role == "user" => {}
            Some(_) => self.wrong(&pointer(at, "role"), "only messages of the user can be given"),
            None => self.wrong(&pointer(at, "role"), "is required"),
        }
        let content = pointer(at, "content");
        match message.get("content") {
            Some(Value::Array(parts)) => {
                let texts: Vec<&str> =
                    parts.iter().enumerate().filter_map(|(index, part)| self.part(part, &pointer(&content, &index.to_string()))).collect();
                Some(texts.concat().into())
            }
            Some(value) => self.words(value, &content).map(Arc::from),
            None => {
                self.wrong(&content, "is required");
                None
            }
        }
    }

    fn part<'a>(&mut self, value: &'a Value, at: &str) -> Option<&'a str> {
        let part = self.object(value, at)?;
        if !matches!(part.get("type").and_then(Value::as_str), Some("input_text" | "text")) {
            self.wrong(&pointer(at, "type"), "only parts of type input_text can be given");
        }
        match part.get("text") {
            Some(text) => self.words(text, &pointer(at, "text")),
            None => {
                self.wrong(&pointer(at, "text"), "is required");
                None
            }
        }
    }

    pub(crate) fn limits(&mut self, value: &Value, at: &str) -> LimitsWish {
        let mut wish = LimitsWish::default();
        let Some(limits) = self.object(value, at) else { return wish };
        for (key, value) in limits {
            let at = pointer(at, key);
            match key.as_str() {
                "deadline_ms" => wish.deadline_ms = self.count(value, &at, 1),
                "model_calls" => wish.model_calls = self.count(value, &at, 1),
                "tool_calls" => wish.tool_calls = self.count(value, &at, 0),
                "model_attempts" => wish.model_attempts = self.count(value, &at, 1),
                "tool_attempts" => wish.tool_attempts = self.count(value, &at, 0),
                "total_tokens" => wish.total_tokens = self.count(value, &at, 1),
                "cost_usd" => match value.as_f64() {
                    Some(usd) if usd >= 0.0 && usd.is_finite() => wish.cost_usd = Some(usd),
                    _ => self.expected(&at, "a number of dollars, not below 0", value),
                },
                _ => self.wrong(
                    &at,
                    "unknown limit; there are deadline_ms, model_calls, tool_calls, model_attempts, tool_attempts, total_tokens, cost_usd",
                ),
            }
        }
        wish
    }

    pub(crate) fn count(&mut self, value: &Value, at: &str, least: u64) -> Option<u64> {
        // JSON has one kind of number: 2.0 is as whole as 2.
        match value.as_u64().or_else(|| value.as_f64().and_then(whole)) {
            Some(count) if (least..=COUNT_MAX).contains(&count) => Some(count),
            _ => {
                self.wrong(at, format!("expected a whole number, at least {least} and of 63 bits; unlimited is no value"));
                None
            }
        }
    }

    pub(crate) fn tools(&mut self, value: &Value, at: &str, body: &mut SessionBody) {
        let Some(tools) = self.object(value, at) else { return };
        for (key, value) in tools {
            let at = pointer(at, key);
            match key.as_str() {
                "allow" => body.tools_allow = Some(self.names(value, &at)),
                "deny" => body.tools_deny = self.names(value, &at),
                _ => self.wrong(&at, "unknown field; there are allow and deny"),
            }
        }
    }

    fn names(&mut self, value: &Value, at: &str) -> Vec<String> {
        let Some(names) = value.as_array() else {
            self.expected(at, "a list of names", value);
            return Vec::new();
        };
        if names.len() > INPUT_ITEMS_MAX {
            self.wrong(at, format!("has {} names, at most {INPUT_ITEMS_MAX} are taken", names.len()));
            return Vec::new();
        }
        let name = |(index, name): (usize, &Value)| self.text(name, &pointer(at, &index.to_string())).map(str::to_owned);
        names.iter().enumerate().filter_map(name).collect()
    }

    pub(crate) fn metadata(&mut self, value: &Value, at: &str) -> BTreeMap<String, String> {
        let Some(pairs) = self.object(value, at) else { return BTreeMap::new() };
        if pairs.len() > METADATA_PAIRS_MAX {
            self.wrong(at, format!("has {} pairs, at most {METADATA_PAIRS_MAX} are kept", pairs.len()));
        }
        let mut kept = BTreeMap::new();
        for (key, value) in pairs.iter().take(METADATA_PAIRS_MAX) {
            let at = pointer(at, key);
            if key.chars().count() > METADATA_KEY_MAX {
                self.wrong(&at, format!("the key is longer than {METADATA_KEY_MAX} characters"));
            }
            match value.as_str() {
                Some(text) if text.chars().count() > METADATA_VALUE_MAX => {
                    self.wrong(&at, format!("is longer than {METADATA_VALUE_MAX} characters"));
                }
                Some(text) => {
                    kept.insert(key.clone(), text.to_owned());
                }
                None => self.expected(&at, "a string", value),
            }
        }
        kept
    }
}

/// A number without a fraction that a float holds exactly.
fn whole(number: f64) -> Option<u64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, not negative, and below 2^53")]
    let count = (number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number)).then_some(number as u64);
    count
}

/// The pointer of a member (RFC 6901).
pub(crate) fn pointer(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(body: Value, pointers: &[&str]) {
        let errors = read(&body).map_or_else(|errors| errors, |_| Vec::new());
        let got: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(got, pointers, "{body} {errors:?}");
    }

    #[test]
    fn everything_wrong_is_said_at_once_with_its_place() {
        check(
            json!({"agent": 1, "input": "", "limits": {"model_calls": 0, "speed": 1}, "nope": 1}),
            &["/agent", "/input", "/limits/model_calls", "/limits/speed", "/nope"],
        );
        check(json!({}), &["/agent", "/input"]);
        check(json!([]), &[""]);
        check(json!({"agent": "a", "input": [{"role": "system", "content": "x"}]}), &["/input/0/role"]);
        check(
            json!({"agent": "a", "input": [{"role": "user", "content": [{"type": "image"}]}]}),
            &["/input/0/content/0/type", "/input/0/content/0/text"],
        );
        check(json!({"agent": "a", "input": "x", "on_limit": "explode", "tools": {"allow": "t"}}), &["/on_limit", "/tools/allow"]);
        check(json!({"agent": "a", "input": "x", "a/b~c": 1}), &["/a~1b~0c"]);
    }

    #[test]
    fn a_count_is_a_whole_number_however_it_is_written() {
        let limits = |value: Value| json!({"agent": "a", "input": "x", "limits": {"model_calls": value}});
        assert_eq!(read(&limits(json!(2.0))).unwrap().limits.model_calls, Some(2));
        for wrong in [json!(0), json!(0.0), json!(1.5), json!(-1.0), json!(1e300), json!("1"), json!(null)] {
            check(limits(wrong), &["/limits/model_calls"]);
        }
    }

    #[test]
    fn limits_alone_are_a_body() {
        let wrong = |body: Value| read_limits(&body).unwrap_err().into_iter().map(|error| error.pointer).collect::<Vec<_>>();
        assert_eq!(read_limits(&json!({"tool_calls": 0})).unwrap(), LimitsWish { tool_calls: Some(0), ..LimitsWish::default() });
        assert_eq!(wrong(json!({})), [""]);
        assert_eq!(wrong(json!([1])), [""]);
        assert_eq!(wrong(json!({"model_calls": 0, "speed": 1, "deadline_ms": null})), ["/deadline_ms", "/model_calls", "/speed"]);
    }

    #[test]
    fn what_is_not_built_says_so() {
        let errors = read(&json!({"agent": "a", "input": "x", "response_format": {}})).unwrap_err();
        assert_eq!(errors[0].detail, "response formats are not built yet");
    }

    #[test]
    fn a_session_to_go_on_from_is_named_by_any_of_its_ids() {
        for id in ["ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T", "resp_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T"] {
            let body = read(&json!({"agent": "a", "input": "x", "previous_session_id": id})).unwrap();
            assert_eq!(body.previous.unwrap().to_string(), "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T");
        }
        for id in [json!("ses_"), json!(1), json!(null)] {
            check(json!({"agent": "a", "input": "x", "previous_session_id": id}), &["/previous_session_id"]);
        }
    }

    #[test]
    fn every_name_counts_up_to_the_bound_and_more_are_refused() {
        let tools = |key: &str, n: usize| json!({"agent": "a", "input": "x", "tools": {key: vec!["t"; n]}});
        assert_eq!(read(&tools("deny", INPUT_ITEMS_MAX)).unwrap().tools_deny.len(), INPUT_ITEMS_MAX);
        assert_eq!(read(&tools("allow", INPUT_ITEMS_MAX)).unwrap().tools_allow.unwrap().len(), INPUT_ITEMS_MAX);
        check(tools("deny", INPUT_ITEMS_MAX + 1), &["/tools/deny"]);
        check(tools("allow", INPUT_ITEMS_MAX + 1), &["/tools/allow"]);
    }

    #[test]
    fn blank_words_are_none() {
        check(json!({"agent": "a", "input": " \n\t"}), &["/input"]);
        check(json!({"agent": "a", "input": [{"role": "user", "content": " "}]}), &["/input/0/content"]);
        let parts = json!([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "\n"}]);
        check(json!({"agent": "a", "input": [{"role": "user", "content": parts}]}), &["/input/0/content/1/text"]);
    }

    #[test]
    fn metadata_is_had_at_its_bounds_and_refused_one_past_them() {
        let pairs = |n: usize| (0..n).map(|i| (format!("k{i}"), json!("v"))).collect::<Map<_, _>>();
        check(json!({"agent": "a", "input": "x", "metadata": pairs(16)}), &[]);
        check(json!({"agent": "a", "input": "x", "metadata": pairs(17)}), &["/metadata"]);
        check(json!({"agent": "a", "input": "x", "metadata": {"k": "v".repeat(512)}}), &[]);
        check(json!({"agent": "a", "input": "x", "metadata": {"k": "v".repeat(513)}}), &["/metadata/k"]);
    }

    #[test]
    fn a_full_body_is_read() {
        let body = read(&json!({
            "agent": "ops", "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]}],
            "limits": {"deadline_ms": 1000, "cost_usd": 0.5}, "tools": {"deny": ["t"]}, "on_limit": "stop", "on_disconnect": "continue",
        }))
        .unwrap();
        assert_eq!((body.agent.as_str(), &*body.input[0]), ("ops", "ab"));
        assert_eq!((body.limits.deadline_ms, body.limits.cost_usd), (Some(1_000), Some(0.5)));
        assert_eq!((body.on_limit, body.continues), (OnLimit::Stop, Some(true)));
    }
}

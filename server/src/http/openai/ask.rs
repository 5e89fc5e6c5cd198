//! What both OpenAI forms of a request have in common, read leniently: parameters that mean nothing here are ignored and
//! named in the answer, known ones of a wrong type are refused. Our own member `ambit` is read strictly.

use std::collections::BTreeMap;
use std::sync::Arc;

use ambit_core::SessionId;
use ambit_core::session::OnLimit;
use serde_json::{Map, Value};

use crate::http::body::{Reader, SessionBody, pointer};
use crate::http::openai::messages::Conversation;
use crate::http::problem::{FieldError, echo};

/// Most ignored parameters that an answer names.
const IGNORED_MAX: usize = 32;
/// Longest name of one of them, bytes.
const IGNORED_NAME_MAX: usize = 64;

/// What a request asks for.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    /// Name of the agent.
    pub(crate) model: String,
    pub(crate) said: Conversation,
    pub(crate) previous: Option<SessionId>,
    /// Whether texts are deleted once the session is closed.
    pub(crate) forget: bool,
    /// Most output tokens of one model call.
    pub(crate) output_tokens: Option<u64>,
    /// Most tool calls, clamped to the agent's.
    pub(crate) tool_calls: Option<u64>,
    /// Function tools that the caller names, each with its place.
    pub(crate) tools: Vec<(String, String)>,
    /// Those of them that may be called, where the caller says so, each with its place.
    choice: Option<Vec<(String, String)>>,
    /// No tools at all.
    pub(crate) tools_off: bool,
    /// The member `ambit`.
    pub(crate) own: SessionBody,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) stream: bool,
    pub(crate) background: bool,
    /// A last chunk with the usage.
    pub(crate) include_usage: bool,
    ignored: Vec<String>,
}

impl Ask {
    /// Takes a parameter that both forms have. False if it is none.
    pub(crate) fn common(&mut self, reader: &mut Reader, key: &str, value: &Value, at: &str) -> bool {
        match key {
            "model" => self.model = reader.text(value, at).unwrap_or_default().to_owned(),
            "metadata" => self.metadata = reader.metadata(value, at),
            "store" => self.forget = !reader.boolean(value, at),
            "stream" => self.stream = reader.boolean(value, at),
            "stream_options" => self.stream_options(reader, value, at),
            "tools" => self.tools = functions(reader, value, at),
            "tool_choice" => self.tool_choice(reader, value, at),
            "ambit" => self.own(reader, value, at),
            _ => return false,
        }
        true
    }

    /// Remembers a parameter that changes nothing here.
    pub(crate) fn ignore(&mut self, name: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !name.is_empty() && name.len() <= IGNORED_NAME_MAX && name.chars().all(plain) && self.ignored.len() < IGNORED_MAX {
            self.ignored.push(name.to_owned());
        }
    }

    /// The names of ignored parameters, as a header has them.
    pub(crate) fn ignored(&self) -> Option<String> {
        (!self.ignored.is_empty()).then(|| self.ignored.join(", "))
    }

    /// Where this request has what a native one has at `pointer`; its words are at `words`.
    pub(crate) fn place(&self, pointer: &str, words: &str) -> String {
        match pointer {
            "/agent" => "/model".to_owned(),
            "/input" => words.to_owned(),
            "/previous_session_id" if self.previous.is_some() => "/previous_response_id".to_owned(),
            member if member.starts_with('/') => format!("/ambit{member}"),
            // The body as a whole, a header, or a parameter.
            other => other.to_owned(),
        }
    }

    /// The session that this one goes on from, wherever it is named.
    pub(crate) fn goes_on_from(&self) -> Option<SessionId> {
        self.previous.or(self.own.previous)
    }

    /// Ends reading: what is missing or does not fit together is said along with everything else.
    pub(crate) fn complete(mut self, mut reader: Reader, has_model: bool) -> Result<Self, Vec<FieldError>> {
        if !has_model {
            reader.wrong("/model", "is required: the name of an agent, see GET /v1/models");
        }
        if self.previous.is_some() && self.own.previous.is_some() {
            reader.wrong("/ambit/previous_session_id", "previous_response_id names a session to go on from already; leave one of them out");
        }
        if self.said.left_out {
            self.ignore("input.reasoning");
        }
        // Ours may add pairs and change given ones.
        self.metadata.append(&mut self.own.metadata);
        if self.metadata.len() > ambit_orchestrator::METADATA_PAIRS_MAX {
            let most = ambit_orchestrator::METADATA_PAIRS_MAX;
            reader
                .wrong("/ambit/metadata", format!("makes {} pairs with those of `metadata`, at most {most} are kept", self.metadata.len()));
        }
        if reader.errors.is_empty() { Ok(self) } else { Err(reader.errors) }
    }

    fn stream_options(&mut self, reader: &mut Reader, value: &Value, at: &str) {
        let Some(options) = reader.object(value, at) else { return };
        for (key, value) in options.iter().filter(|(_, value)| !value.is_null()) {
            match key.as_str() {
                "include_usage" => self.include_usage = reader.boolean(value, &pointer(at, key)),
                _ => self.ignore(&format!("stream_options.{key}")),
            }
        }
    }

    fn tool_choice(&mut self, reader: &mut Reader, value: &Value, at: &str) {
        match value {
            Value::String(choice) if choice == "none" => self.tools_off = true,
            Value::String(choice) if choice == "auto" => {}
            // The agent's model decides whether it needs a tool; making it call one is not offered.
            Value::String(choice) if choice == "required" => self.ignore("tool_choice"),
            Value::Object(choice) if choice.get("type").and_then(Value::as_str) == Some("allowed_tools") => {
                self.allowed_tools(reader, choice, at);
            }
            Value::Object(_) => self.ignore("tool_choice"),
            Value::String(_) => reader.wrong(at, "expected none, auto, required, or an object"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => reader.expected(at, "a string or an object", value),
        }
    }

    /// `{"mode", "tools"}` beside the type, or below `allowed_tools`: fewer tools, and never another.
    fn allowed_tools(&mut self, reader: &mut Reader, choice: &Map<String, Value>, at: &str) {
        let (choice, at) = match choice.get("allowed_tools").filter(|below| !below.is_null()) {
            Some(below) => {
                let at = pointer(at, "allowed_tools");
                let Some(below) = reader.object(below, &at) else { return };
                (below, at)
            }
            None => (choice, at.to_owned()),
        };
        if let Some(mode) = choice.get("mode").filter(|mode| !mode.is_null())
            && reader.choice(mode, &pointer(&at, "mode"), &["auto", "required"]) == Some("required")
        {
            self.ignore("tool_choice");
        }
        let at = pointer(&at, "tools");
        match choice.get("tools") {
            Some(tools) => self.choice = Some(functions(reader, tools, &at)),
            None => reader.wrong(&at, "is required"),
        }
    }

    fn own(&mut self, reader: &mut Reader, value: &Value, at: &str) {
        let Some(own) = reader.object(value, at) else { return };
        for (key, value) in own {
            let at = pointer(at, key);
            match key.as_str() {
                "limits" => self.own.limits = reader.limits(value, &at),
                "tools" => reader.tools(value, &at, &mut self.own),
                "on_limit" => {
                    self.own.on_limit = match reader.choice(value, &at, &["answer", "stop"]) {
                        Some("stop") => OnLimit::Stop,
                        _ => OnLimit::Answer,
                    }
                }
                "metadata" => self.own.metadata = reader.metadata(value, &at),
                "on_disconnect" => {
                    self.own.continues = reader.choice(value, &at, &["cancel", "continue"]).map(|choice| choice == "continue");
                }
                "previous_session_id" => self.own.previous = reader.session(value, &at),
                "response_format" => reader.wrong(&at, "response formats are not built yet"),
                "resilience" => reader.wrong(&at, "switching resilience off for one request is not built yet"),
                _ => reader.wrong(&at, "unknown field; there are limits, tools, on_limit, metadata, on_disconnect, previous_session_id"),
            }
        }
    }
}

/// `{"type": "function", "name"}`, or the same below `function`, each name with its place. What they are is the agent's
/// matter: only names count.
fn functions(reader: &mut Reader, value: &Value, at: &str) -> Vec<(String, String)> {
    let mut named = Vec::new();
    let Some(tools) = value.as_array() else {
        reader.expected(at, "a list of function tools", value);
        return named;
    };
    for (index, tool) in tools.iter().enumerate() {
        let at = pointer(at, &index.to_string());
        let Some(tool) = reader.object(tool, &at) else { continue };
        if tool.get("type").and_then(Value::as_str) != Some("function") {
            reader.wrong(&pointer(&at, "type"), "only function tools of the agent's own can be named");
            continue;
        }
        let (tool, at) = match tool.get("function").filter(|function| !function.is_null()) {
            Some(function) => {
                let at = pointer(&at, "function");
                let Some(function) = reader.object(function, &at) else { continue };
                (function, at)
            }
            None => (tool, at),
        };
        let at = pointer(&at, "name");
        match tool.get("name") {
            Some(name) => named.extend(reader.text(name, &at).map(|name| (name.to_owned(), at.clone()))),
            None => reader.wrong(&at, "is required"),
        }
    }
    named
}

/// Refuses every form of answer but text: whoever asks for one relies on it.
pub(crate) fn plain_text(reader: &mut Reader, format: &Value, at: &str) {
    let Some(format) = reader.object(format, at) else { return };
    if format.get("type").and_then(Value::as_str) != Some("text") {
        reader.wrong(&pointer(at, "type"), "only `text` is answered; response formats are not built yet");
    }
}

/// What of the agent's tools may be used: those named, both ways, and all of them if none is. The errors point at names
/// that the agent does not have.
pub(crate) fn allowed(ask: &Ask, known: &[Arc<str>]) -> Result<Option<Vec<String>>, Vec<FieldError>> {
    let has = |name: &str| known.iter().any(|tool| **tool == *name);
    let own = ask.own.tools_allow.as_deref();
    let of_own = own.unwrap_or_default().iter().enumerate().map(|(index, name)| (name, format!("/ambit/tools/allow/{index}")));
    let errors: Vec<FieldError> = ask
        .tools
        .iter()
        .chain(ask.choice.iter().flatten())
        .map(|(name, at)| (name, at.clone()))
        .chain(of_own)
        .filter(|(name, _)| !has(name))
        .map(|(name, pointer)| FieldError {
            detail: format!("the agent has no tool `{}`; it has: {}", echo(name), known.join(", ")),
            pointer,
        })
        .collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    if ask.tools_off {
        return Ok(Some(Vec::new()));
    }
    let names = |tools: &[(String, String)]| tools.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    // An empty list of tools names none; an empty choice among them leaves none.
    let named = (!ask.tools.is_empty()).then(|| names(&ask.tools));
    let all = [named, ask.choice.as_deref().map(names), own.map(<[String]>::to_vec)];
    Ok(all.into_iter().flatten().reduce(|some, others| others.into_iter().filter(|name| some.contains(name)).collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<Ask, Vec<String>> {
        let (mut ask, mut reader) = (Ask::default(), Reader::default());
        for (key, value) in body.as_object().unwrap() {
            if !ask.common(&mut reader, key, value, &pointer("", key)) {
                ask.ignore(key);
            }
        }
        ask.complete(reader, true).map_err(|errors| errors.into_iter().map(|error| error.pointer).collect())
    }

    #[test]
    fn what_means_nothing_is_named_within_bounds_and_never_breaks_a_header() {
        let many: serde_json::Map<String, Value> = (0..40).map(|i| (format!("p{i:02}"), json!(i))).collect();
        let ask = read(&Value::Object(many)).unwrap();
        assert_eq!(ask.ignored().unwrap().split(", ").count(), IGNORED_MAX);
        let at = "a".repeat(IGNORED_NAME_MAX);
        let past = "a".repeat(IGNORED_NAME_MAX + 1);
        let ask = read(&json!({"temperature": 2, "a\nb": 1, "x, y": 1, "": 1, at.clone(): 1, past: 1})).unwrap();
        assert_eq!(ask.ignored().unwrap(), format!("{at}, temperature"));
        assert_eq!(read(&json!({})).unwrap().ignored(), None);
    }

    #[test]
    fn known_parameters_have_their_types() {
        let check = |body: Value, places: &[&str]| assert_eq!(read(&body).unwrap_err(), places, "{body}");
        check(json!({"model": 1}), &["/model"]);
        check(json!({"stream": "yes"}), &["/stream"]);
        check(json!({"store": 0}), &["/store"]);
        check(json!({"stream_options": {"include_usage": 1}}), &["/stream_options/include_usage"]);
        check(json!({"tools": {}}), &["/tools"]);
        check(json!({"tools": [{"type": "web_search"}, 1, {"type": "function"}]}), &["/tools/0/type", "/tools/1", "/tools/2/name"]);
        check(json!({"tool_choice": "some"}), &["/tool_choice"]);
        check(json!({"ambit": {"nope": 1, "limits": {"speed": 1}}}), &["/ambit/limits/speed", "/ambit/nope"]);
    }

    #[test]
    fn metadata_of_both_places_is_kept_up_to_the_bound() {
        let pairs = |prefix: &str, n: usize| (0..n).map(|i| (format!("{prefix}{i}"), json!("v"))).collect::<serde_json::Map<_, _>>();
        let body = |n: usize| json!({"metadata": pairs("a", 10), "ambit": {"metadata": pairs("b", n)}});
        assert_eq!(read(&body(6)).unwrap().metadata.len(), 16);
        assert_eq!(read(&body(7)).unwrap_err(), ["/ambit/metadata"]);
    }

    #[test]
    fn naming_tools_only_narrows() {
        let known: Vec<Arc<str>> = vec!["a".into(), "b".into(), "c".into()];
        let check = |body: Value, expected: Option<&[&str]>| {
            let got = allowed(&read(&body).unwrap(), &known).unwrap();
            let got = got.as_ref().map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(got.as_deref(), expected, "{body}");
        };
        let function = |name: &str| json!({"type": "function", "name": name});
        let nested = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {}}});
        check(json!({}), None);
        check(json!({"tools": []}), None);
        check(json!({"tools": [function("a"), nested("b")]}), Some(&["a", "b"]));
        check(json!({"tools": [function("a")], "ambit": {"tools": {"allow": ["a", "c"]}}}), Some(&["a"]));
        check(json!({"tools": [function("a")], "ambit": {"tools": {"allow": ["c"]}}}), Some(&[]));
        check(json!({"ambit": {"tools": {"allow": ["c"]}}}), Some(&["c"]));
        check(json!({"tools": [function("a")], "tool_choice": "none"}), Some(&[]));
        let wrong = json!({"tools": [nested("rm")], "tool_choice": choice(&[function("sh")]), "ambit": {"tools": {"allow": ["a", "sh"]}}});
        let places: Vec<String> = allowed(&read(&wrong).unwrap(), &known).unwrap_err().into_iter().map(|error| error.pointer).collect();
        assert_eq!(places, ["/tools/0/function/name", "/tool_choice/tools/0/name", "/ambit/tools/allow/1"]);
    }

    fn choice(tools: &[Value]) -> Value {
        json!({"type": "allowed_tools", "mode": "auto", "tools": tools})
    }

    #[test]
    fn choosing_among_tools_only_narrows() {
        let known: Vec<Arc<str>> = vec!["a".into(), "b".into(), "c".into()];
        let function = |name: &str| json!({"type": "function", "name": name});
        let check = |body: Value, expected: &[&str]| {
            let ask = read(&body).unwrap();
            assert_eq!(allowed(&ask, &known).unwrap().unwrap(), expected, "{body}");
            ask.ignored()
        };
        assert_eq!(check(json!({"tool_choice": choice(&[function("a")])}), &["a"]), None);
        check(json!({"tool_choice": choice(&[])}), &[]);
        check(json!({"tool_choice": choice(&[function("a"), function("b")]), "tools": [function("b"), function("c")]}), &["b"]);
        check(json!({"tool_choice": choice(&[function("a"), function("b")]), "ambit": {"tools": {"allow": ["b"]}}}), &["b"]);
        let mut forced = choice(&[function("a")]);
        forced["mode"] = "required".into();
        assert_eq!(check(json!({"tool_choice": forced}), &["a"]).as_deref(), Some("tool_choice"));
        // As chat completions have it.
        let below = json!({"mode": "auto", "tools": [{"type": "function", "function": {"name": "c"}}]});
        check(json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": below}}), &["c"]);
        for (wrong, at) in [
            (json!({"type": "allowed_tools"}), "/tool_choice/tools"),
            (json!({"type": "allowed_tools", "mode": "all", "tools": []}), "/tool_choice/mode"),
            (json!({"type": "allowed_tools", "allowed_tools": 1}), "/tool_choice/allowed_tools"),
            (choice(&[json!({"type": "mcp"})]), "/tool_choice/tools/0/type"),
        ] {
            assert_eq!(read(&json!({"tool_choice": wrong})).unwrap_err(), [at]);
        }
    }

    #[test]
    fn one_session_to_go_on_from_is_named_once_and_errors_point_at_it() {
        let id: SessionId = "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap();
        let own = read(&json!({"ambit": {"previous_session_id": id.to_string()}})).unwrap();
        assert_eq!((own.goes_on_from(), &*own.place("/previous_session_id", "")), (Some(id), "/ambit/previous_session_id"));
        let theirs = Ask { previous: Some(id), ..Ask::default() };
        assert_eq!((theirs.goes_on_from(), &*theirs.place("/previous_session_id", "")), (Some(id), "/previous_response_id"));
        let both = Ask { previous: Some(id), ..own };
        let errors = both.complete(Reader::default(), true).unwrap_err();
        assert_eq!(errors.iter().map(|error| &*error.pointer).collect::<Vec<_>>(), ["/ambit/previous_session_id"]);
    }

    #[test]
    fn errors_of_the_session_point_into_the_form() {
        let ask = Ask::default();
        for (native, here) in [
            ("/limits/cost_usd", "/ambit/limits/cost_usd"),
            ("/agent", "/model"),
            ("/input", "/words"),
            ("", ""),
            ("idempotency-key", "idempotency-key"),
        ] {
            assert_eq!(ask.place(native, "/words"), here);
        }
    }
}

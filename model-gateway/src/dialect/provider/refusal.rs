//! What a provider says when it does not answer: error bodies of every shape, and what their words mean.
//!
//! There is no standard. Codes decide where there are any that we know; wordings are matched only where no code does,
//! and an unknown error keeps its text and its status. **Invariant:** nothing here chooses between retry, fallback and
//! giving up: it only fills in [`Says`] and the status for [`ambit_resilience::classify`].

use ambit_resilience::Says;
use serde_json::{Map, Value};

/// Members whose text is a code.
const CODES: [&str; 4] = ["code", "type", "status", "reason"];
/// Members that may hold the message.
const MESSAGES: [&str; 4] = ["message", "detail", "msg", "error_description"];
/// How deep an error may be wrapped in `error`, `detail` or arrays.
const DEPTH_MAX: usize = 4;

/// An error body, as far as it could be read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ProviderError {
    /// In the provider's words; empty if it had none.
    pub(super) message: String,
    /// Everything that looks like a code, lower case.
    codes: Vec<String>,
    /// A status inside the body: the true one where the answer itself says 200.
    pub(super) status: Option<u16>,
    /// Headers that an intermediary put into the body.
    pub(super) headers: Vec<(String, String)>,
}

impl ProviderError {
    /// Reads a body of any form, down to a page of HTML.
    pub(super) fn of_body(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::of_value(&value),
            Err(_) => Self { message: without_tags(&String::from_utf8_lossy(body)), ..Self::default() },
        }
    }

    /// Reads an error object, or a body that has one.
    pub(super) fn of_value(value: &Value) -> Self {
        let mut error = Self::default();
        error.read(value, 0);
        error
    }

    fn read(&mut self, value: &Value, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        match value {
            Value::String(text) => self.say(text),
            // One server sends a list of one error, another a list of everything that is wrong.
            Value::Array(list) => list.iter().take(DEPTH_MAX).for_each(|value| self.read(value, depth + 1)),
            Value::Object(object) => self.read_object(object, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn read_object(&mut self, object: &Map<String, Value>, depth: usize) {
        if let Some(inner) = object.get("error").filter(|inner| !inner.is_null()) {
            self.read(inner, depth + 1);
        }
        for name in CODES {
            match object.get(name) {
                Some(Value::String(code)) => self.code(code),
                Some(Value::Number(code)) => self.number(code.as_u64()),
                _ => {}
            }
        }
        for name in MESSAGES {
            if let Some(message) = object.get(name) {
                self.read(message, depth + 1);
            }
        }
        if let Some(Value::Object(headers)) = object.get("metadata").and_then(|metadata| metadata.get("headers")) {
            let texts = headers
                .iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
            self.headers.extend(texts);
        }
    }

    fn say(&mut self, text: &str) {
        if text.is_empty() || self.message == text {
            return;
        }
        if !self.message.is_empty() {
            self.message.push_str("; ");
        }
        self.message.push_str(text);
    }

    fn code(&mut self, code: &str) {
        match code.trim().parse() {
            Ok(number) => self.number(Some(number)),
            Err(_) => self.codes.push(code.trim().to_ascii_lowercase()),
        }
    }

    fn number(&mut self, code: Option<u64>) {
        let status = code.and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
        self.status = self.status.or(status);
    }

    /// The status that counts: the answer's own, or the one inside where the answer claims success.
    pub(super) fn status_of(&self, answered: u16) -> Option<u16> {
        if answered >= 400 { Some(answered) } else { self.status.or_else(|| self.status_by_code()) }
    }

    /// What codes mean that come without a number, as they do inside of streams.
    fn status_by_code(&self) -> Option<u16> {
        self.codes.iter().find_map(|code| {
            Some(match code.as_str() {
                "rate_limit_exceeded" | "rate_limit_error" | "resource_exhausted" | "insufficient_quota" => 429,
                "billing_error" => 402,
                "overloaded_error" | "overloaded" | "server_overloaded" | "server_is_overloaded" | "slow_down" | "unavailable" => 503,
                "timeout_error" => 504,
                "server_error" | "internal_error" | "api_error" | "internal" | "internal_server_error" => 500,
                "authentication_error" | "invalid_api_key" | "unauthenticated" => 401,
                "permission_error" | "permission_denied" => 403,
                "invalid_request_error" | "invalid_argument" | "context_length_exceeded" | "invalid_prompt" => 400,
                "request_too_large" => 413,
                "not_found_error" | "model_not_found" => 404,
                _ => return None,
            })
        })
    }

    /// What was said beyond the status.
    pub(super) fn says(&self, status: u16) -> Says {
        self.codes.iter().find_map(|code| by_code(code)).unwrap_or_else(|| by_words(status, &self.message.to_lowercase()))
    }
}

fn by_code(code: &str) -> Option<Says> {
    Some(match code {
        "context_length_exceeded"
        | "exceed_context_size_error"
        | "context_window_exceeded"
        | "model_context_window_exceeded"
        | "request_too_large" => Says::ContextLength,
        "tool_use_failed" | "output_parse_failed" | "malformed_function_call" | "invalid_tool_call" => Says::Mistake,
        "insufficient_quota"
        | "insufficient_credits"
        | "insufficient_balance"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "billing_error"
        | "credits_exhausted" => Says::OutOfQuota,
        "content_filter" | "content_policy_violation" | "responsibleaipolicyviolation" | "data_inspection_failed" => Says::ContentPolicy,
        "model_not_found" | "model_not_available" | "deploymentnotfound" | "unsupported_parameter" | "unsupported_value" => Says::Incapable,
        "slow_down" | "load_shed" | "server_overloaded" => Says::Shedding,
        _ => return None,
    })
}

/// Wordings of a request that does not fit the window, lower case; each seen at some provider or server.
const CONTEXT_WORDS: [&str; 14] = [
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "exceed context limit",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "too large for model",
    "input token count",
    "maximum number of tokens",
    "maximum input length",
    "reduce the length of the messages",
    "exceeds the maximum size",
];
/// Of these, the ones that are believed of a 429: waiting never helps there.
const CONTEXT_WORDS_429: [&str; 1] = ["request too large for model"];
/// Wordings of a call that the model garbled.
const MISTAKE_WORDS: [&str; 2] = ["failed to call a function", "tool call validation failed"];
/// Wordings of an account without credit; one provider answers them with 400.
const CREDIT_WORDS: [&str; 1] = ["credit balance is too low"];
/// Wordings of content that the provider will not handle.
const POLICY_WORDS: [&str; 4] = ["content management policy", "content policy", "usage policy", "safety system"];

fn by_words(status: u16, message: &str) -> Says {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match status {
        400 | 413 | 422 if has(&CONTEXT_WORDS) => Says::ContextLength,
        429 if has(&CONTEXT_WORDS_429) => Says::ContextLength,
        400 | 403 if has(&CREDIT_WORDS) => Says::OutOfQuota,
        400 | 422 if has(&MISTAKE_WORDS) => Says::Mistake,
        400 | 403 | 422 if has(&POLICY_WORDS) => Says::ContentPolicy,
        404 if message.contains("model") => Says::Incapable,
        _ => Says::Nothing,
    }
}

/// The words of a page, without its tags, scripts and styles.
fn without_tags(page: &str) -> String {
    let mut words = String::new();
    let mut rest = page;
    while let Some(open) = rest.find('<') {
        words.push_str(&rest[..open]);
        words.push(' ');
        let tag = &rest[open..];
        let skipped = ["script", "style"].iter().find_map(|name| {
            let begins = tag.get(1..=name.len())?.eq_ignore_ascii_case(name);
            begins.then(|| tag.find(&format!("</{name}")).unwrap_or(tag.len()))
        });
        let tag = &tag[skipped.unwrap_or(0)..];
        rest = tag.find('>').map_or("", |close| &tag[close + 1..]);
    }
    words.push_str(rest);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, expected: Says, message: &str) {
        let error = ProviderError::of_body(body.as_bytes());
        assert_eq!(error.says(status), expected, "{status} {body}");
        assert!(error.message.contains(message), "{:?} lacks {message:?}", error.message);
    }

    #[test]
    fn each_shape_of_error_body_keeps_its_words() {
        for body in [
            r#"{"error":{"message":"no luck","type":"t","param":null,"code":null}}"#,
            r#"{"error":"no luck","status":402}"#,
            r#"[{"error":{"message":"no luck","status":"INVALID_ARGUMENT"}}]"#,
            r#"{"error":[{"message":"no luck"}]}"#,
            r#"{"object":"error","message":"no luck","code":400}"#,
            r#"{"detail":"no luck"}"#,
            r#"{"detail":[{"loc":["body"],"msg":"no luck"}]}"#,
            r#"{"error":{"error":{"message":"no luck"}}}"#,
            r#"{"error_description":"no luck","error":null}"#,
            r#""no luck""#,
            "no luck",
            "<html><style>p{}</style><body><h1>no luck</h1></body></html>",
        ] {
            check(400, body, Says::Nothing, "no luck");
        }
        for body in ["", "null", "{}", "[]", "7", "<", "<script>"] {
            assert_eq!(ProviderError::of_body(body.as_bytes()).message.trim(), "", "{body}");
        }
        let page = ProviderError::of_body(b"<p>a<script>evil()</script>b<br>c");
        assert_eq!(page.message.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn a_full_window_is_recognised_in_every_wording() {
        for (status, body) in [
            (400, r#"{"error":{"code":"context_length_exceeded","message":"too many tokens"}}"#),
            (
                400,
                r#"{"error":{"code":400,"message":"request (9120 tokens) exceeds the available context size (8192 tokens)","type":"exceed_context_size_error"}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"Prompt contains 140000 tokens, too large for model with 131072 maximum context length","type":"invalid_request_error","code":null}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000"}}"#,
            ),
            (413, r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#),
            (
                429,
                r#"{"error":{"message":"Request too large for model in organization: Limit 30000, Requested 41000","type":"tokens","code":"rate_limit_exceeded"}}"#,
            ),
        ] {
            check(status, body, Says::ContextLength, "");
        }
        check(500, r#"{"error":"context length lost in a crash"}"#, Says::Nothing, "crash");
        check(429, r#"{"error":{"message":"slow down: context window busy"}}"#, Says::Nothing, "");
    }

    #[test]
    fn codes_decide_and_words_only_where_there_are_none() {
        check(429, r#"{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}"#, Says::OutOfQuota, "quota");
        check(429, r#"{"error":{"message":"INSUFFICIENT QUOTA for this minute","code":"rate_limit_exceeded"}}"#, Says::Nothing, "");
        check(400, r#"{"error":{"message":"Failed to call a function.","code":"tool_use_failed"}}"#, Says::Mistake, "");
        check(400, r#"{"error":{"message":"The response was filtered due to content management policy"}}"#, Says::ContentPolicy, "");
        check(404, r#"{"error":"model 'm' not found, try pulling it first"}"#, Says::Incapable, "not found");
        check(404, "<h1>Not Found</h1>", Says::Nothing, "Not Found");
        check(500, r#"{"error":"error parsing tool call: raw='{}]'"}"#, Says::Nothing, "parsing");
        check(
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}"#,
            Says::OutOfQuota,
            "credit",
        );
        check(
            400,
            r#"{"error":{"message":"Invalid prompt: flagged under our usage policy.","code":"invalid_prompt"}}"#,
            Says::ContentPolicy,
            "",
        );
        check(404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: m-9"}}"#, Says::Incapable, "m-9");
        check(503, r#"{"code":"SATURATED","error":{"code":"server_overloaded","message":"full"}}"#, Says::Shedding, "full");
    }

    #[test]
    fn an_error_inside_a_success_says_its_status_by_number_or_by_code() {
        let status = |body: &str| ProviderError::of_body(body.as_bytes()).status_of(200);
        assert_eq!(status(r#"{"error":{"code":429,"message":"x"}}"#), Some(429));
        assert_eq!(status(r#"{"error":{"code":"502"}}"#), Some(502));
        assert_eq!(status(r#"{"error":{"type":"overloaded_error"}}"#), Some(503));
        assert_eq!(status(r#"{"type":"error","code":"server_is_overloaded"}"#), Some(503));
        assert_eq!(status(r#"{"type":"error","error":{"type":"billing_error"}}"#), Some(402));
        assert_eq!(status(r#"{"type":"error","error":{"type":"request_too_large"}}"#), Some(413));
        assert_eq!(status(r#"{"type":"error","error":{"type":"timeout_error"}}"#), Some(504));
        assert_eq!(status(r#"{"error":{"code":null,"message":"x"}}"#), None);
        assert_eq!(status(r#"{"error":{"code":200}}"#), None);
        assert_eq!(ProviderError::of_body(br#"{"error":{"code":401}}"#).status_of(500), Some(500), "the answer's own status counts");
    }

    #[test]
    fn headers_in_the_body_are_found() {
        let error =
            ProviderError::of_body(br#"{"error":{"code":429,"metadata":{"headers":{"X-N":5,"X-RateLimit-Reset":"1741305600000"}}}}"#);
        assert_eq!(error.headers, [("x-n".into(), "5".into()), ("x-ratelimit-reset".into(), "1741305600000".into())]);
    }
}

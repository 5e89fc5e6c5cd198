//! The header `Idempotency-Key`, and what a request has to have in common with another one to be the same.

use std::sync::Arc;

use ambit_core::limit::IDEMPOTENCY_KEY_CHARS_MAX;
use ambit_core::session::Principal;
use ambit_orchestrator::{IdempotencyKey, digest_of};
use ambit_tool_executor::canonical;
use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::http::problem::{FieldError, Problem};

/// Name of the header, and what errors point at.
const HEADER: &str = "idempotency-key";

/// The key of a request, if it has one: bare, or quoted as a string of RFC 8941.
///
/// # Errors
/// 400 for more than one header, and for what is not 1 to 255 printable characters.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<Arc<str>>, Problem> {
    let wrong = |detail: &str| Problem::invalid(vec![FieldError { detail: detail.into(), pointer: HEADER.into() }]);
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(wrong("more than one key; send one"));
    }
    let printable = |text: &&str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let text = value.to_str().ok().filter(printable).ok_or_else(|| wrong("expected printable ASCII characters"))?;
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted).ok_or_else(|| wrong("the quotes are not closed, or something follows them"))?,
        None => text.to_owned(),
    };
    if key.is_empty() || key.len() > IDEMPOTENCY_KEY_CHARS_MAX {
        return Err(wrong(&format!("expected 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters, got {}", key.len())));
    }
    Ok(Some(key.into()))
}

/// What stands between quotes, from behind the first one.
fn unquoted(text: &str) -> Option<String> {
    let mut key = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(key),
            '\\' => key.push(chars.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
            plain => key.push(plain),
        }
    }
}

/// The key together with the digest of what is asked for: the agent, the body as a value, and who asks. When and how the
/// request came is not in it.
pub(crate) fn named(key: Arc<str>, agent: &str, body: &Value, principal: &Principal) -> IdempotencyKey {
    let asked = json!({"agent": agent, "body": body, "principal": &*principal.id, "tenant": &*principal.tenant});
    IdempotencyKey { key, hash: digest_of(&canonical(&asked)) }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(values: &[&str], expected: Option<Option<&str>>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let got = key_of(&headers).ok();
        assert_eq!(got.as_ref().map(Option::as_deref), expected, "{values:?}");
    }

    #[test]
    fn a_key_is_read_bare_and_quoted() {
        check(&[], Some(None));
        check(&["k-1"], Some(Some("k-1")));
        check(&["\"k-1\""], Some(Some("k-1")));
        check(&[r#""a\"b\\c""#], Some(Some(r#"a"b\c"#)));
        check(&["a b"], Some(Some("a b")));
        let longest = "x".repeat(255);
        check(&[&longest], Some(Some(&longest)));
        check(&[&format!("\"{longest}\"")], Some(Some(&longest)));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        check(&["a", "a"], None);
        check(&[""], None);
        check(&["\"\""], None);
        check(&["\"open"], None);
        check(&["\"a\" b"], None);
        check(&[r#""a\n""#], None);
        check(&["grüße"], None);
        check(&["a\tb"], None);
        check(&[&"x".repeat(256)], None);
    }

    #[test]
    fn equal_requests_have_equal_hashes_however_they_are_written() {
        let who = |id: &str| Principal { id: id.into(), tenant: "t".into(), roles: Vec::new() };
        let hash = |text: &str, agent: &str, id: &str| named("k".into(), agent, &serde_json::from_str(text).unwrap(), &who(id)).hash;
        let one = hash(r#"{"agent": "a", "input": "x", "n": 1}"#, "a", "p");
        assert_eq!(hash(r#"{"n":1.0, "input":"\u0078","agent":"a"}"#, "a", "p"), one);
        assert_ne!(hash(r#"{"agent": "a", "input": "y", "n": 1}"#, "a", "p"), one);
        assert_ne!(hash(r#"{"agent": "a", "input": "x", "n": 1}"#, "a", "q"), one);
    }
}

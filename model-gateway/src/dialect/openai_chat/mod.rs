//! Dialect `openai_chat`: chat completions as OpenAI defined them and most servers speak them.
//!
//! Our own thin client: one request out, one answer read leniently, plain or as a stream, whichever came. Nothing is
//! retried here, no redirect is followed, no proxy is taken from the environment. **Invariants:** every wait has a bound
//! (the policy's timers, the time between two pieces, and short patience at both ends of a stream), every body is
//! bounded in bytes, and neither keys nor bodies reach a log.

mod assemble;
mod encode;
mod fail;
mod read;
mod refusal;
mod sse;
mod wire;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use self::encode::OutputMember;
use self::sse::Bounds;
use crate::dialect::{Answer, Ask};
use crate::error::GatewayError;
use crate::options::{OpenAiChatOptions, Streaming, TargetOptions};
use crate::stage::LegStage;
use crate::wall::WallClock;

use ambit_resilience::Failure;

/// The absolute point in time by which an answer is still of use, RFC 3339 in UTC.
const DEADLINE: HeaderName = HeaderName::from_static("x-request-deadline");
/// The same as a length, milliseconds.
const TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");
/// Shortest header value that is taken for a secret, bytes: shorter ones are words.
const SECRET_MIN: usize = 4;
/// Hosts that refuse `max_tokens` for their newer models.
const COMPLETION_TOKENS_HOSTS: [&str; 2] = ["openai.com", "openai.azure.com"];

/// One provider.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    places: Vec<Place>,
    /// Whose turn it is.
    next: AtomicUsize,
    headers: HeaderMap,
    /// What of the headers must never be quoted back.
    secrets: Vec<SecretString>,
    streaming: Streaming,
    bounds: Bounds,
    chunk: Duration,
    clock: WallClock,
}

/// One address of a provider.
#[derive(Debug)]
struct Place {
    url: Url,
    output: OutputMember,
}

impl Client {
    pub(crate) fn new(
        target: &TargetOptions,
        options: &OpenAiChatOptions,
        http: reqwest::Client,
        clock: WallClock,
    ) -> Result<Self, GatewayError> {
        let setting = |setting, reason: String| GatewayError::Setting { target: target.name.to_string(), setting, reason };
        if options.base_urls.is_empty() {
            return Err(setting("base_url", "is empty: at least one address is needed".to_owned()));
        }
        let places =
            options.base_urls.iter().map(|base| place(base).map_err(|reason| setting("base_url", reason))).collect::<Result<_, _>>()?;
        for (name, bytes) in [("sse_line", options.sse_line), ("response", options.response)] {
            if bytes == 0 {
                return Err(setting(name, "is 0: no answer would fit".to_owned()));
            }
        }
        Ok(Self {
            http,
            places,
            next: AtomicUsize::new(0),
            headers: headers(options).map_err(|(name, reason)| setting(name, reason))?,
            secrets: options.api_key.iter().chain(options.headers.iter().map(|(_, value)| value)).cloned().collect(),
            streaming: options.streaming,
            bounds: Bounds { line_max: options.sse_line, total_max: options.response },
            chunk: target.chunk,
            clock,
        })
    }

    /// Sends one request and reads its answer, whichever form it has.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn ask(&self, ask: &Ask<'_>, leg: &LegStage<'_>) -> Result<Answer, Failure> {
        let response = self.send(ask, leg).await?;
        leg.status(response.status().as_u16());
        if response.status().is_success() {
            read::answer(self, ask, leg, response).await
        } else {
            Err(fail::of_response(self, leg, response).await)
        }
    }

    /// A provider's words without our secrets, should it quote them.
    fn without_secrets(&self, words: &str) -> String {
        let secrets = self.secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| secret.len() >= SECRET_MIN);
        secrets.fold(words.to_owned(), |words, secret| words.replace(secret, "***"))
    }

    async fn send(&self, ask: &Ask<'_>, leg: &LegStage<'_>) -> Result<Response, Failure> {
        let place = &self.places[self.next.fetch_add(1, Ordering::Relaxed) % self.places.len()];
        let stream = self.streaming == Streaming::Always || leg.is_heard();
        let body = encode::body(ask, stream, place.output);
        let mut headers = self.headers.clone();
        leg.trace(&mut headers);
        let mut request = self.http.post(place.url.clone()).headers(headers).body(body);
        // The policy has kept the margin for the way back out of it already.
        let end = leg.end_by();
        let left = end.saturating_duration_since(Instant::now());
        request = request.header(TIMEOUT_MS, HeaderValue::from(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
        if let Some(deadline) = self.clock.rfc3339(end) {
            request = request.header(DEADLINE, deadline);
        }
        request.send().await.map_err(|error| fail::of_transport(leg, error, &place.url))
    }
}

fn place(base: &str) -> Result<Place, String> {
    let base = base.trim_end_matches('/');
    let url = Url::parse(&format!("{base}/chat/completions"))
        .map_err(|error| format!("is no address ({error}); expected one like `https://host/v1`"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("is no http or https address; expected one like `https://host/v1`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds credentials; they belong in `api_key` or `headers`".to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    let is_of = |domain: &&str| host == *domain || host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'));
    let output = if COMPLETION_TOKENS_HOSTS.iter().any(is_of) { OutputMember::MaxCompletionTokens } else { OutputMember::MaxTokens };
    Ok(Place { url, output })
}

/// Headers that every request has. Values of others are secrets: marked, so that nothing prints them.
pub(crate) fn headers(options: &OpenAiChatOptions) -> Result<HeaderMap, (&'static str, String)> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    if let Some(key) = &options.api_key {
        let bearer = format!("Bearer {}", key.expose_secret());
        let mut value = HeaderValue::try_from(bearer).map_err(|_| ("api_key", "holds characters that no header may hold".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in &options.headers {
        let invalid = |what: &str| ("headers", format!("holds an invalid {what} for `{name}`"));
        let header = HeaderName::try_from(name.as_str()).map_err(|_| invalid("name"))?;
        let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| invalid("value"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_or_refused() {
        let check = |base: &str, expected: Result<(&str, OutputMember), &str>| match (place(base), expected) {
            (Ok(place), Ok((url, output))) => assert_eq!((place.url.as_str(), place.output), (url, output), "{base}"),
            (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{base}: {reason}"),
            (place, expected) => panic!("{base}: {place:?} for {expected:?}"),
        };
        check("http://127.0.0.1:9/v1/", Ok(("http://127.0.0.1:9/v1/chat/completions", OutputMember::MaxTokens)));
        check("https://api.openai.com/v1", Ok(("https://api.openai.com/v1/chat/completions", OutputMember::MaxCompletionTokens)));
        check(
            "https://x.openai.azure.com/openai/v1",
            Ok(("https://x.openai.azure.com/openai/v1/chat/completions", OutputMember::MaxCompletionTokens)),
        );
        check("https://notopenai.com", Ok(("https://notopenai.com/chat/completions", OutputMember::MaxTokens)));
        check("localhost:9", Err("no http or https address"));
        check("//host", Err("no address"));
        check("ftp://host", Err("no http or https address"));
        check("https://me:secret@host", Err("credentials"));
    }
}

//! What the dialects that are spoken over HTTP share: one request out, one answer read leniently, plain or as a stream,
//! whichever came.
//!
//! Nothing is retried here, no redirect is followed, no proxy is taken from the environment. **Invariants:** every wait has
//! a bound (the policy's timers, the time between two pieces, and short patience at both ends of a stream), every body is
//! bounded in bytes, and neither keys nor bodies reach a log.

mod fail;
mod lenient;
mod name;
mod read;
mod refusal;
mod sse;

pub(crate) use lenient::{Count, Json, Text};
pub(crate) use name::tool_name;
pub(crate) use read::{Assembly, Brought, NoTurn, is_error};

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ambit_resilience::Failure;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use self::sse::Bounds;
use crate::dialect::{Answer, Ask};
use crate::error::GatewayError;
use crate::options::{ProviderOptions, Streaming, TargetOptions};
use crate::stage::LegStage;
use crate::wall::WallClock;

/// The absolute point in time by which an answer is still of use, RFC 3339 in UTC.
const DEADLINE: HeaderName = HeaderName::from_static("x-request-deadline");
/// The same as a length, milliseconds.
const TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");
/// Shortest header value that is taken for a secret, bytes: shorter ones are words.
const SECRET_MIN: usize = 4;

/// What all requests of one dialect have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    /// What follows the base URL.
    pub(crate) path: &'static str,
    /// Where the key goes.
    pub(crate) key: Key,
    /// Headers of every request; configured ones replace them.
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

/// Where the key of a provider goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key {
    /// Into `authorization`, as a bearer token.
    Bearer,
    /// Into a header of this name, as it is.
    Header(&'static str),
}

/// One provider.
#[derive(Debug)]
pub(crate) struct Provider {
    http: reqwest::Client,
    path: &'static str,
    places: Vec<Url>,
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

impl Provider {
    pub(crate) fn new(
        target: &TargetOptions,
        options: &ProviderOptions,
        protocol: Protocol,
        http: reqwest::Client,
        clock: WallClock,
    ) -> Result<Self, GatewayError> {
        let setting = |setting, reason: String| GatewayError::Setting { target: target.name.to_string(), setting, reason };
        if options.base_urls.is_empty() {
            return Err(setting("base_url", "is empty: at least one address is needed".to_owned()));
        }
        let places = options.base_urls.iter().map(|base| place(base, protocol.path).map_err(|reason| setting("base_url", reason)));
        let places = places.collect::<Result<_, _>>()?;
        for (name, bytes) in [("sse_line", options.sse_line), ("response", options.response)] {
            if bytes == 0 {
                return Err(setting(name, "is 0: no answer would fit".to_owned()));
            }
        }
        Ok(Self {
            http,
            path: protocol.path,
            places,
            next: AtomicUsize::new(0),
            headers: headers(options, protocol).map_err(|(name, reason)| setting(name, reason))?,
            secrets: options.api_key.iter().chain(options.headers.iter().map(|(_, value)| value)).cloned().collect(),
            streaming: options.streaming,
            bounds: Bounds { line_max: options.sse_line, total_max: options.response },
            chunk: target.chunk,
            clock,
        })
    }

    /// Sends one request and reads its answer, whichever form it has. `body` is told where the request goes and whether
    /// the answer is wanted as a stream.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn ask<A: Assembly>(
        &self,
        ask: &Ask<'_>,
        leg: &LegStage<'_>,
        body: impl FnOnce(&Url, bool) -> Vec<u8>,
    ) -> Result<Answer, Failure> {
        let response = self.send(leg, body).await?;
        leg.status(response.status().as_u16());
        if response.status().is_success() {
            read::answer::<A>(self, ask, leg, response).await
        } else {
            Err(fail::of_response(self, leg, response).await)
        }
    }

    /// A provider's words without our secrets, should it quote them.
    fn without_secrets(&self, words: &str) -> String {
        let secrets = self.secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| secret.len() >= SECRET_MIN);
        secrets.fold(words.to_owned(), |words, secret| words.replace(secret, "***"))
    }

    async fn send(&self, leg: &LegStage<'_>, body: impl FnOnce(&Url, bool) -> Vec<u8>) -> Result<Response, Failure> {
        let place = &self.places[self.next.fetch_add(1, Ordering::Relaxed) % self.places.len()];
        let stream = self.streaming == Streaming::Always || leg.is_heard();
        let body = body(place, stream);
        let mut headers = self.headers.clone();
        leg.trace(&mut headers);
        let mut request = self.http.post(place.clone()).headers(headers).body(body);
        // The policy has kept the margin for the way back out of it already.
        let end = leg.end_by();
        let left = end.saturating_duration_since(Instant::now());
        request = request.header(TIMEOUT_MS, HeaderValue::from(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
        if let Some(deadline) = self.clock.rfc3339(end) {
            request = request.header(DEADLINE, deadline);
        }
        request.send().await.map_err(|error| fail::of_transport(leg, error, place))
    }
}

fn place(base: &str, path: &str) -> Result<Url, String> {
    let base = base.trim_end_matches('/');
    let url =
        Url::parse(&format!("{base}/{path}")).map_err(|error| format!("is no address ({error}); expected one like `https://host/v1`"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("is no http or https address; expected one like `https://host/v1`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds credentials; they belong in `api_key` or `headers`".to_owned());
    }
    Ok(url)
}

/// Headers that every request has. Values of others are secrets: marked, so that nothing prints them.
pub(crate) fn headers(options: &ProviderOptions, protocol: Protocol) -> Result<HeaderMap, (&'static str, String)> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    for (name, value) in protocol.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = &options.api_key {
        let (name, value) = match protocol.key {
            Key::Bearer => (AUTHORIZATION, format!("Bearer {}", key.expose_secret())),
            Key::Header(name) => (HeaderName::from_static(name), key.expose_secret().to_owned()),
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| ("api_key", "holds characters that no header may hold".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
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
        let check = |base: &str, expected: Result<&str, &str>| match (place(base, "messages"), expected) {
            (Ok(place), Ok(url)) => assert_eq!(place.as_str(), url, "{base}"),
            (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{base}: {reason}"),
            (place, expected) => panic!("{base}: {place:?} for {expected:?}"),
        };
        check("http://127.0.0.1:9/v1/", Ok("http://127.0.0.1:9/v1/messages"));
        check("https://api.anthropic.com/v1", Ok("https://api.anthropic.com/v1/messages"));
        check("localhost:9", Err("no http or https address"));
        check("//host", Err("no address"));
        check("ftp://host", Err("no http or https address"));
        check("https://me:secret@host", Err("credentials"));
    }
}

//! What every request passes first: its id, the Host check, counting, and the headers that every answer carries.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambit_core::trace::TraceParent;
use ambit_orchestrator::wall_ms;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::time::Instant;
use tracing::error;

use crate::http::deadline::HeaderDeadline;
use crate::http::problem::{Code, IsProblem, Problem};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{self, Place, Traces};

/// Longest request id taken over from a caller.
const REQUEST_ID_MAX: usize = 128;
/// Largest problem body that gets its request id: far above what problems are.
const PROBLEM_BYTES_MAX: usize = 1 << 20;

/// When a request's head arrived: its deadline runs from here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) wall_ms: u64,
    /// Where in a distributed trace.
    pub(crate) place: Place,
}

/// What the outermost layer needs, also before anything else is there.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Traces,
    /// Where the API listens.
    pub(crate) address: SocketAddr,
    pub(crate) rng: Arc<Mutex<StdRng>>,
}

impl Front {
    fn next_request_id(&self) -> String {
        let number: u128 = self.rng.lock().unwrap_or_else(PoisonError::into_inner).random();
        format!("req_{number:032x}")
    }

    /// True for the origin that this process serves itself.
    fn is_own(&self, origin: &str) -> bool {
        origin == self.address.to_string() || origin == format!("localhost:{}", self.address.port())
    }
}

/// Routes that are asked every few seconds by machines: their spans would tell nobody anything.
const UNTRACED: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// The outermost layer of both listeners.
pub(crate) async fn front(State(api): State<Front>, mut request: Request, next: Next) -> Response {
    let (place, traceparent) = place(&request, &api);
    let arrival = Arrival { at: Instant::now(), wall_ms: wall_ms(), place };
    let id = request_id(&request, &api);
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    let span = if UNTRACED.contains(&&*route) { None } else { api.traces.serve(place, request.method().as_str(), &route) };
    request.extensions_mut().insert(arrival);
    let response = match host_refused(&request, &api) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    };
    let mut response = with_request_id(response, &id).await;
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-request-id"), id);
    if let Ok(traceparent) = HeaderValue::try_from(traceparent.to_string()) {
        headers.insert(HeaderName::from_static("traceparent"), traceparent);
    }
    headers.insert(HeaderName::from_static("ambit-version"), HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    api.metrics.http(&route, response.status().as_u16(), arrival.at.elapsed());
    match span {
        Some(span) => {
            let status = response.status().as_u16();
            response.map(|body| span.answered(status, body))
        }
        None => response,
    }
}

/// Where the request stands in a trace, and what its answer says about that. Baggage is not even looked at.
fn place(request: &Request, api: &Front) -> (Place, TraceParent) {
    let caller = traces::caller(request.headers());
    let mut dice = api.rng.lock().unwrap_or_else(PoisonError::into_inner);
    let place = api.traces.arrive(caller, &mut *dice);
    (place, place.answered(&mut *dice))
}

/// The caller's id if it is printable and short, else a new one.
fn request_id(request: &Request, api: &Front) -> HeaderValue {
    let given = request.headers().get("x-request-id").filter(|id| {
        let text = id.as_bytes();
        !text.is_empty() && text.len() <= REQUEST_ID_MAX && text.iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| HeaderValue::from_str(&api.next_request_id()).unwrap_or_else(|_| HeaderValue::from_static("req")))
}

/// Without authentication only loopback is served, and then only under a loopback name: a web page that resolves its
/// own name to this machine must not reach it.
fn host_refused(request: &Request, api: &Front) -> Option<Problem> {
    let forbidden = |detail: String| Some(Problem::new(Code::Forbidden, detail));
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| request.headers().get(header::HOST).and_then(|host| host.to_str().ok()));
    let Some(host) = host.filter(|_| hosts <= 1) else {
        return forbidden("exactly one Host header is needed".into());
    };
    if !is_loopback_name(host) {
        return forbidden("the Host must be a loopback name (localhost, 127.0.0.1, [::1]) while there is no authentication".into());
    }
    let origin = request.headers().get(header::ORIGIN)?;
    let own = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://")).is_some_and(|origin| api.is_own(origin));
    if own { None } else { forbidden("requests from web pages of other origins are refused while there is no authentication".into()) }
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => return rest.split_once(']').is_some_and(|(address, port)| address == "::1" && is_port(port)),
        None => host.split_once(':').map_or(host, |(name, port)| if is_port(&format!(":{port}")) { name } else { "" }),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Puts the request id into a problem's body, so that whoever sees only the body can quote it.
async fn with_request_id(response: Response, id: &HeaderValue) -> Response {
    let Some(IsProblem { behind }) = response.extensions().get::<IsProblem>() else { return response };
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        error!(request_id = id.to_str().unwrap_or_default(), behind, "answered with INTERNAL");
    }
    let (mut parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let mut problem: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes).unwrap_or_default();
    problem.insert("request_id".into(), id.to_str().unwrap_or_default().into());
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(serde_json::to_vec(&problem).unwrap_or_default()))
}

/// Until when a request's body is read: as long as the whole request may take, or its caller waits.
pub(crate) fn body_time(arrival: Arrival, request: Duration, caller: Option<HeaderDeadline>) -> Instant {
    arrival.at + caller.map_or(request, |caller| request.min(Duration::from_millis(caller.ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_pass() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:8080"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com:80",
            "10.0.0.1",
            "[::2]",
            "localhost:x",
            "127.0.0.1:99999",
            "[::1]x",
        ] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }
}

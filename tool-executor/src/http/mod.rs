//! HTTP tools: one request made of a template and arguments, and what became of it.
//!
//! One client for all of them, without its own retries, redirects, proxies from the environment or decompression:
//! each of these would send something, or hold something in memory, that nobody has bounded or judged.

mod answer;
pub(crate) mod net;

use std::sync::Arc;

use ambit_core::ToolCode;
use ambit_core::signal::{Address, Peer, Timer};
use ambit_resilience::{Failure, Leg, Outcome};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, Method};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use self::net::{Guard, Resolver, blocked_by};
use crate::error::ExecutorError;
use crate::fault::{Answer, Departure, Fault};
use crate::options::{HttpOptions, HttpToolOptions};
use crate::prepare::json::Json;
use crate::prepare::schema::{is_required, loose, property};
use crate::prepare::template::{Misfit, Template};
use crate::wall;

/// Redirects that one attempt follows; each is judged like the first address.
const REDIRECTS_MAX: u32 = 5;
/// Unused connections that are kept for one host.
const POOL_PER_HOST_MAX: usize = 256;

/// How requests of tools go out. Shared by all.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) client: reqwest::Client,
    pub(crate) guard: Arc<Guard>,
    pub(crate) body_max: usize,
}

/// One HTTP request as a tool.
#[derive(Debug)]
pub(crate) struct HttpTool {
    method: Method,
    template: Template,
    places: Vec<String>,
    headers: HeaderMap,
    key_header: Option<HeaderName>,
}

impl Http {
    pub(crate) fn new(options: &HttpOptions) -> Result<Self, ExecutorError> {
        let guard = Arc::new(Guard::new(options.allow.clone(), options.hosts.clone()));
        let client = reqwest::Client::builder()
            .dns_resolver(Arc::new(Resolver(Arc::clone(&guard))))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .connect_timeout(options.connect)
            .pool_idle_timeout(options.idle)
            .pool_max_idle_per_host(POOL_PER_HOST_MAX)
            .tcp_nodelay(true)
            .user_agent(concat!("ambit/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(ExecutorError::Client)?;
        Ok(Self { client, guard, body_max: options.tool_body.get() })
    }

    /// Sends one attempt and reads its answer, following redirects where they may lead.
    pub(crate) async fn send(
        &self,
        tool: &HttpTool,
        members: &[(String, Json)],
        key: Option<&str>,
        trace_state: Option<&str>,
        leg: Leg<'_>,
        departure: &Departure<'_>,
    ) -> Result<Answer, Fault> {
        // Everything is built anew for each attempt.
        let url = tool.url(members).map_err(|misfit| Fault::refused(ToolCode::InvalidArguments, misfit.reason))?;
        let mut next = Next { method: tool.method.clone(), body: tool.body(members), url };
        let own = (next.url.origin(), tool.template.host());
        for hop in 0..=REDIRECTS_MAX {
            self.guard.check(&next.url, own.1).map_err(|blocked| blocked_at(hop, Fault::refused(ToolCode::Blocked, blocked.0)))?;
            let mut request = tool.request(&next, next.url.origin() == own.0, key, &leg)?;
            trace(request.headers_mut(), &leg, trace_state);
            departure.leave().await?;
            let response = match self.client.execute(request).await {
                Ok(response) => response,
                Err(error) => {
                    let fault = not_answered(&error);
                    if !fault.failure.is_fate_unknown() {
                        departure.settle();
                    }
                    return Err(blocked_at(hop, fault));
                }
            };
            leg.status(response.status().as_u16());
            match redirected(&next, &response) {
                None => {
                    leg.first_token();
                    return answer::read(response, self.body_max, departure).await;
                }
                Some(target) => {
                    // 307 and 308 say that nothing was done here; after the others a write may have been.
                    if target.method == next.method {
                        departure.settle();
                    }
                    next = target;
                }
            }
        }
        Err(Fault::new(Failure::new(Outcome::status(302)).with_code("too_many_redirects"))
            .with_detail(format!("more than {REDIRECTS_MAX} redirects")))
    }
}

/// A refusal of ours after the first request is an attempt all the same: something was sent, and it counts.
fn blocked_at(hop: u32, fault: Fault) -> Fault {
    if hop == 0 || !fault.failure.class.row.is_refusal() {
        return fault;
    }
    Fault { failure: Failure::new(Outcome::status(302)).with_code("blocked_redirect"), ..fault }
}

/// The request to make next.
struct Next {
    method: Method,
    url: Url,
    body: Option<String>,
}

impl HttpTool {
    /// Takes the options apart, or says why the tool cannot be used.
    pub(crate) fn new(options: &HttpToolOptions, http: &Http) -> Result<Self, String> {
        let method = match options.method.as_str() {
            "GET" => Method::GET,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            other => return Err(format!("its method `{other}` is none of GET, POST, PUT, PATCH and DELETE")),
        };
        let template = Template::parse(&options.url)?;
        for place in template.places() {
            let Some(schema) = property(&options.schema, place) else {
                return Err(format!("its url has the placeholder `{{{place}}}`, which its schema does not describe"));
            };
            if let Some(reason) = loose(schema) {
                return Err(format!("its url has the placeholder `{{{place}}}`, whose schema {reason}"));
            }
            if !is_required(&options.schema, place) {
                return Err(format!("its url has the placeholder `{{{place}}}`, which its schema does not require"));
            }
        }
        let own = Url::parse(&format!("http://{}", template.host())).map_err(|_| "its url has no valid host")?;
        http.guard.check(&own, template.host()).map_err(|blocked| format!("{blocked}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let (name, value) = header(name, value)?;
            headers.append(name, value);
        }
        let key_header = options
            .key_header
            .as_deref()
            .map(|name| HeaderName::try_from(name).map_err(|_| format!("`{name}` is no name of a header")))
            .transpose()?;
        let places = template.places().into_iter().map(str::to_owned).collect();
        Ok(Self { method, template, places, headers, key_header })
    }

    /// What spans of its requests say about it. A query may hold secrets and is left out.
    pub(crate) fn peer(&self) -> Peer {
        let (method, path) = (self.method.as_str().into(), self.template.path().into());
        Peer::Http { method, path, address: address(self.template.origin()) }
    }

    /// True if the other side honours a key.
    pub(crate) const fn is_keyed(&self) -> bool {
        self.key_header.is_some()
    }

    /// The address for these arguments.
    pub(crate) fn url(&self, members: &[(String, Json)]) -> Result<Url, Misfit> {
        let rest = if self.has_body() { Vec::new() } else { self.rest(members) };
        self.template.fill(members, &rest)
    }

    fn has_body(&self) -> bool {
        !matches!(self.method, Method::GET | Method::DELETE)
    }

    /// The arguments that fill no placeholder.
    fn rest<'a>(&self, members: &'a [(String, Json)]) -> Vec<&'a (String, Json)> {
        members.iter().filter(|(name, _)| !self.places.contains(name)).collect()
    }

    fn body(&self, members: &[(String, Json)]) -> Option<String> {
        self.has_body().then(|| Json::Object(self.rest(members).into_iter().cloned().collect()).to_text())
    }

    fn request(&self, next: &Next, is_own_origin: bool, key: Option<&str>, leg: &Leg<'_>) -> Result<reqwest::Request, Fault> {
        let mut request = reqwest::Request::new(next.method.clone(), next.url.clone());
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.1"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        tell_deadline(headers, leg.end_by);
        // What the operator trusts one origin with is not for another.
        if is_own_origin {
            headers.extend(self.headers.clone());
            if let (Some(name), Some(key)) = (&self.key_header, key) {
                let key = HeaderValue::from_str(key)
                    .map_err(|_| Fault::refused(ToolCode::NotAttempted, "the key of the call cannot be sent as a header"))?;
                headers.insert(name, key);
            }
        }
        if let Some(body) = &next.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.clone().into());
        }
        Ok(request)
    }
}

/// Host and port of an address.
pub(crate) fn address(url: &str) -> Option<Address> {
    let url = Url::parse(url).ok()?;
    Some(Address { host: url.host_str()?.into(), port: url.port_or_known_default() })
}

/// A configured header as it is sent; its value never shows in a log.
pub(crate) fn header(name: &str, value: &SecretString) -> Result<(HeaderName, HeaderValue), String> {
    let known = HeaderName::try_from(name).map_err(|_| format!("`{name}` is no name of a header"))?;
    let mut value =
        HeaderValue::from_str(value.expose_secret()).map_err(|_| format!("the header `{name}` has a value that cannot be sent"))?;
    value.set_sensitive(true);
    Ok((known, value))
}

/// Says where this request stands in a distributed trace. Baggage goes to nobody.
fn trace(headers: &mut HeaderMap, leg: &Leg<'_>, state: Option<&str>) {
    let Some(parent) = leg.trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok()) else { return };
    headers.insert(HeaderName::from_static("traceparent"), parent);
    if let Some(state) = state.and_then(|state| HeaderValue::try_from(state).ok()) {
        headers.insert(HeaderName::from_static("tracestate"), state);
    }
}

/// Says when the answer must be there: as a point in time, and as a length for those whose clock differs.
fn tell_deadline(headers: &mut HeaderMap, end_by: Instant) {
    let left = end_by.saturating_duration_since(Instant::now());
    let by = wall::now().checked_add(left).and_then(|by| HeaderValue::try_from(wall::utc_ms(by)).ok());
    if let Some(by) = by {
        headers.insert(HeaderName::from_static("x-request-deadline"), by);
    }
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    headers.insert(HeaderName::from_static("x-request-timeout-ms"), HeaderValue::from(millis));
}

/// Where an answer says to ask instead; `None` if it is the answer itself.
fn redirected(made: &Next, response: &reqwest::Response) -> Option<Next> {
    let keep = match response.status().as_u16() {
        301 | 302 => made.method != Method::POST,
        303 => made.method == Method::GET,
        307 | 308 => true,
        _ => return None,
    };
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let mut url = made.url.join(location).ok()?;
    url.set_fragment(None);
    let (method, body) = if keep { (made.method.clone(), made.body.clone()) } else { (Method::GET, None) };
    Some(Next { method, url, body })
}

/// What it means that a request has no answer.
pub(crate) fn not_answered(error: &reqwest::Error) -> Fault {
    if let Some(blocked) = blocked_by(error) {
        return Fault::refused(ToolCode::Blocked, blocked.0);
    }
    let failure = if error.is_connect() && error.is_timeout() {
        Failure::new(Outcome::timed_out(Timer::Connect))
    } else if error.is_connect() {
        Failure::new(Outcome::NeverArrived).with_code(if error.is_dns() { "dns" } else { "unreachable" })
    } else if error.is_builder() {
        return Fault::refused(ToolCode::NotAttempted, "the request cannot be built");
    } else {
        Failure::new(Outcome::Broken)
    };
    Fault::new(failure)
}

/// True if a schema describes an object; what an HTTP tool's arguments are.
pub(crate) fn describes_object(schema: &Value) -> bool {
    schema.get("type").is_none_or(|kind| kind == "object")
}

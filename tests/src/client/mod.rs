//! What a caller does over HTTP, with the checks that every answer must pass whatever it says.

mod metrics;
mod sse;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

pub use metrics::{Metrics, Sample};
pub use sse::{Event, Parser, SseReader, spelled};

use crate::process::Ambit;
use crate::within;

/// Terminal types of a session's stream.
pub const TERMINAL: [&str; 4] = ["session.completed", "session.incomplete", "session.failed", "session.cancelled"];

/// A client of one server. No retries, no proxy, no redirects.
#[derive(Debug, Clone)]
pub struct Api {
    http: Client,
    url: String,
    admin_url: String,
}

impl Api {
    /// A client of this server.
    #[must_use]
    pub fn of(ambit: &Ambit) -> Api {
        Api::at(ambit.url(), ambit.admin_url())
    }

    /// A client of these base URLs, without a slash at the end.
    ///
    /// # Panics
    /// When the HTTP client cannot be made.
    #[must_use]
    pub fn at(url: &str, admin_url: &str) -> Api {
        let builder = Client::builder().no_proxy().retry(reqwest::retry::never()).redirect(reqwest::redirect::Policy::none());
        Api { http: builder.build().expect("an HTTP client"), url: url.to_owned(), admin_url: admin_url.to_owned() }
    }

    /// A request to the API, to be changed and then given to [`Api::send`] or [`Api::stream`].
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// A `POST /v1/sessions` with this body.
    pub fn session(&self, body: &Value) -> RequestBuilder {
        self.request(Method::POST, "/v1/sessions").json(body)
    }

    /// Sends a request and reads the answer whole.
    ///
    /// # Panics
    /// When there is none within [`crate::WAIT_MAX`].
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        within("an answer", async {
            let response = request.send().await.expect("an HTTP answer");
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = response.bytes().await.expect("a whole body");
            Answer { status, headers, body: body.to_vec() }
        })
        .await
    }

    /// Runs a session to its verdict.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn run(&self, body: &Value) -> Answer {
        self.send(self.session(body)).await
    }

    /// Runs a session of this agent with this input, which must be answered with a session object.
    ///
    /// # Panics
    /// When it is not.
    pub async fn run_agent(&self, agent: &str, input: &str) -> Value {
        let answer = self.run(&serde_json::json!({"agent": agent, "input": input})).await;
        answer.assert_status(200).json()
    }

    /// Starts a session that streams.
    ///
    /// # Panics
    /// When there is no head of an answer within [`crate::WAIT_MAX`].
    pub async fn stream(&self, request: RequestBuilder) -> Streamed {
        let request = request.header("accept", "text/event-stream");
        let response = within("the head of a stream", request.send()).await.expect("an HTTP answer");
        Streamed { status: response.status().as_u16(), headers: response.headers().clone(), response }
    }

    /// `GET` on the API.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// `GET` on the admin listener.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn get_admin(&self, path: &str) -> Answer {
        self.send(self.request_admin(Method::GET, path)).await
    }

    /// A request to the admin listener.
    pub fn request_admin(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.admin_url))
    }

    /// `POST` without a body on the admin listener.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn post_admin(&self, path: &str) -> Answer {
        self.send(self.request_admin(Method::POST, path)).await
    }

    /// What `/metrics` says now.
    ///
    /// # Panics
    /// When it says nothing readable.
    pub async fn metrics(&self) -> Metrics {
        let answer = self.get_admin("/metrics").await;
        Metrics::parse(&answer.assert_status(200).text())
    }
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body as it came.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("the body of a {} is no JSON ({error}):\n{}", self.status, self.text()),
        }
    }

    /// A header, if it is there and text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Asserts the status.
    ///
    /// # Panics
    /// When it is another, with the body.
    pub fn assert_status(&self, status: u16) -> &Answer {
        assert!(self.status == status, "HTTP {status} was expected, not {}:\n{}", self.status, self.text());
        self
    }

    /// Asserts that this is a problem of this status and code in the form that API.md section 4 gives every error: media
    /// type, members, OpenAI's `error`, `x-should-retry` in agreement with `retryable`, Retry-After in agreement with
    /// `retry_after_ms`, ids in agreement with the headers. Returns the problem.
    ///
    /// # Panics
    /// When something is missing or in disagreement.
    pub fn assert_problem(&self, status: u16, code: &str) -> Value {
        let problem = self.assert_status(status).json();
        let wrong = |what: &str| panic!("{what} of the problem is wrong; headers {:?}, body {problem:#}", self.headers);
        let text = |key: &str| problem[key].as_str().unwrap_or_default();
        if self.header("content-type").and_then(|kind| kind.split(';').next()) != Some("application/problem+json") {
            wrong("the media type");
        }
        if problem["code"] != code || problem["status"] != status {
            wrong("code or status");
        }
        if text("type").rsplit('/').next() != Some(&code.to_lowercase().replace('_', "-")) || text("title").is_empty() {
            wrong("type or title");
        }
        if text("detail").is_empty() || problem["error"]["message"].as_str().unwrap_or_default().is_empty() {
            wrong("detail or OpenAI's message");
        }
        let retryable = problem["retryable"].as_bool().map(|yes| yes.to_string());
        if retryable.is_none() || self.header("x-should-retry") != retryable.as_deref() {
            wrong("x-should-retry or retryable");
        }
        if text("request_id").is_empty() || self.header("x-request-id") != Some(text("request_id")) {
            wrong("request id");
        }
        if let Some(told_ms) = problem["retry_after_ms"].as_u64() {
            let header = self.header("retry-after").and_then(|value| value.parse::<u64>().ok());
            if header != Some(told_ms.div_ceil(1000).min(60)) {
                wrong("Retry-After");
            }
        }
        problem
    }
}

/// The head of an answer whose body is still to come.
#[derive(Debug)]
pub struct Streamed {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    response: Response,
}

impl Streamed {
    /// Reads the body as events.
    ///
    /// # Panics
    /// When the answer is no event stream with status 200 and the headers that API.md section 6 asks for.
    pub async fn events(self) -> SseReader {
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if self.status != 200 {
            let text = within("the body of an error", self.response.text()).await.unwrap_or_default();
            panic!("a stream was expected, not HTTP {}:\n{text}", self.status);
        }
        assert_eq!(header("content-type").as_deref(), Some("text/event-stream; charset=utf-8"));
        assert_eq!(header("cache-control").as_deref(), Some("no-cache, no-transform"));
        assert_eq!(header("x-accel-buffering").as_deref(), Some("no"));
        SseReader::over(self.response)
    }

    /// Reads the body whole, for an answer that is no stream.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn whole(self) -> Answer {
        let body = within("a whole body", self.response.bytes()).await.expect("a whole body");
        Answer { status: self.status, headers: self.headers, body: body.to_vec() }
    }
}

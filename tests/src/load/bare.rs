//! The peers of the measurement of streams: a provider that says when it sent each token, and a bare pass-through in front of it,
//! axum and reqwest and nothing else, which is the practical limit of the machine.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// Path of chat completions.
const CHAT: &str = "/v1/chat/completions";

/// Microseconds since the first call in this process: what is told and what is read must come from the same process.
#[must_use]
pub fn micros() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A server on a free port of loopback; dropping it ends it.
#[derive(Debug)]
pub struct Served {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    task: JoinHandle<()>,
}

impl Served {
    async fn start(router: Router) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener"));
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("a server that goes on") });
        Served { url, task }
    }

    /// Serves until the process is ended.
    ///
    /// # Panics
    /// When the server fails.
    pub async fn forever(mut self) {
        (&mut self.task).await.expect("a server without a fault");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A provider whose answers are `tokens` tokens, one `every` so often; each is the time at which it is sent, in [`micros`].
///
/// # Panics
/// When no port can be had.
pub async fn provider(tokens: usize, every: Duration) -> Served {
    let answer = move || async move {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pieces = stream::unfold((0, ticks), move |(sent, mut ticks)| async move {
            if sent > tokens {
                return None;
            }
            ticks.tick().await;
            let piece = if sent < tokens { chunk(&json!({"content": format!("{} ", micros())}), None) } else { end() };
            Some((Ok::<_, Infallible>(Bytes::from(piece)), (sent + 1, ticks)))
        });
        events(Body::from_stream(pieces))
    };
    Served::start(Router::new().route(CHAT, post(answer))).await
}

fn chunk(delta: &serde_json::Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "created": 0, "choices": [choice]}))
}

fn end() -> String {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20});
    let usage = json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "created": 0, "choices": [], "usage": usage});
    format!("{}data: {usage}\n\ndata: [DONE]\n\n", chunk(&json!({}), Some("stop")))
}

/// Passes chat completions on to `upstream`, and each piece of the answer back as it comes.
///
/// # Panics
/// When no port can be had, or the client cannot be made.
pub async fn pass_through(upstream: &str) -> Served {
    let client = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
    let upstream: Arc<str> = format!("{upstream}{CHAT}").into();
    Served::start(Router::new().route(CHAT, post(pass)).with_state((client, upstream))).await
}

async fn pass(State((client, upstream)): State<(reqwest::Client, Arc<str>)>, body: Bytes) -> Response {
    let request = client.post(&*upstream).header("content-type", "application/json").body(body);
    match request.send().await {
        Ok(answer) => events(Body::from_stream(answer.bytes_stream().map(|piece| piece.map_err(std::io::Error::other)))),
        Err(_) => axum::http::StatusCode::BAD_GATEWAY.into_response(),
    }
}

fn events(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

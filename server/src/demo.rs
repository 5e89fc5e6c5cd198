//! The demo service: a small fleet to ask and to restart, on loopback, for the shipped profile's tools.
//!
//! It forgets everything when the process ends, but honours idempotency keys while it runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Services, with the version that each runs.
const SERVICES: [(&str, &str); 3] = [("web", "3.14.2"), ("payments", "2.8.0"), ("search", "1.22.5")];
/// Most restarts that are remembered by their key.
const KEYS_MAX: usize = 1_024;

#[derive(Clone)]
struct Fleet {
    started: Instant,
    restarts: Arc<Mutex<Restarts>>,
}

#[derive(Default)]
struct Restarts {
    count: BTreeMap<String, u64>,
    by_key: BTreeMap<String, Value>,
    last: BTreeMap<String, Instant>,
}

/// Starts the service; it ends with `stop`.
///
/// # Errors
/// If no loopback port can be had.
pub(crate) async fn start(tasks: &TaskTracker, stop: CancellationToken) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let fleet = Fleet { started: Instant::now(), restarts: Arc::default() };
    let router = Router::new()
        .route("/services/{service}/health", get(health))
        .route("/services/{service}/restart", post(restart))
        .with_state(fleet);
    tasks.spawn(async move {
        // It serves until it is told to stop; there is nothing to say about how it ended.
        let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    });
    Ok(address)
}

fn version(service: &str) -> Result<&'static str, Response> {
    SERVICES.iter().find(|(name, _)| *name == service).map(|(_, version)| *version).ok_or_else(|| {
        let known: Vec<&str> = SERVICES.iter().map(|(name, _)| *name).collect();
        (StatusCode::NOT_FOUND, Json(json!({"error": "no such service", "known": known}))).into_response()
    })
}

async fn health(State(fleet): State<Fleet>, Path(service): Path<String>) -> Result<Json<Value>, Response> {
    let version = version(&service)?;
    let restarts = fleet.restarts.lock().unwrap_or_else(PoisonError::into_inner);
    let since = restarts.last.get(&service).copied().unwrap_or(fleet.started);
    let count = restarts.count.get(&service).copied().unwrap_or(0);
    // `search` is the one with a story: slow since last week's change, until somebody restarts it.
    let status = if service == "search" && count == 0 { "degraded" } else { "healthy" };
    Ok(Json(json!({"service": service, "status": status, "version": version, "uptime_s": since.elapsed().as_secs(), "restarts": count})))
}

async fn restart(State(fleet): State<Fleet>, Path(service): Path<String>, headers: HeaderMap) -> Result<Json<Value>, Response> {
    version(&service)?;
    let mut restarts = fleet.restarts.lock().unwrap_or_else(PoisonError::into_inner);
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    if let Some(done) = key.as_ref().and_then(|key| restarts.by_key.get(key)) {
        return Ok(Json(done.clone()));
    }
    let count = restarts.count.entry(service.clone()).or_insert(0);
    *count += 1;
    let done = json!({"service": service, "restarted": true, "restarts": *count});
    restarts.last.insert(service, Instant::now());
    if let Some(key) = key {
        if restarts.by_key.len() >= KEYS_MAX {
            restarts.by_key.pop_first();
        }
        restarts.by_key.insert(key, done.clone());
    }
    Ok(Json(done))
}

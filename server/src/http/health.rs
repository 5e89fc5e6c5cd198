//! Liveness, readiness, version, metrics: what machines ask.

use std::collections::BTreeMap;
use std::time::Duration;

use ambit_orchestrator::wall_ms;
use ambit_store::Store;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::http::Api;
use crate::http::problem::{Code, Problem};
use crate::http::types::{Readiness, Version};

/// Longest that the store is waited for: a probe that takes longer says as much as one that fails.
const STORE_TIME: Duration = Duration::from_secs(1);
/// How long what was seen of the store holds; whoever asks more often costs it nothing.
const STORE_FRESH: Duration = Duration::from_secs(1);

/// Looks whether the store can be used, at most once a second.
#[derive(Default)]
pub(crate) struct StoreCheck(Mutex<Option<(Instant, Option<String>)>>);

impl StoreCheck {
    /// Why the store cannot be used, if it cannot. Takes at most [`STORE_TIME`], and as long again for who waits behind a look.
    pub(crate) async fn trouble(&self, store: &Store) -> Option<String> {
        let mut last = self.0.lock().await;
        if let Some((at, trouble)) = &*last
            && at.elapsed() < STORE_FRESH
        {
            return trouble.clone();
        }
        let trouble = match timeout(STORE_TIME, store.lease_until_ms()).await {
            Err(_) => Some(format!("the store does not answer within {} ms", STORE_TIME.as_millis())),
            Ok(Err(failed)) => Some(failed.to_string()),
            Ok(Ok(Some(until))) if until > wall_ms() => None,
            Ok(Ok(_)) => Some("the lease of this process could not be renewed: the journal cannot be written".to_owned()),
        };
        *last = Some((Instant::now(), trouble.clone()));
        trouble
    }
}

/// Whether the process runs at all; checks no dependency.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "It runs", body = String)))]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the process takes sessions: not yet while it starts, not while its store cannot be used, and not any more as soon
/// as it is asked to stop.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    params(("verbose" = Option<String>, Query, description = "Show each check")),
    responses((status = 200, description = "It does", body = Readiness), (status = 503, description = "It does not", body = Readiness)),
)]
pub(crate) async fn readyz(State(api): State<Api>, RawQuery(query): RawQuery) -> Response {
    let verbose = query.is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let draining = !api.orchestrator.is_ready();
    let store = api.orchestrator.store();
    let trouble = if draining { None } else { api.store.trouble(store).await };
    let ready = !draining && trouble.is_none();
    let checks = verbose.then(|| {
        let mut checks = BTreeMap::new();
        checks.insert("draining", draining.to_string());
        checks.insert("sessions", api.orchestrator.quiescence().sessions.to_string());
        checks.insert("store", trouble.unwrap_or_else(|| "ok".to_owned()));
        checks.insert("store_queue", store.gauges().queued.to_string());
        checks
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { status: if ready { "ready" } else { "not_ready" }, waits_for: None, checks })).into_response()
}

/// What runs here.
#[utoipa::path(get, path = "/version", tag = "health", responses((status = 200, description = "Version, profile, revision", body = Version)))]
pub(crate) async fn version(State(api): State<Api>) -> Json<Version> {
    let config = api.config();
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
        config_revision: config.revision().to_owned(),
        profile: config.profile().to_owned(),
    })
}

/// Prometheus text. On the admin listener only.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All metrics", body = String, content_type = "text/plain; version=0.0.4; charset=utf-8")),
)]
pub(crate) async fn metrics(State(api): State<Api>) -> Response {
    match api.metrics.text(&api.pools(), &api.in_flight()) {
        Ok(text) => ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"))], text).into_response(),
        Err(_) => Problem::new(Code::Internal, "the metrics cannot be written").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use ambit_store::{Clock, StoreOptions};

    use super::*;

    async fn trouble(clock: Clock) -> (Option<String>, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::new(folder.path().join("a.db"), "node", clock)).await.unwrap();
        let check = StoreCheck::default();
        let open = check.trouble(&store).await;
        store.close().await.unwrap();
        // What was seen a moment ago still holds; who looks anew sees that it is closed.
        assert_eq!(check.trouble(&store).await, open);
        (open, StoreCheck::default().trouble(&store).await)
    }

    #[tokio::test]
    async fn a_store_that_can_be_read_and_was_written_lately_is_no_trouble() {
        let (open, closed) = trouble(Clock::system()).await;
        assert_eq!(open, None);
        assert!(closed.is_some());
    }

    #[tokio::test]
    async fn a_lease_that_ran_out_says_that_nothing_was_written_lately() {
        let (open, _) = trouble(Clock::from_fn(|| 1_000)).await;
        assert!(open.unwrap().contains("lease"));
    }
}

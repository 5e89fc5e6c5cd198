//! What answers while the process starts: it lives, it is not ready, and what it waits for. Then the doors open.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower::ServiceExt as _;

use crate::app::Stage;
use crate::http::front::{Front, front};
use crate::http::health::livez;
use crate::http::problem::{Code, Problem};
use crate::http::types::Readiness;

/// When to come back to a process that starts.
const START_RETRY: Duration = Duration::from_secs(1);

/// One listener's way in.
#[derive(Clone)]
pub(crate) struct Entrance {
    inside: Arc<OnceLock<Router>>,
    outside: Router,
}

impl Entrance {
    /// Closed, but not silent.
    pub(crate) fn closed(ground: Front, stage: Stage) -> Self {
        let outside = Router::new()
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .fallback(not_yet)
            .layer(from_fn_with_state(ground, front))
            .with_state(stage);
        Self { inside: Arc::default(), outside }
    }

    /// From now on this router answers. The first call counts.
    pub(crate) fn open(&self, router: Router) {
        let _ = self.inside.set(router);
    }

    /// What the listener serves.
    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(enter).with_state(self.clone())
    }
}

async fn enter(State(entrance): State<Entrance>, request: Request) -> Response {
    let router = entrance.inside.get().unwrap_or(&entrance.outside).clone();
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

async fn readyz(State(stage): State<Stage>) -> Response {
    let waits_for = Some(stage.waits_for());
    (StatusCode::SERVICE_UNAVAILABLE, Json(Readiness { status: "starting", waits_for, checks: None })).into_response()
}

async fn not_yet(State(stage): State<Stage>) -> Problem {
    Problem::new(Code::Overloaded, format!("the server is starting and waits for {}", stage.waits_for())).retry_after(START_RETRY)
}

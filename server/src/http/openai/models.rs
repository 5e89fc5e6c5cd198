//! Agents as models.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Api;
use crate::http::problem::{Code, Problem, echo};

/// An agent in the form of a model.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Model)]
pub(crate) struct ModelObject {
    /// The agent's name.
    id: String,
    /// Always `model`.
    object: &'static str,
    /// Since when this process offers it, seconds since 1970.
    created: u64,
    /// Always `ambit`.
    owned_by: &'static str,
}

/// All agents as models.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ModelList)]
pub(crate) struct ModelList {
    /// Always `list`.
    object: &'static str,
    data: Vec<ModelObject>,
}

/// Every agent, as clients of the OpenAI API list models.
#[utoipa::path(get, path = "/v1/models", tag = "openai", operation_id = "models_list", responses((status = 200, description = "All agents", body = ModelList)))]
pub(crate) async fn list(State(api): State<Api>) -> Json<ModelList> {
    let data = api.orchestrator.agents().keys().map(|name| ModelObject::of(&api, name)).collect();
    Json(ModelList { object: "list", data })
}

/// One agent, as a model.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "openai", operation_id = "models_get",
    params(("id" = String, Path, description = "Name of the agent")),
    responses((status = 200, description = "The agent", body = ModelObject), (status = 404, description = "AGENT_NOT_FOUND", body = Problem)),
)]
pub(crate) async fn get(State(api): State<Api>, id: Result<Path<String>, PathRejection>) -> Result<Json<ModelObject>, Problem> {
    let id = id.map(|Path(id)| id).unwrap_or_default();
    if api.orchestrator.agents().contains_key(&*id) {
        return Ok(Json(ModelObject::of(&api, &id)));
    }
    Err(Problem::new(Code::AgentNotFound, format!("model `{}` does not exist; GET /v1/models lists them", echo(&id))))
}

impl ModelObject {
    fn of(api: &Api, name: &str) -> Self {
        Self { id: name.to_owned(), object: "model", created: api.since_ms / 1_000, owned_by: "ambit" }
    }
}

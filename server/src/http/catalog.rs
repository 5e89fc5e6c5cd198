//! What is configured: agents with their envelopes, tools, the profile. Read-only and redacted.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};

use ambit_config::bounds;
use ambit_core::session::Principal;

use crate::http::Api;
use crate::http::problem::{Code, Problem, echo};
use crate::http::types::{AgentList, AgentObject, LimitsObject, ProfileList, ProfileObject, ToolList, ToolObject};

/// Every configured agent, with the worst case of one of its sessions.
#[utoipa::path(get, path = "/v1/agents", tag = "catalog", responses((status = 200, description = "All agents", body = AgentList)))]
pub(crate) async fn agents(State(api): State<Api>) -> Json<AgentList> {
    Json(AgentList { object: "list", data: all(&api) })
}

/// One agent.
#[utoipa::path(
    get, path = "/v1/agents/{name}", tag = "catalog",
    params(("name" = String, Path, description = "Name of the agent")),
    responses((status = 200, description = "The agent", body = AgentObject), (status = 404, description = "AGENT_NOT_FOUND", body = Problem)),
)]
pub(crate) async fn agent(State(api): State<Api>, name: Result<Path<String>, PathRejection>) -> Result<Json<AgentObject>, Problem> {
    let name = name.map(|Path(name)| name).unwrap_or_default();
    all(&api)
        .into_iter()
        .find(|agent| agent.name == name)
        .map(Json)
        .ok_or_else(|| Problem::new(Code::AgentNotFound, format!("agent `{}` does not exist; GET /v1/agents lists them", echo(&name))))
}

/// Every tool that an agent of this process may be given.
#[utoipa::path(get, path = "/v1/tools", tag = "catalog", responses((status = 200, description = "All tools", body = ToolList)))]
pub(crate) async fn tools(State(api): State<Api>) -> Json<ToolList> {
    let mut data: Vec<ToolObject> = Vec::new();
    let setup = api.orchestrator.setup();
    for agent in setup.agents().values() {
        for tool in setup.executor().offer(&agent.tools, local()).declarations() {
            if data.iter().all(|known| *known.name != *tool.name) {
                data.push(ToolObject {
                    name: tool.name.to_string(),
                    object: "tool",
                    description: tool.description.to_string(),
                    effect: tool.class.effect.as_str(),
                    trusted: tool.class.trusted,
                    keyed: tool.class.keyed,
                    attempts: tool.class.attempts,
                    parameters: (*tool.schema).clone(),
                });
            }
        }
    }
    data.sort_by(|a, b| a.name.cmp(&b.name));
    Json(ToolList { object: "list", data })
}

/// The profile that this process runs under, with every setting in force.
#[utoipa::path(get, path = "/v1/profiles", tag = "catalog", responses((status = 200, description = "The selected profile", body = ProfileList)))]
pub(crate) async fn profiles(State(api): State<Api>) -> Json<ProfileList> {
    let config = api.config();
    let profile = ProfileObject {
        name: config.profile().to_owned(),
        object: "profile",
        selected: true,
        config_revision: config.revision().to_owned(),
        settings: config.show_json().clone(),
    };
    Json(ProfileList { object: "list", data: vec![profile] })
}

/// Whoever reaches a loopback listener without authentication.
pub(crate) fn local() -> Principal {
    Principal { id: "local".into(), tenant: "local".into(), roles: vec!["operator".into()] }
}

fn all(api: &Api) -> Vec<AgentObject> {
    let bounds = bounds(&api.config());
    api.orchestrator
        .agents()
        .values()
        .map(|agent| AgentObject {
            name: agent.name.to_string(),
            object: "agent",
            description: agent.description.to_string(),
            version: agent.version().to_string(),
            chain: agent.chain.to_string(),
            tools: agent.tools.iter().map(ToString::to_string).collect(),
            limits: LimitsObject::from(&agent.limits),
            envelope: bounds
                .agents
                .iter()
                .find(|bounds| *bounds.agent == *agent.name)
                .and_then(|bounds| serde_json::to_value(bounds.envelope).ok())
                .unwrap_or_default(),
        })
        .collect()
}

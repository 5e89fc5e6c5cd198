//! `GET /v1/health`: how everything stands, for people and dashboards. No secrets, and no decision hangs on it.

use std::collections::BTreeMap;

use ambit_core::signal::DependencyKind;
use ambit_tool_executor::Standing;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Api;
use crate::telemetry::metrics::Pool;

/// How a capability stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    Healthy,
    Degraded,
    Unavailable,
}

/// How everything stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct HealthObject {
    /// Always `health`.
    object: &'static str,
    /// The worst of the capabilities; `unavailable` also while the server is leaving.
    status: Condition,
    config_revision: String,
    profile: String,
    version: &'static str,
    /// True once it takes no more sessions.
    draining: bool,
    sessions: SessionsObject,
    capabilities: Vec<CapabilityObject>,
    targets: Vec<TargetObject>,
    bulkheads: Vec<BulkheadObject>,
}

/// Sessions of this process.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SessionsObject {
    /// Without a verdict, by agent.
    in_flight: BTreeMap<String, usize>,
    /// Not closed yet: those in flight, and those that settle.
    open: usize,
    /// Most that may be in flight (`server.max_in_flight`).
    places: usize,
    free_places: usize,
}

/// Something that sessions can do, or not.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct CapabilityObject {
    /// `store`, `model:TARGET`, `tool:NAME`, `mcp:SERVER`.
    capability: String,
    status: Condition,
    /// What it is now: `available`, `saturated`, `unavailable`; of an MCP server `up`, `idle`, `starting`, `backing_off`,
    /// `left_out`.
    mode: &'static str,
    /// Why, where that is known.
    reason: Option<String>,
    /// Tools that an MCP server offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<usize>,
}

/// One configured way to a model.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TargetObject {
    target: String,
    model: String,
    /// Chains that it stands in.
    chains: Vec<String>,
}

/// The permits of one dependency.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct BulkheadObject {
    pool: String,
    /// `model` or `tool`.
    kind: &'static str,
    limit: usize,
    /// Above the limit for a while after a reload lowered it.
    in_use: usize,
    /// Of those in use, how many wait between two attempts.
    sleeping: usize,
    queued: usize,
}

/// How everything stands: capabilities with their mode, bulkheads, sessions, the configuration in force.
///
/// Always 200: whether the process should get requests is what `/readyz` says.
#[utoipa::path(get, path = "/v1/health", tag = "health", responses((status = 200, description = "How everything stands", body = HealthObject)))]
pub(crate) async fn health(State(api): State<Api>) -> Json<HealthObject> {
    let config = api.config();
    let setup = api.orchestrator.setup();
    let pools = api.pools();
    let draining = !api.orchestrator.is_ready();

    let trouble = api.store.trouble(api.orchestrator.store()).await;
    let mut capabilities = vec![match trouble {
        None => capability("store".to_owned(), Condition::Healthy, "available", None),
        Some(reason) => capability("store".to_owned(), Condition::Unavailable, "unavailable", Some(reason)),
    }];
    let mut targets: BTreeMap<String, TargetObject> = BTreeMap::new();
    for chain in setup.gateway().chains() {
        for (target, model) in chain.targets() {
            let known = targets.entry(target.to_string());
            let object = known.or_insert_with(|| TargetObject { target: target.to_string(), model: model.to_string(), chains: Vec::new() });
            object.chains.push(chain.name().to_string());
        }
    }
    capabilities.extend(targets.keys().map(|target| guarded(format!("model:{target}"), target, &pools)));
    let own = setup.executor().tools().into_iter().filter(|tool| tool.kind != "mcp");
    capabilities.extend(own.map(|tool| guarded(format!("tool:{}", tool.name), &tool.name, &pools)));
    capabilities.extend(setup.executor().servers().into_iter().map(|server| {
        let (status, reason) = match server.standing {
            Standing::Up | Standing::Idle => (Condition::Healthy, None),
            Standing::Starting => (Condition::Degraded, None),
            Standing::BackingOff => (Condition::Unavailable, Some("it failed, and is left alone for a while".to_owned())),
            Standing::LeftOut => (Condition::Unavailable, Some("it was not there when it was asked; it is asked again".to_owned())),
        };
        let tools = Some(server.tools);
        CapabilityObject { tools, ..capability(format!("mcp:{}", server.name), status, server.standing.as_str(), reason) }
    }));

    let in_flight = api.in_flight();
    let running: usize = in_flight.iter().map(|(_, count)| count).sum();
    let worst = capabilities.iter().map(|capability| capability.status).max().unwrap_or(Condition::Healthy);
    // One tool server that is away does not make a service unavailable.
    let essential = capabilities.iter().any(|capability| capability.capability == "store" && capability.status == Condition::Unavailable);
    Json(HealthObject {
        object: "health",
        status: if draining || essential { Condition::Unavailable } else { worst.min(Condition::Degraded) },
        config_revision: config.revision().to_owned(),
        profile: config.profile().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        draining,
        sessions: SessionsObject {
            in_flight: in_flight.into_iter().map(|(agent, count)| (agent.to_string(), count)).collect(),
            open: api.orchestrator.quiescence().sessions,
            places: api.max_in_flight,
            free_places: api.max_in_flight.saturating_sub(running),
        },
        capabilities,
        targets: targets.into_values().collect(),
        bulkheads: pools
            .into_iter()
            .map(|pool| BulkheadObject {
                pool: pool.name,
                kind: match pool.kind {
                    DependencyKind::Model => "model",
                    DependencyKind::Tool => "tool",
                },
                limit: pool.limit,
                in_use: pool.in_use,
                sleeping: pool.sleeping,
                queued: pool.queued,
            })
            .collect(),
    })
}

fn capability(capability: String, status: Condition, mode: &'static str, reason: Option<String>) -> CapabilityObject {
    CapabilityObject { capability, status, mode, reason, tools: None }
}

/// One whose bulkhead tells how it stands.
fn guarded(name: String, pool: &str, pools: &[Pool]) -> CapabilityObject {
    match pools.iter().find(|known| known.name == pool) {
        Some(pool) if pool.in_use >= pool.limit => {
            let reason = format!("all {} permits are in use, {} calls wait", pool.limit, pool.queued);
            capability(name, Condition::Degraded, "saturated", Some(reason))
        }
        Some(_) | None => capability(name, Condition::Healthy, "available", None),
    }
}

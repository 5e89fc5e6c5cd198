//! Everything of one process, put together from a configuration and taken apart again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ambit_config::settings::Taint;
use ambit_config::{Config, Surroundings, demo as sample};
use ambit_core::session::TaintRule;
use ambit_core::signal::SignalSink;
use ambit_model_gateway::{Gateway, GatewayError, WallClock};
use ambit_orchestrator::{Agent, Orchestrator, OrchestratorOptions, Timeline};
use ambit_store::{Clock, Store, StoreError};
use ambit_tool_executor::{Executor, ExecutorError};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::demo;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::{Known, Metrics};
use crate::telemetry::traces::{TraceError, Traces};

/// Why a process cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    /// The store cannot be opened.
    #[error("the store `{url}` cannot be opened")]
    Store {
        /// The setting `store.url`.
        url: String,
        #[source]
        source: StoreError,
    },
    /// A model cannot be used as configured.
    #[error("the models cannot be used as configured")]
    Gateway(#[source] GatewayError),
    /// A tool cannot be used as configured.
    #[error("the tools cannot be used as configured")]
    Executor(#[source] ExecutorError),
    /// The demo service or the sample cannot be set up.
    #[error("the demo cannot be set up")]
    Demo(#[source] std::io::Error),
    /// Traces cannot be sent as the `OTEL_` variables say.
    #[error("traces cannot be exported")]
    Traces(#[source] TraceError),
    /// The metrics contradict each other: a mistake of ours.
    #[error("the metrics cannot be set up")]
    Metrics(#[source] prometheus::Error),
}

/// A running process without its listeners.
pub(crate) struct App {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Traces,
    pub(crate) orchestrator: Orchestrator,
    pub(crate) rng: Arc<Mutex<StdRng>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    sample: Option<PathBuf>,
}

/// What kind of process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role<'a> {
    /// Serves, and takes up what others left.
    Server,
    /// Runs one session of this agent.
    Runner(&'a str),
}

/// The tools that have to be there: one session does not wait for the servers of other agents.
fn needed(agents: &[Agent], role: Role<'_>) -> Vec<Arc<str>> {
    let wanted = |agent: &&Agent| match role {
        Role::Server => true,
        Role::Runner(name) => *agent.name == *name,
    };
    agents.iter().filter(wanted).flat_map(|agent| agent.tools.clone()).collect()
}

impl AppError {
    /// What to do about it, where that can be said.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Store { source, .. } => source.hint().map(|hint| hint.to_string()),
            Self::Gateway(_) | Self::Executor(_) | Self::Demo(_) | Self::Traces(_) | Self::Metrics(_) => None,
        }
    }
}

impl App {
    /// Opens and connects everything.
    ///
    /// # Errors
    /// What cannot be opened, with its setting.
    pub(crate) async fn start(config: Arc<Config>, role: Role<'_>) -> Result<Self, AppError> {
        for notice in config.notices() {
            info!("{notice}");
        }
        let mut rng = StdRng::from_rng(&mut rand::rng());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), config.revision()).map_err(AppError::Metrics)?);
        let traces = Traces::start(config.traces(), &metrics).await.map_err(AppError::Traces)?;
        let timeline = Arc::new(Timeline::before(Arc::new(Telemetry::new(metrics.clone(), traces.clone()))));
        let sink: Arc<dyn SignalSink> = timeline.clone();

        let sample = if config.needs_sample() { Some(sample_root(&mut rng).map_err(AppError::Demo)?) } else { None };
        let demo_service =
            if config.needs_demo_service() { Some(demo::start(&tasks, stop.clone()).await.map_err(AppError::Demo)?) } else { None };

        let node = format!("node_{:032x}", rng.random::<u128>());
        let mut options = config.store_options(node, Clock::system());
        options.observer = metrics.clone();
        let store = Store::open(options).await.map_err(|source| AppError::Store { url: config.settings().store.url.clone(), source })?;
        let clock = wall_clock();
        let gateway = Gateway::new(config.gateway_options(clock, rng.random()), sink.clone()).map_err(AppError::Gateway)?;
        let surroundings = Surroundings { sample_root: sample.clone().unwrap_or_default(), demo_service, seed: rng.random() };
        let executor = Executor::new(config.executor_options(&surroundings), sink).map_err(AppError::Executor)?;
        let agents: Vec<Agent> = config.agents().values().map(agent).collect();
        for (server, reason) in executor.ready(&needed(&agents, role)).await {
            warn!(server = &*server, reason, "the tools of this MCP server are left out for now");
        }
        let tools = executor.tools();
        metrics.preset(&Known {
            agents: agents.iter().map(|agent| &*agent.name).collect(),
            targets: config.settings().models.keys().map(String::as_str).collect(),
            tools: tools.iter().map(|tool| &*tool.name).collect(),
        });
        let options = OrchestratorOptions {
            max_in_flight: config.settings().server.max_in_flight as usize,
            agents,
            config_revision: config.revision().into(),
            seed: rng.random(),
            take_over: role == Role::Server,
        };
        let orchestrator = Orchestrator::open(options, store, Arc::new(gateway), Arc::new(executor), timeline);
        Ok(Self { metrics, traces, orchestrator, rng: Arc::new(Mutex::new(rng)), tasks, stop, sample })
    }

    /// Takes no more sessions and lets those that run come to their end.
    pub(crate) async fn drain(&self, patience: std::time::Duration, hurry: &CancellationToken) {
        self.orchestrator.drain(patience, hurry).await;
    }

    /// Ends what sessions need, once there are none: tools, then the journal. Whoever reads a journal has to be done.
    pub(crate) async fn close(self) {
        self.orchestrator.executor().close().await;
        if let Err(failed) = self.orchestrator.store().close().await {
            warn!(error = %failed, "the journal could not be closed in order");
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // After everything that ends spans.
        self.traces.close().await;
        if let Some(sample) = self.sample {
            // A folder in the temporary directory; what stays is swept by the system.
            let _ = std::fs::remove_dir_all(sample);
        }
    }
}

/// A folder of this process's own with the sample in it.
fn sample_root(rng: &mut StdRng) -> std::io::Result<PathBuf> {
    let root = std::env::temp_dir().join(format!("ambit-sample-{:016x}", rng.random::<u64>()));
    std::fs::create_dir(&root)?;
    sample::write_sample(&root)?;
    Ok(root)
}

#[expect(clippy::disallowed_methods, reason = "the one reading that the gateway's wall times start from")]
fn wall_clock() -> WallClock {
    WallClock::new(std::time::SystemTime::now(), Instant::now())
}

fn agent(definition: &ambit_config::AgentDefinition) -> Agent {
    Agent {
        name: definition.name.as_str().into(),
        description: definition.description.as_str().into(),
        instructions: definition.instructions.as_str().into(),
        chain: definition.chain.as_str().into(),
        tools: definition.tools.iter().map(|tool| tool.as_str().into()).collect(),
        limits: definition.limits,
        taint: match definition.taint {
            Taint::Refuse => TaintRule::Refuse,
            Taint::Allow => TaintRule::Allow,
        },
    }
}

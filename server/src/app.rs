//! Everything of one process, put together from a configuration and taken apart again.

use std::future::Future;
use std::sync::{Arc, Mutex};

use ambit_config::settings::Taint;
use ambit_config::{Config, Surroundings};
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
use crate::sample::Sample;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::{Known, Metrics};

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
    /// The metrics contradict each other: a mistake of ours.
    #[error("the metrics cannot be set up")]
    Metrics(#[source] prometheus::Error),
    /// Somebody asked to stop before everything was up.
    #[error("stopped before everything was up")]
    Stopped,
}

/// A running process without its listeners.
pub(crate) struct App {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) orchestrator: Orchestrator,
    pub(crate) rng: Arc<Mutex<StdRng>>,
    held: Held,
}

/// What a process holds, and gives back however far it came.
#[derive(Default)]
struct Held {
    tasks: TaskTracker,
    stop: CancellationToken,
    sample: Option<Sample>,
    store: Option<Store>,
    executor: Option<Arc<Executor>>,
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
            Self::Gateway(_) | Self::Executor(_) | Self::Demo(_) | Self::Metrics(_) | Self::Stopped => None,
        }
    }
}

impl App {
    /// Opens and connects everything, unless `stopped` comes first.
    ///
    /// # Errors
    /// What cannot be opened, with its setting; everything that was open by then is closed again.
    pub(crate) async fn start(config: Arc<Config>, role: Role<'_>, stopped: impl Future<Output = ()>) -> Result<Self, AppError> {
        let mut held = Held::default();
        let risen = tokio::select! {
            risen = Box::pin(held.rise(config, role)) => risen,
            () = stopped => Err(AppError::Stopped),
        };
        match risen {
            Ok((metrics, orchestrator, rng)) => Ok(Self { metrics, orchestrator, rng, held }),
            Err(failed) => {
                held.give_back().await;
                Err(failed)
            }
        }
    }

    /// Takes no more sessions and lets those that run come to their end.
    pub(crate) async fn drain(&self, patience: std::time::Duration, hurry: &CancellationToken) {
        self.orchestrator.drain(patience, hurry).await;
    }

    /// Ends what sessions need, once there are none: tools, then the journal. Whoever reads a journal has to be done.
    pub(crate) async fn close(self) {
        self.held.give_back().await;
    }
}

impl Held {
    async fn rise(&mut self, config: Arc<Config>, role: Role<'_>) -> Result<(Arc<Metrics>, Orchestrator, Arc<Mutex<StdRng>>), AppError> {
        for notice in config.notices() {
            info!("{notice}");
        }
        let mut rng = StdRng::from_rng(&mut rand::rng());
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), config.revision()).map_err(AppError::Metrics)?);
        let timeline = Arc::new(Timeline::before(Arc::new(Telemetry::new(metrics.clone()))));
        let sink: Arc<dyn SignalSink> = timeline.clone();

        if config.needs_sample() {
            self.sample = Some(Sample::make(&mut rng).map_err(AppError::Demo)?);
        }
        let demo_service = if config.needs_demo_service() {
            Some(demo::start(&self.tasks, self.stop.clone()).await.map_err(AppError::Demo)?)
        } else {
            None
        };

        let node = format!("node_{:032x}", rng.random::<u128>());
        let mut options = config.store_options(node, Clock::system());
        options.observer = metrics.clone();
        let store = Store::open(options).await.map_err(|source| AppError::Store { url: config.settings().store.url.clone(), source })?;
        self.store = Some(store.clone());
        let clock = wall_clock();
        let gateway = Gateway::new(config.gateway_options(clock, rng.random()), sink.clone()).map_err(AppError::Gateway)?;
        let surroundings = Surroundings {
            sample_root: self.sample.as_ref().map(|sample| sample.root().to_owned()).unwrap_or_default(),
            demo_service,
            seed: rng.random(),
        };
        let executor = Arc::new(Executor::new(config.executor_options(&surroundings), sink).map_err(AppError::Executor)?);
        self.executor = Some(executor.clone());
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
        let orchestrator = Orchestrator::open(options, store, Arc::new(gateway), executor, timeline);
        Ok((metrics, orchestrator, Arc::new(Mutex::new(rng))))
    }

    /// Tools first, then the journal, then what is ours alone.
    async fn give_back(self) {
        if let Some(executor) = self.executor {
            executor.close().await;
        }
        if let Some(store) = self.store
            && let Err(failed) = store.close().await
        {
            warn!(error = %failed, "the journal could not be closed in order");
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        drop(self.sample);
    }
}

#[expect(clippy::disallowed_methods, reason = "the one reading that the gateway's wall times start from")]
pub(crate) fn wall_clock() -> WallClock {
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

//! Everything of one process, put together from a configuration and taken apart again.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use ambit_config::Config;
use ambit_model_gateway::GatewayError;
use ambit_orchestrator::{Orchestrator, OrchestratorOptions, Timeline};
use ambit_store::{Clock, Store, StoreError};
use ambit_tool_executor::ExecutorError;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::telemetry::Telemetry;
use crate::telemetry::metrics::Metrics;
use crate::workshop::{Workshop, ask_servers, known, needed};

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
    /// Somebody asked it to stop before it was up.
    #[error("stopped before it was up")]
    Stopped,
}

/// What is there before anything is opened.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) rng: Arc<Mutex<StdRng>>,
    pub(crate) stage: Stage,
}

/// What the start waits for at this moment, for people.
#[derive(Clone, Default)]
pub(crate) struct Stage(Arc<Mutex<String>>);

/// A running process without its listeners.
pub(crate) struct App {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) orchestrator: Orchestrator,
    pub(crate) workshop: Arc<Workshop>,
}

/// What kind of process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role<'a> {
    /// Serves, and takes up what others left.
    Server,
    /// Runs one session of this agent.
    Runner(&'a str),
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

impl Stage {
    /// What is waited for.
    pub(crate) fn waits_for(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn enter(&self, what: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }
}

impl Ground {
    /// # Errors
    /// A mistake of ours in the metrics.
    pub(crate) fn new(config: &Config) -> Result<Self, AppError> {
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), config.revision()).map_err(AppError::Metrics)?;
        let rng = StdRng::from_rng(&mut rand::rng());
        Ok(Self { metrics: Arc::new(metrics), rng: Arc::new(Mutex::new(rng)), stage: Stage::default() })
    }
}

/// What was opened so far, and is closed again however far the start came.
struct Held {
    workshop: Arc<Workshop>,
    store: Option<Store>,
}

impl App {
    /// Opens and connects everything, unless `stopped` comes first.
    ///
    /// # Errors
    /// What cannot be opened, with its setting; everything that was open by then is closed again.
    pub(crate) async fn start(config: Arc<Config>, role: Role<'_>, stopped: impl Future<Output = ()>) -> Result<Self, AppError> {
        Self::start_on(Ground::new(&config)?, config, role, stopped).await
    }

    /// The same on a ground that others can look at meanwhile.
    ///
    /// # Errors
    /// As [`App::start`].
    pub(crate) async fn start_on(
        ground: Ground,
        config: Arc<Config>,
        role: Role<'_>,
        stopped: impl Future<Output = ()>,
    ) -> Result<Self, AppError> {
        let metrics = ground.metrics.clone();
        let sink = Arc::new(Timeline::before(Arc::new(Telemetry::new(metrics.clone()))));
        let mut held = Held { workshop: Arc::new(Workshop::new(sink.clone(), ground.rng.clone())), store: None };
        let risen = tokio::select! {
            risen = Box::pin(held.rise(ground, config, role, sink)) => risen,
            () = stopped => Err(AppError::Stopped),
        };
        match risen {
            Ok(orchestrator) => Ok(Self { metrics, orchestrator, workshop: held.workshop }),
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
        self.orchestrator.executor().close().await;
        Held { workshop: self.workshop, store: Some(self.orchestrator.store().clone()) }.give_back().await;
    }
}

impl Held {
    async fn rise(
        &mut self,
        ground: Ground,
        config: Arc<Config>,
        role: Role<'_>,
        timeline: Arc<Timeline>,
    ) -> Result<Orchestrator, AppError> {
        let Ground { metrics, rng, stage } = ground;
        for notice in config.notices() {
            info!("{notice}");
        }
        let random = || rng.lock().unwrap_or_else(PoisonError::into_inner).random::<u128>();

        stage.enter("the store");
        let mut options = config.store_options(format!("node_{:032x}", random()), Clock::system());
        options.observer = metrics.clone();
        let store = Store::open(options).await.map_err(|source| AppError::Store { url: config.settings().store.url.clone(), source })?;
        self.store = Some(store.clone());

        stage.enter("models and tools");
        let setup = self.workshop.build(&config, None).await?;
        stage.enter(match &config.settings().mcp {
            none if none.is_empty() => "models and tools".to_owned(),
            servers => format!("MCP servers: {}", servers.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
        });
        // One session does not wait for the servers of other agents.
        let wanted = setup.agents().values().filter(|agent| match role {
            Role::Server => true,
            Role::Runner(name) => *agent.name == *name,
        });
        ask_servers(&setup, &needed(wanted)).await;
        metrics.preset(&known(&config, &setup));

        let options = OrchestratorOptions {
            max_in_flight: config.settings().server.max_in_flight as usize,
            seed: rng.lock().unwrap_or_else(PoisonError::into_inner).random(),
            take_over: role == Role::Server,
        };
        Ok(Orchestrator::open(options, setup, store, timeline))
    }

    /// The journal, then what is ours alone.
    async fn give_back(self) {
        if let Some(store) = self.store
            && let Err(failed) = store.close().await
        {
            warn!(error = %failed, "the journal could not be closed in order");
        }
        self.workshop.close().await;
    }
}

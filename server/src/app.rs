//! Everything of one process, put together from a configuration and taken apart again.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use ambit_config::Config;
use ambit_core::signal::SignalSink;
use ambit_model_gateway::GatewayError;
use ambit_orchestrator::{Orchestrator, OrchestratorOptions, Timeline};
use ambit_store::{Clock, Store, StoreError};
use ambit_tool_executor::{Executor, ExecutorError};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::telemetry::Telemetry;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{TraceError, Traces};
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
    /// Traces cannot be sent as the `OTEL_` variables say.
    #[error("traces cannot be exported")]
    Traces(#[source] TraceError),
    /// The metrics contradict each other: a mistake of ours.
    #[error("the metrics cannot be set up")]
    Metrics(#[source] prometheus::Error),
    /// Somebody asked to stop before everything was up.
    #[error("stopped before everything was up")]
    Stopped,
}

/// What is there before anything is opened.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Traces,
    pub(crate) rng: Arc<Mutex<StdRng>>,
    pub(crate) stage: Stage,
}

/// What the start waits for at this moment, for people.
#[derive(Clone, Default)]
pub(crate) struct Stage(Arc<Mutex<String>>);

/// A running process without its listeners.
pub(crate) struct App {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Traces,
    pub(crate) rng: Arc<Mutex<StdRng>>,
    pub(crate) orchestrator: Orchestrator,
    pub(crate) workshop: Arc<Workshop>,
    store: Store,
}

/// What a process that starts holds by now, and gives back if it comes no further.
#[derive(Default)]
struct Held {
    store: Option<Store>,
    workshop: Option<Arc<Workshop>>,
    executor: Option<Arc<Executor>>,
    traces: Option<Traces>,
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
            Self::Gateway(_) | Self::Executor(_) | Self::Demo(_) | Self::Traces(_) | Self::Metrics(_) | Self::Stopped => None,
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
    /// A mistake of ours in the metrics, or a way of exporting traces that cannot be gone.
    pub(crate) async fn new(config: &Config) -> Result<Self, AppError> {
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), config.revision()).map_err(AppError::Metrics)?;
        let traces = Traces::start(config.traces(), &metrics).await.map_err(AppError::Traces)?;
        let rng = StdRng::from_rng(&mut rand::rng());
        let stage = Stage::default();
        stage.enter("everything");
        Ok(Self { metrics: Arc::new(metrics), traces, rng: Arc::new(Mutex::new(rng)), stage })
    }
}

impl App {
    /// Opens and connects everything, unless `stopped` comes first.
    ///
    /// # Errors
    /// What cannot be opened, with its setting; everything that was open by then is closed again.
    pub(crate) async fn start(config: Arc<Config>, role: Role<'_>, stopped: impl Future<Output = ()>) -> Result<Self, AppError> {
        Self::start_on(Ground::new(&config).await?, config, role, stopped).await
    }

    /// The same on a ground that others can look at meanwhile.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub(crate) async fn start_on(
        ground: Ground,
        config: Arc<Config>,
        role: Role<'_>,
        stopped: impl Future<Output = ()>,
    ) -> Result<Self, AppError> {
        let mut held = Held { traces: Some(ground.traces.clone()), ..Held::default() };
        let risen = tokio::select! {
            risen = Box::pin(held.rise(ground, config, role)) => risen,
            () = stopped => Err(AppError::Stopped),
        };
        if risen.is_err() {
            held.give_back().await;
        }
        risen
    }

    /// Takes no more sessions and lets those that run come to their end.
    pub(crate) async fn drain(&self, patience: std::time::Duration, hurry: &CancellationToken) {
        self.orchestrator.drain(patience, hurry).await;
    }

    /// Ends what sessions need, once there are none: tools, then the journal. Whoever reads a journal has to be done.
    pub(crate) async fn close(self) {
        // The executor in force ends the servers of former ones, too.
        let executor = Some(self.orchestrator.executor());
        Held { store: Some(self.store), workshop: Some(self.workshop), executor, traces: Some(self.traces) }.give_back().await;
    }
}

impl Held {
    async fn rise(&mut self, ground: Ground, config: Arc<Config>, role: Role<'_>) -> Result<App, AppError> {
        let Ground { metrics, traces, rng, stage } = ground;
        for notice in config.notices() {
            info!("{notice}");
        }
        let node: u128 = rng.lock().unwrap_or_else(PoisonError::into_inner).random();
        let timeline = Arc::new(Timeline::before(Arc::new(Telemetry::new(metrics.clone(), traces.clone()))));
        let sink: Arc<dyn SignalSink> = timeline.clone();

        stage.enter("the store");
        let mut options = config.store_options(format!("node_{node:032x}"), Clock::system());
        options.observer = metrics.clone();
        let store = Store::open(options).await.map_err(|source| AppError::Store { url: config.settings().store.url.clone(), source })?;
        self.store = Some(store.clone());

        stage.enter("models and tools");
        let workshop = Arc::new(Workshop::new(sink, rng.clone()));
        self.workshop = Some(workshop.clone());
        let setup = workshop.build(&config, None).await?;
        self.executor = Some(setup.executor().clone());
        if !config.settings().mcp.is_empty() {
            let servers: Vec<&str> = config.settings().mcp.keys().map(String::as_str).collect();
            stage.enter(format!("MCP servers: {}", servers.join(", ")));
        }
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
        let orchestrator = Orchestrator::open(options, setup, store.clone(), timeline);
        Ok(App { metrics, traces, rng, orchestrator, workshop, store })
    }

    /// Tools first, then the journal, then what is ours alone, and at last what tells of it.
    async fn give_back(self) {
        if let Some(executor) = self.executor {
            executor.close().await;
        }
        if let Some(store) = self.store
            && let Err(failed) = store.close().await
        {
            warn!(error = %failed, "the journal could not be closed in order");
        }
        if let Some(workshop) = self.workshop {
            workshop.close().await;
        }
        // After everything that ends spans.
        if let Some(traces) = self.traces {
            traces.close().await;
        }
    }
}

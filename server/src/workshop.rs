//! From a configuration to the setup that sessions begin with: models, tools and agents, and what they stand on.
//!
//! The first setup is built from nothing; each later one goes on with the bulkheads, connections and MCP servers of the one
//! before. Building changes nothing that runs: the setup has to be adopted.

use std::sync::{Arc, Mutex, PoisonError};

use ambit_config::settings::Taint;
use ambit_config::{AgentDefinition, Config, Surroundings};
use ambit_core::session::TaintRule;
use ambit_core::signal::SignalSink;
use ambit_model_gateway::{Gateway, WallClock};
use ambit_orchestrator::{Agent, Setup};
use ambit_tool_executor::Executor;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::app::AppError;
use crate::demo;
use crate::sample::Sample;
use crate::telemetry::metrics::Known;

/// Builds setups.
pub(crate) struct Workshop {
    sink: Arc<dyn SignalSink>,
    rng: Arc<Mutex<StdRng>>,
    grounds: tokio::sync::Mutex<Grounds>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What tools of the shipped profile stand on: made when it is first needed, and kept until the process ends.
#[derive(Default)]
struct Grounds {
    sample: Option<Sample>,
    demo_service: Option<std::net::SocketAddr>,
}

impl Workshop {
    pub(crate) fn new(sink: Arc<dyn SignalSink>, rng: Arc<Mutex<StdRng>>) -> Self {
        Self { sink, rng, grounds: tokio::sync::Mutex::default(), tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    /// Builds the setup of a configuration; with the one that it takes the place of, if there is one. Asks nobody: the tools
    /// of MCP servers that are new are not known yet.
    ///
    /// # Errors
    /// What cannot be used as configured; nothing has changed then.
    pub(crate) async fn build(&self, config: &Config, before: Option<&Setup>) -> Result<Setup, AppError> {
        let surroundings = self.surroundings(config).await.map_err(AppError::Demo)?;
        let options = config.gateway_options(wall_clock(), self.seed());
        let gateway = match before {
            Some(before) => before.gateway().succeeded_by(options, self.sink.clone()),
            None => Gateway::new(options, self.sink.clone()),
        };
        let options = config.executor_options(&surroundings);
        let executor = match before {
            Some(before) => before.executor().succeeded_by(options, self.sink.clone()),
            None => Executor::new(options, self.sink.clone()),
        };
        let agents = config.agents().values().map(agent).collect();
        let (gateway, executor) = (gateway.map_err(AppError::Gateway)?, executor.map_err(AppError::Executor)?);
        Ok(Setup::new(config.revision().into(), agents, gateway, executor))
    }

    /// Ends what was made. Nothing may use it any more.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.grounds.lock().await.sample = None;
    }

    async fn surroundings(&self, config: &Config) -> std::io::Result<Surroundings> {
        let mut grounds = self.grounds.lock().await;
        if config.needs_sample() && grounds.sample.is_none() {
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            grounds.sample = Some(Sample::make(&mut rng)?);
        }
        if config.needs_demo_service() && grounds.demo_service.is_none() {
            grounds.demo_service = Some(demo::start(&self.tasks, self.stop.clone()).await?);
        }
        Ok(Surroundings {
            sample_root: grounds.sample.as_ref().map(|sample| sample.root().to_owned()).unwrap_or_default(),
            demo_service: grounds.demo_service.filter(|_| config.needs_demo_service()),
            seed: self.seed(),
        })
    }

    fn seed(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).random()
    }
}

/// Asks the MCP servers of these tools, each for at most its `start`. Those that are not there are left out for now, and
/// told in the log.
pub(crate) async fn ask_servers(setup: &Setup, tools: &[Arc<str>]) -> Vec<(Arc<str>, String)> {
    let missing = setup.executor().ready(tools).await;
    for (server, reason) in &missing {
        warn!(server = &**server, reason, "the tools of this MCP server are left out for now");
    }
    missing
}

/// The tools that agents of a setup need.
pub(crate) fn needed<'a>(agents: impl Iterator<Item = &'a Arc<Agent>>) -> Vec<Arc<str>> {
    agents.flat_map(|agent| agent.tools.clone()).collect()
}

/// Label sets that a setup makes known.
pub(crate) fn known(config: &Config, setup: &Setup) -> Known {
    Known {
        agents: setup.agents().keys().map(ToString::to_string).collect(),
        targets: config.settings().models.keys().cloned().collect(),
        tools: setup.executor().tools().iter().map(|tool| tool.name.to_string()).collect(),
    }
}

#[expect(clippy::disallowed_methods, reason = "the one reading that the gateway's wall times start from")]
pub(crate) fn wall_clock() -> WallClock {
    WallClock::new(std::time::SystemTime::now(), Instant::now())
}

fn agent(definition: &AgentDefinition) -> Agent {
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

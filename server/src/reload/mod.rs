//! Taking in another configuration while sessions run: read, check, build, then swap; or keep what there is.
//!
//! **Invariant:** at most one reload runs at a time and one more waits, which then reads what there is. Until the swap
//! nothing that runs has changed; what runs at the swap keeps what it began with.

pub(crate) mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ambit_config::{Change, Config, ConfigErrors, Sources, load, needs_restart};
use ambit_orchestrator::{Orchestrator, wall_ms};
use arc_swap::ArcSwap;
use serde_json::Value as Json;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::app::{App, AppError};
use crate::telemetry::metrics::Metrics;
use crate::workshop::{Workshop, ask_servers, known, needed};

/// Reloads that run or wait.
const RELOADS_MAX: usize = 2;
/// Longest that reading the configuration may take: a file on a network that does not answer is one.
const READ_TIME: Duration = Duration::from_secs(10);
/// Most changes that one line of the log names.
const CHANGES_LOGGED_MAX: usize = 20;

/// Who wants a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// SIGHUP.
    Signal,
    /// The file has changed.
    File,
    /// `POST /admin/reload`.
    Request,
}

/// What a reload came to.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) previous_revision: String,
    pub(crate) revision: String,
    /// What sessions that begin from now on have otherwise.
    pub(crate) changed: Vec<Change>,
    /// What the configuration says and only a restart brings.
    pub(crate) needs_restart: Vec<Change>,
    /// MCP servers that were not there when they were asked, and why.
    pub(crate) left_out: Vec<(Arc<str>, String)>,
    pub(crate) notices: Vec<String>,
}

/// Why the configuration in force stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// What was read cannot be used.
    #[error(transparent)]
    Invalid(ConfigErrors),
    /// It was read and is right, and what it describes cannot be built.
    #[error("what the configuration describes cannot be built")]
    Unbuildable(#[source] AppError),
    /// It could not be read in time.
    #[error("the configuration could not be read within {} s", READ_TIME.as_secs())]
    Unread,
    /// One runs and one waits.
    #[error("a reload is running and another one waits, which will read what there is then")]
    Busy,
    /// The process is going down.
    #[error("the server is shutting down")]
    Leaving,
}

/// The configuration in force.
#[derive(Debug, Clone)]
pub(crate) struct InForce {
    pub(crate) config: Arc<Config>,
    /// Since when, milliseconds since 1970.
    pub(crate) since_ms: u64,
    /// What the file says and only a restart brings.
    pub(crate) needs_restart: Arc<[Change]>,
}

/// Holds the configuration in force and takes in others.
pub(crate) struct Reloader {
    sources: Box<dyn Fn() -> Sources + Send + Sync>,
    /// The one that the process started with: what only a restart changes is as it says.
    started: Arc<Config>,
    in_force: ArcSwap<InForce>,
    /// Longest deadline that any session of this process may have, milliseconds.
    deadline_ms_max: AtomicU64,
    workshop: Arc<Workshop>,
    orchestrator: Orchestrator,
    metrics: Arc<Metrics>,
    places: Semaphore,
    turn: Arc<tokio::sync::Mutex<()>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Reloader {
    /// Begins with the configuration that the process has started with. `sources` says where to read; `stop` breaks off
    /// what waits for others.
    pub(crate) fn new(
        app: &App,
        started: Arc<Config>,
        sources: impl Fn() -> Sources + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Arc<Self> {
        // A file that was there at the start has to be there: without it this would become another server.
        let first = sources().files;
        let sources = move || {
            let mut now = sources();
            if now.files.is_empty() {
                now.files.clone_from(&first);
            }
            now
        };
        let in_force = InForce { config: started.clone(), since_ms: wall_ms(), needs_restart: Arc::from([]) };
        Arc::new(Self {
            sources: Box::new(sources),
            deadline_ms_max: AtomicU64::new(started.limits().deadline_ms),
            started,
            in_force: ArcSwap::from_pointee(in_force),
            workshop: app.workshop.clone(),
            orchestrator: app.orchestrator.clone(),
            metrics: app.metrics.clone(),
            places: Semaphore::new(RELOADS_MAX),
            turn: Arc::default(),
            tasks: TaskTracker::new(),
            stop,
        })
    }

    /// The configuration in force.
    pub(crate) fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    /// Longest that a session which runs now may still take to its verdict.
    pub(crate) fn deadline_max(&self) -> Duration {
        Duration::from_millis(self.deadline_ms_max.load(Ordering::Relaxed))
    }

    /// Where each value in force comes from, by key. What only a restart changes comes from where it came at the start.
    pub(crate) fn places(&self) -> Json {
        let started = self.started.places().into_iter().filter(|(key, _)| needs_restart(key));
        let now = self.in_force().config.places().into_iter().filter(|(key, _)| !needs_restart(key));
        started.chain(now).map(|(key, place)| (key, Json::from(place))).collect()
    }

    /// Reads the configuration and lets sessions begin with it from now on.
    ///
    /// # Errors
    /// Why the one in force stays.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: a reload that began runs to its end.
    pub(crate) async fn reload(self: &Arc<Self>, trigger: Trigger) -> Result<Report, Refused> {
        let this = self.clone();
        let running = self.tasks.spawn(async move {
            let result = Box::pin(this.take_in()).await;
            this.tell(trigger, &result);
            result
        });
        running.await.unwrap_or(Err(Refused::Leaving))
    }

    /// Waits for a reload that runs, once `stop` was said; for a file that does not answer no longer than it may take.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        let _ = timeout(READ_TIME, self.tasks.wait()).await;
    }

    async fn take_in(&self) -> Result<Report, Refused> {
        let _place = self.places.try_acquire().map_err(|_| Refused::Busy)?;
        let turn = tokio::select! {
            turn = timeout(READ_TIME, self.turn.clone().lock_owned()) => turn.map_err(|_| Refused::Busy)?,
            () = self.stop.cancelled() => return Err(Refused::Leaving),
        };
        if !self.orchestrator.is_ready() || self.stop.is_cancelled() {
            return Err(Refused::Leaving);
        }
        let sources = (self.sources)();
        // Whoever reads keeps the turn, also if nobody waits any more: a file that does not answer costs one thread.
        let reading = tokio::task::spawn_blocking(move || (load(&sources), turn));
        let Ok(Ok((loaded, _turn))) = timeout(READ_TIME, reading).await else { return Err(Refused::Unread) };
        let wanted = loaded.map_err(Refused::Invalid)?;

        let before = self.in_force();
        let needs_restart: Vec<Change> =
            wanted.changes_from(&self.started).into_iter().filter(|change| needs_restart(&change.key)).collect();
        let config = wanted.in_process_of(&self.started);
        let changed = config.changes_from(&before.config);
        let mut report = Report {
            previous_revision: before.config.revision().to_owned(),
            revision: config.revision().to_owned(),
            notices: config.notices().to_vec(),
            changed,
            needs_restart,
            left_out: Vec::new(),
        };
        if report.changed.is_empty() {
            let in_force = InForce { needs_restart: report.needs_restart.clone().into(), ..(*before).clone() };
            self.in_force.store(Arc::new(in_force));
            return Ok(report);
        }
        let setup = self.workshop.build(&config, Some(&self.orchestrator.setup())).await.map_err(Refused::Unbuildable)?;
        // Before the swap, so that no session begins without tools that are a moment away.
        let wanted = needed(setup.agents().values());
        report.left_out = tokio::select! {
            left_out = ask_servers(&setup, &wanted) => left_out,
            () = self.stop.cancelled() => return Err(Refused::Leaving),
        };
        self.metrics.preset(&known(&config, &setup));
        self.metrics.revision(config.revision());
        self.deadline_ms_max.fetch_max(config.limits().deadline_ms, Ordering::Relaxed);
        self.orchestrator.adopt(setup);
        let in_force = InForce { config: Arc::new(config), since_ms: wall_ms(), needs_restart: report.needs_restart.clone().into() };
        self.in_force.store(Arc::new(in_force));
        Ok(report)
    }

    /// One line of the log, and the metrics.
    fn tell(&self, trigger: Trigger, result: &Result<Report, Refused>) {
        let trigger = trigger.as_str();
        let keys = |changes: &[Change]| {
            let named: Vec<&str> = changes.iter().take(CHANGES_LOGGED_MAX).map(|change| change.key.as_str()).collect();
            let more = changes.len() - named.len();
            if more == 0 { named.join(", ") } else { format!("{}, and {more} more", named.join(", ")) }
        };
        match result {
            Ok(report) => {
                let Report { revision, changed, needs_restart, .. } = report;
                self.metrics.reloaded(report.outcome(), Some(true));
                for notice in &report.notices {
                    info!("{notice}");
                }
                if changed.is_empty() {
                    info!(trigger, revision, "configuration reloaded: nothing has changed");
                } else {
                    info!(trigger, revision, changed = keys(changed), "configuration reloaded");
                }
                if !needs_restart.is_empty() {
                    warn!(trigger, keys = keys(needs_restart), "the configuration says what only a restart brings");
                }
            }
            Err(Refused::Busy | Refused::Leaving) => {
                self.metrics.reloaded("refused", None);
                info!(trigger, "no reload now");
            }
            Err(refused @ (Refused::Invalid(_) | Refused::Unbuildable(_) | Refused::Unread)) => {
                self.metrics.reloaded("invalid", Some(false));
                let revision = self.in_force().config.revision().to_owned();
                warn!(trigger, revision, problem = %causes(refused), "the configuration cannot be used; the one in force stays");
            }
        }
    }
}

impl Report {
    /// `applied`, or `unchanged`.
    pub(crate) fn outcome(&self) -> &'static str {
        if self.changed.is_empty() { "unchanged" } else { "applied" }
    }
}

impl Trigger {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Request => "request",
        }
    }
}

/// An error with everything behind it.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

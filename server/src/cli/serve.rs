//! `ambit serve`: both listeners, until a signal says stop; then readiness goes first and sessions finish.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ambit_config::{Config, Sources};
use ambit_core::limit::SETTLEMENT_MS_MAX;
use ambit_orchestrator::wall_ms;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::app::{App, AppError, Ground, Role};
use crate::cli::failed_to_start;
use crate::exit;
use crate::http::{Api, Entrance, Front, admin_router, router};
use crate::listener::{self, Bounds};
use crate::output::say;
use crate::reload::watch::Watch;
use crate::reload::{Reloader, Trigger};
use crate::telemetry::logs;

/// How long connections may take to finish once everything else has ended.
const CLOSE: Duration = Duration::from_secs(5);

pub(crate) async fn serve(config: Arc<Config>, sources: impl Fn() -> Sources + Send + Sync + 'static) -> ExitCode {
    let log = &config.settings().telemetry.log;
    logs::init(log.level.as_str(), log.format == ambit_config::settings::LogFormat::Json);
    let Ok(mut signals) = Signals::new() else {
        say!("error: signals cannot be heard");
        return ExitCode::from(exit::FAILURE);
    };
    let server = &config.settings().server;
    let (api_listener, admin_listener) =
        match (bind("server.listen", &server.listen).await, bind("server.admin_listen", &server.admin_listen).await) {
            (Ok(api), Ok(admin)) => (api, admin),
            (Err(code), _) | (_, Err(code)) => return code,
        };
    let ground = match Ground::new(&config).await {
        Ok(ground) => ground,
        Err(failed) => return failed_to_start(&failed),
    };
    let watch = Watch::begin(&sources()).await;
    let front = Front { metrics: ground.metrics.clone(), traces: ground.traces.clone(), address: api_listener.1, rng: ground.rng.clone() };
    let [door, admin_door] = [(); 2].map(|()| Entrance::closed(front.clone(), ground.stage.clone()));
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    // Liveness is answered from here on; everything else as soon as it is there.
    info!(api = %api_listener.1, admin = %admin_listener.1, "starting");
    let bounds = Bounds { connections: server.connections as usize, head: server.head.0 };
    listener::listen(&tasks, &stop, api_listener.0, door.router(), bounds);
    listener::listen(&tasks, &stop, admin_listener.0, admin_door.router(), bounds);
    // MCP servers may take seconds to start; whoever wants to stop does not have to wait for them.
    let mut code = exit::DONE;
    let stopped = async { code = signals.end.told().await };
    let app = match App::start_on(ground, config.clone(), Role::Server, stopped).await {
        Ok(app) => app,
        Err(AppError::Stopped) => return ExitCode::from(code),
        Err(failed) => return failed_to_start(&failed),
    };
    let reloader = Reloader::new(&app, config.clone(), sources, stop.clone());
    let leave = CancellationToken::new();
    let api = Api {
        orchestrator: app.orchestrator.clone(),
        metrics: app.metrics.clone(),
        reloader: reloader.clone(),
        max_in_flight: server.max_in_flight as usize,
        front,
        store: Arc::default(),
        leave: leave.clone(),
        since_ms: wall_ms(),
    };
    door.open(router(api.clone()));
    admin_door.open(admin_router(api));
    say!("no authentication: only loopback is served, to whoever can reach it");
    say!("listening on http://{}", api_listener.1);
    say!("admin on http://{}", admin_listener.1);
    tasks.spawn(watch.run(reloader.clone(), stop.clone()));
    tasks.spawn(reload_on(signals.hang_up, reloader.clone(), stop.clone()));

    let mut end = signals.end;
    let code = tokio::select! {
        code = end.told() => code,
        () = leave.cancelled() => exit::DONE,
    };
    info!("draining: no new sessions, running ones finish");
    let hurry = CancellationToken::new();
    let patience = reloader.deadline_max() + Duration::from_millis(SETTLEMENT_MS_MAX);
    let again = async {
        end.told().await;
        hurry.cancel();
        // A third signal changes nothing: everything that is left has a deadline of its own.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = app.drain(patience, &hurry) => {}
        () = again => {}
    }
    // Streams still tell their last event from the journal: it is closed after them.
    stop.cancel();
    tasks.close();
    let _ = tokio::time::timeout(CLOSE, tasks.wait()).await;
    reloader.close().await;
    app.close().await;
    info!("stopped");
    ExitCode::from(code)
}

/// What the process hears. SIGHUP is heard from the first moment on: unheard it would end the process.
struct Signals {
    end: End,
    hang_up: Signal,
}

/// The signals that end it.
struct End {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let end = End { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
        Ok(Self { end, hang_up: signal(SignalKind::hangup())? })
    }
}

impl End {
    /// Waits for one. SIGTERM is how a server is ended in order: exit 0.
    async fn told(&mut self) -> u8 {
        tokio::select! {
            _ = self.term.recv() => exit::DONE,
            _ = self.int.recv() => exit::INTERRUPTED,
        }
    }
}

/// Reloads whenever the signal comes. Several that come together are one.
async fn reload_on(mut hang_up: Signal, reloader: Arc<Reloader>, stop: CancellationToken) {
    loop {
        tokio::select! {
            heard = hang_up.recv() => if heard.is_none() { return },
            () = stop.cancelled() => return,
        }
        // What it comes to is told in the log.
        let _ = reloader.reload(Trigger::Signal).await;
    }
}

async fn bind(key: &str, address: &str) -> Result<(TcpListener, SocketAddr), ExitCode> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, address))
    };
    bound.await.map_err(|failed| {
        say!("error: cannot listen on {address} (`{key}`): {failed}\nhint: another process may have it; port 0 takes any free one");
        ExitCode::from(exit::UNAVAILABLE)
    })
}

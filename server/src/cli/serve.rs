//! `ambit serve`: both listeners, until a signal says stop; then readiness goes first and sessions finish.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ambit_config::Config;
use ambit_core::limit::SETTLEMENT_MS_MAX;
use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::app::{App, Role};
use crate::cli::failed_to_start;
use crate::exit;
use crate::http::{Api, admin_router, router};
use crate::output::say;
use crate::telemetry::logs;

/// How long connections may take to finish once everything else has ended.
const CLOSE: Duration = Duration::from_secs(5);

pub(crate) async fn serve(config: Arc<Config>) -> ExitCode {
    let log = &config.settings().telemetry.log;
    logs::init(log.level.as_str(), log.format == ambit_config::settings::LogFormat::Json);
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        say!("error: signals cannot be heard");
        return ExitCode::from(exit::FAILURE);
    };
    let server = &config.settings().server;
    let (api_listener, admin_listener) =
        match (bind("server.listen", &server.listen).await, bind("server.admin_listen", &server.admin_listen).await) {
            (Ok(api), Ok(admin)) => (api, admin),
            (Err(code), _) | (_, Err(code)) => return code,
        };
    let starting = tokio::select! {
        starting = App::start(config.clone(), Role::Server) => starting,
        // MCP servers may take seconds to start; whoever wants to stop does not have to wait for them.
        code = told(&mut term, &mut int) => return ExitCode::from(code),
    };
    let app = match starting {
        Ok(app) => app,
        Err(failed) => return failed_to_start(&failed),
    };
    let api = Api {
        orchestrator: app.orchestrator.clone(),
        metrics: app.metrics.clone(),
        traces: app.traces.clone(),
        config: config.clone(),
        max_in_flight: server.max_in_flight as usize,
        request: config.request().0,
        address: Arc::new(OnceLock::from(api_listener.1)),
        rng: app.rng.clone(),
    };
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    say!("no authentication: only loopback is served, to whoever can reach it");
    say!("listening on http://{}", api_listener.1);
    say!("admin on http://{}", admin_listener.1);
    listen(&tasks, &stop, api_listener.0, router(api.clone()));
    listen(&tasks, &stop, admin_listener.0, admin_router(api));

    let code = told(&mut term, &mut int).await;
    info!("draining: no new sessions, running ones finish");
    let hurry = CancellationToken::new();
    let patience = Duration::from_millis(config.limits().deadline_ms + SETTLEMENT_MS_MAX);
    let again = async {
        told(&mut term, &mut int).await;
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
    app.close().await;
    info!("stopped");
    ExitCode::from(code)
}

/// Waits for a signal. SIGTERM is how a server is ended in order: exit 0.
async fn told(term: &mut Signal, int: &mut Signal) -> u8 {
    tokio::select! {
        _ = term.recv() => exit::DONE,
        _ = int.recv() => exit::INTERRUPTED,
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

fn listen(tasks: &TaskTracker, stop: &CancellationToken, listener: TcpListener, router: Router) {
    // Small writes, each a whole event: waiting for more of them costs a client 40 ms.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let stop = stop.clone();
    tasks.spawn(async move {
        let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    });
}

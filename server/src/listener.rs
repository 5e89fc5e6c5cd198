//! Accepts connections within bounds: how many there are, how long a head may take, how large it may be.
//!
//! A connection holds a place from its accept to its end. Without a free place nothing is accepted: further connections
//! wait in the system's queue, whose length is bounded too. A task a connection, owned by the tracker that is given.
//!
//! HTTP/1.1 alone is spoken: a reader that takes nothing stops its socket, which [`Unstalled`] sees. On a connection of
//! HTTP/2 a reader could shut its window, answer every ping, and hold what is on its way for as long as it likes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::stall::Unstalled;

/// Largest head of a request, bytes: twice what common proxies let through. A larger one is answered 431.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most headers of a request. More are answered 431.
const HEADERS_MAX: usize = 100;
/// Wait after the system refused a connection, most often for want of open files: accepting again at once would spin.
const REFUSED: Duration = Duration::from_millis(200);

/// What a listener allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections at once.
    pub(crate) connections: usize,
    /// From the first byte of a head to its last, and between two requests of a connection.
    pub(crate) head: Duration,
}

/// Serves a listener until `stop`; open requests are then finished, and each connection closed behind its last.
pub(crate) fn listen(tasks: &TaskTracker, stop: &CancellationToken, listener: TcpListener, router: Router, bounds: Bounds) {
    let (own, stop) = (tasks.clone(), stop.clone());
    tasks.spawn(async move {
        let mut server = Builder::new();
        // The buffer alone may hold a little more than its bound.
        server.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(HEAD_BYTES_MAX);
        server.max_header_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(bounds.connections));
        while let Some((stream, place)) = accepted(&listener, &places, &stop).await {
            let watcher = graceful.watcher();
            let (server, router) = (server.clone(), router.clone());
            own.spawn(async move {
                let service = TowerToHyperService::new(router);
                // Its errors are the peer's: it left, or said what is no HTTP.
                let _ = watcher.watch(server.serve_connection(TokioIo::new(Unstalled::new(stream)), service)).await;
                drop(place);
            });
        }
        drop(listener);
        graceful.shutdown().await;
    });
}

/// The next connection with its place; `None` once it is time to stop.
async fn accepted(listener: &TcpListener, places: &Arc<Semaphore>, stop: &CancellationToken) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = tokio::select! {
        place = places.clone().acquire_owned() => place.ok()?,
        () = stop.cancelled() => return None,
    };
    // Ends with a connection or the stop; a refusal is waited out.
    loop {
        tokio::select! {
            incoming = listener.accept() => match incoming {
                Ok((stream, _)) => {
                    // Small writes, each a whole event: waiting for more of them costs a client 40 ms.
                    let _ = stream.set_nodelay(true);
                    return Some((stream, place));
                }
                Err(refused) => {
                    warn!(error = %refused, "a connection could not be accepted");
                    sleep(REFUSED).await;
                }
            },
            () = stop.cancelled() => return None,
        }
    }
}

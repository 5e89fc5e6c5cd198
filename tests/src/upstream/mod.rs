//! A provider and HTTP tools of our own, in process, that play scripts.
//!
//! HTTP/1.1 is written by hand on tokio, because a library would refuse to do what has to be tested: resets before and
//! after reading, bodies cut at a byte, chunks that split a character, silence at any point.
//!
//! ```text
//! let provider = Upstream::start("500, 429(ra=1), ok(hello)").await;             // the notation of the fault list
//! let tools = Upstream::builder()
//!     .route("lookup", "/tools/lookup", Act::json(json!({"id": 7})))              // or builders
//!     .start().await;
//! ```
//!
//! - A [`Script`] is a list of [`Act`]s, one for each arrival; the last one repeats. See [`Act`] for what can be played,
//!   [`notation`] for the short form and [`data`] for the JSON/TOML form.
//! - A route is a path (`*` at its end matches the rest) and, if wanted, a model name. Each has its own script and
//!   its own counters. A model is asked in any of the forms of [`Shape`], by its path, and answers in the same form. What no route takes is answered 404 and counted as a stray.
//! - Every arrival is recorded ([`Arrival`]): head, body, order, and how it ended ([`Fate`]).
//!
//! *Invariants.* Acts are handed out in the order in which requests were read whole. Dropping the upstream closes its
//! port and all of its connections. Bodies, heads and records are bounded ([`limit`]).

mod act;
pub mod data;
mod gzip;
mod history;
pub mod limit;
mod messages;
pub mod notation;
mod play;
mod record;
mod reply;
mod responses;
mod script;
mod shape;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

pub use act::{Act, Framing, Halt, Piece, Point};
pub use data::ScriptError;
pub use history::check_history;
pub use record::{Arrival, Fate, Seen};
pub use reply::{Call, LineEnd, Reply, UsageChunk};
pub use script::{Order, Script};
pub use shape::Shape;

use record::Shared;
use script::{Place, Route};

/// Path of chat completions below [`Upstream::base_url`].
pub const CHAT_PATH: &str = "/v1/chat/completions";

/// A running fake. Dropping it closes the port and every connection.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

impl Upstream {
    /// Starts a provider that plays one script for every request to a model, whatever its form and the model. The route is
    /// `chat`.
    ///
    /// # Panics
    /// When no port can be had, or the notation is broken.
    pub async fn start(script: impl Into<Script>) -> Upstream {
        Upstream::builder().chat(script).start().await
    }

    /// A fake with several routes.
    #[must_use]
    pub fn builder() -> Builder {
        Builder { routes: Vec::new() }
    }

    /// An address on which nothing listens and nothing will while the value lives: connections are refused.
    ///
    /// # Panics
    /// When no port can be had.
    #[must_use]
    pub fn refused() -> Refused {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(loopback()).expect("a port on loopback");
        Refused { address: socket.local_addr().expect("a bound socket"), _socket: socket }
    }

    /// The base URL to configure as a provider's: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The URL of `path`, which starts with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters of all routes together.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.seen(None)
    }

    /// The counters of one route.
    ///
    /// # Panics
    /// When there is no such route.
    #[must_use]
    pub fn seen_on(&self, route: &str) -> Seen {
        self.shared.seen(Some(route))
    }

    /// Requests that arrived so far, on all routes.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.seen().calls
    }

    /// Requests that the peer gave up before they were answered whole.
    #[must_use]
    pub fn aborted(&self) -> usize {
        self.seen().aborted
    }

    /// Every arrival in order, at most [`limit::RECORDED_MAX`].
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals()
    }

    /// The arrivals of one route in order.
    #[must_use]
    pub fn arrivals_on(&self, route: &str) -> Vec<Arrival> {
        self.shared.arrivals().into_iter().filter(|arrival| &*arrival.route == route).collect()
    }

    /// Replaces the script of a route; arrivals from now on start at its first act.
    ///
    /// # Panics
    /// When there is no such route.
    pub fn play(&self, route: &str, script: impl Into<Script>) {
        self.shared.play(route, script.into());
    }

    /// Lets go of everything that waits at a hold point ([`Act::held_at`]), now and from now on.
    pub fn release(&self) {
        self.shared.gate.send_replace(true);
    }

    /// Arms the hold points again.
    pub fn hold(&self) {
        self.shared.gate.send_replace(false);
    }

    /// Waits until the counters of all routes satisfy `condition`, at most [`crate::WAIT_MAX`].
    ///
    /// # Panics
    /// When the time is up, with the counters as they then were.
    pub async fn wait_for(&self, what: &str, condition: impl Fn(&Seen) -> bool) -> Seen {
        self.shared.wait_for(what, condition).await
    }

    /// Asserts that every recorded request to a model carried a sound history: each call answered exactly once, in order.
    ///
    /// # Panics
    /// On the first request that did not, with what was wrong.
    pub fn assert_history(&self) {
        for arrival in self.shared.arrivals() {
            if let (Some(body), Some(shape)) = (&arrival.body, arrival.shape())
                && let Err(fault) = check_history(shape, body)
            {
                panic!("request {} carries a broken history: {fault}\n{body:#}", arrival.index);
            }
        }
    }

    /// Asserts that nothing arrived outside the routes, that no script ran out, and that every history was sound.
    ///
    /// # Panics
    /// Otherwise, saying which.
    pub fn assert_clean(&self) {
        let faults = self.shared.faults();
        assert!(faults.is_empty(), "the fake saw what it should not have seen: {faults:#?}");
        self.assert_history();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// A port that refuses connections while this value lives.
#[derive(Debug)]
pub struct Refused {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl Refused {
    /// The base URL to configure as a provider's.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The URL of `path`, which starts with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Routes of a fake before it starts; the first that matches an arrival takes it.
#[derive(Debug)]
pub struct Builder {
    routes: Vec<Route>,
}

impl Builder {
    /// Requests to any model in any form, as route `chat`.
    #[must_use]
    pub fn chat(self, script: impl Into<Script>) -> Builder {
        self.push("chat", Place::Models, None, script.into())
    }

    /// Requests that ask for this model, as a route of the model's name.
    #[must_use]
    pub fn model(self, model: &str, script: impl Into<Script>) -> Builder {
        self.push(model, Place::Models, Some(model), script.into())
    }

    /// Any method on a path; `*` at its end matches the rest. For tools, as a route of the given name.
    #[must_use]
    pub fn route(self, name: &str, path: &str, script: impl Into<Script>) -> Builder {
        self.push(name, Place::Path(path.to_owned()), None, script.into())
    }

    fn push(mut self, name: &str, place: Place, model: Option<&str>, script: Script) -> Builder {
        self.routes.push(Route::new(name, place, model, script));
        self
    }

    /// Binds a port of loopback and starts to answer.
    ///
    /// # Panics
    /// When no port can be had, when two routes share a name, or when a script that answers before reading (`rst0`, `deaf`)
    /// shares its port with another: nobody could tell whose turn it is.
    pub async fn start(self) -> Upstream {
        for (i, route) in self.routes.iter().enumerate() {
            assert!(!self.routes[..i].iter().any(|r| r.name == route.name), "two routes are named `{}`", route.name);
            assert!(
                self.routes.len() == 1 || !route.script.answers_unread(),
                "route `{}` answers before reading and so needs a port of its own",
                route.name
            );
        }
        let listener = TcpListener::bind(loopback()).await.expect("a port on loopback");
        let address = listener.local_addr().expect("a bound listener");
        let shared = Arc::new(Shared::new(self.routes));
        let acceptor = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Upstream { address, shared, acceptor }
    }
}

/// Owns the connections: aborting this task aborts them all.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An accept error (a peer that left already, no descriptors) concerns one connection only.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(play::connection(stream, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

//! What the fake remembers: arrivals, how they ended, counters. The one place that hands out acts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::act::Act;
use super::limit::RECORDED_MAX;
use super::reply::Asked;
use super::script::{Route, Script};
use super::shape::{Said, Shape};
use super::wire::Request;

/// How an arrival ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is still being answered.
    Playing,
    /// Its answer was written whole.
    Finished,
    /// The script ended it by an accident.
    Halted,
    /// The peer left before the answer was whole, or while the fake kept silent.
    Aborted,
}

/// One request that was read whole, or a connection that an act ended before reading (then without method and body).
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its place in the order of all arrivals, from 0.
    pub index: usize,
    /// The route that took it; empty for a stray.
    pub route: Arc<str>,
    /// Its place in the order of its route, from 0.
    pub nth: usize,
    /// When it had been read.
    pub at: Instant,
    /// The method.
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// Names in lower case with their values, in the order sent.
    pub headers: Vec<(String, String)>,
    /// The body as sent.
    pub raw: Bytes,
    /// The body, if it is JSON.
    pub body: Option<Value>,
    /// How it ended, when it was looked at.
    pub fate: Fate,
}

impl Arrival {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The form of a request to a model; `None` for what is none.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        Shape::of(&self.target)
    }

    /// The tool results in the history of a request to a model: call id and content.
    #[must_use]
    pub fn tool_results(&self) -> Vec<(String, String)> {
        let history = self.body.as_ref().and_then(|body| self.shape()?.history(body).ok());
        let result = |said| match said {
            Said::Result(id, content) => Some((id, content.unwrap_or_default())),
            Said::Words | Said::Turn(_) => None,
        };
        history.into_iter().flatten().filter_map(result).collect()
    }

    /// The names of the tools that a request to a model offered.
    #[must_use]
    pub fn offered(&self) -> Vec<String> {
        self.body.as_ref().map(|body| self.shape().unwrap_or_default().offered(body)).unwrap_or_default()
    }
}

/// Counters of one route or of all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Arrivals.
    pub calls: usize,
    /// Those that are being answered now.
    pub in_flight: usize,
    /// The most that ever were at the same time.
    pub max_in_flight: usize,
    /// Those answered whole.
    pub finished: usize,
    /// Those that the script ended by an accident.
    pub halted: usize,
    /// Those that the peer gave up.
    pub aborted: usize,
}

impl Seen {
    fn begin(&mut self) {
        self.calls += 1;
        self.in_flight += 1;
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
    }

    fn end(&mut self, fate: Fate) {
        self.in_flight -= 1;
        match fate {
            Fate::Playing => {}
            Fate::Finished => self.finished += 1,
            Fate::Halted => self.halted += 1,
            Fate::Aborted => self.aborted += 1,
        }
    }
}

#[derive(Debug)]
struct State {
    all: Seen,
    routes: Vec<(Route, Seen)>,
    arrivals: Vec<Arrival>,
    faults: Vec<String>,
}

/// The state of a fake, shared by its connections.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    pub(super) gate: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(routes: Vec<Route>) -> Shared {
        let routes = routes.into_iter().map(|route| (route, Seen::default())).collect();
        Shared {
            state: Mutex::new(State { all: Seen::default(), routes, arrivals: Vec::new(), faults: Vec::new() }),
            changed: watch::Sender::new(()),
            gate: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next act if it must be played before the request is read. The builder has seen to it that then there
    /// is one route only.
    pub(super) fn arrive_unread(self: &Arc<Self>) -> Option<(Ticket, Act)> {
        let mut state = self.state();
        let act = state.routes.first().and_then(|(route, _)| route.unread())?;
        state.routes[0].0.take(Shape::default(), None);
        let ticket = self.record(&mut state, Some(0), Request::default(), None);
        Some((ticket, act))
    }

    /// Records an arrival and hands it its act.
    pub(super) fn arrive(self: &Arc<Self>, request: Request) -> (Ticket, Act, Asked) {
        let body = serde_json::from_slice::<Value>(&request.body).ok();
        let path = request.target.split('?').next().unwrap_or_default().to_owned();
        let shape = Shape::of(&path).unwrap_or_default();
        let mut state = self.state();
        let route = state.routes.iter().position(|(route, _)| route.takes(&path, body.as_ref()));
        let act = match route {
            Some(at) => state.routes[at].0.take(shape, body.as_ref()).unwrap_or_else(|| {
                let fault = format!("the script of route `{}` is exhausted", state.routes[at].0.name);
                state.faults.push(fault);
                Act::json(serde_json::json!({"error": {"message": "script exhausted"}})).status(500)
            }),
            None => {
                state.faults.push(format!("no route takes {} {}", request.method, request.target));
                Act::error(404)
            }
        };
        let nth = route.map_or(0, |at| state.routes[at].1.calls);
        let asked = Asked::of(nth, shape, body.as_ref());
        let ticket = self.record(&mut state, route, request, body);
        (ticket, act, asked)
    }

    fn record(self: &Arc<Self>, state: &mut State, route: Option<usize>, request: Request, body: Option<Value>) -> Ticket {
        let index = state.all.calls;
        state.all.begin();
        let (name, nth) = match route.and_then(|at| state.routes.get_mut(at)) {
            Some((route, seen)) => {
                seen.begin();
                (Arc::clone(&route.name), seen.calls - 1)
            }
            None => ("".into(), 0),
        };
        if index < RECORDED_MAX {
            let Request { method, target, headers, body: raw } = request;
            let at = Instant::now();
            let fate = Fate::Playing;
            state.arrivals.push(Arrival { index, route: name, nth, at, method, target, headers, raw, body, fate });
        }
        self.changed.send_replace(());
        Ticket { shared: Arc::clone(self), index, route, ended: false }
    }

    pub(super) fn seen(&self, route: Option<&str>) -> Seen {
        let state = self.state();
        match route {
            None => state.all,
            Some(name) => match state.routes.iter().find(|(route, _)| &*route.name == name) {
                Some((_, seen)) => *seen,
                None => panic!("there is no route `{name}`"),
            },
        }
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.state().arrivals.clone()
    }

    pub(super) fn faults(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    pub(super) fn play(&self, name: &str, script: Script) {
        let mut state = self.state();
        assert!(state.routes.len() == 1 || !script.answers_unread(), "a script that answers before reading needs a port of its own");
        match state.routes.iter_mut().find(|(route, _)| &*route.name == name) {
            Some((route, _)) => {
                route.script = script;
                route.played = 0;
            }
            None => panic!("there is no route `{name}`"),
        }
    }

    pub(super) async fn wait_for(&self, what: &str, condition: impl Fn(&Seen) -> bool) -> Seen {
        let mut changes = self.changed.subscribe();
        let reached = async {
            loop {
                changes.mark_unchanged();
                let seen = self.seen(None);
                if condition(&seen) || changes.changed().await.is_err() {
                    return seen;
                }
            }
        };
        match tokio::time::timeout(crate::WAIT_MAX, reached).await {
            Ok(seen) => seen,
            Err(_) => panic!("waited in vain for {what}; the fake has {:?}", self.seen(None)),
        }
    }
}

/// One arrival that is being answered. Dropped without an end (the upstream itself was dropped) it counts as halted.
#[derive(Debug)]
pub(super) struct Ticket {
    shared: Arc<Shared>,
    index: usize,
    route: Option<usize>,
    ended: bool,
}

impl Ticket {
    pub(super) fn end(mut self, fate: Fate) {
        self.note(fate);
    }

    fn note(&mut self, fate: Fate) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut state = self.shared.state();
        state.all.end(fate);
        if let Some((_, seen)) = self.route.and_then(|at| state.routes.get_mut(at)) {
            seen.end(fate);
        }
        if let Some(arrival) = state.arrivals.get_mut(self.index) {
            arrival.fate = fate;
        }
        drop(state);
        self.shared.changed.send_replace(());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.note(Fate::Halted);
    }
}

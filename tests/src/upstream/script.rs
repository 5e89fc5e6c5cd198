//! A script: the acts of one route and the rule by which arrivals get them.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::act::Act;
use super::data::ScriptError;
use super::limit;
use super::notation;
use super::shape::{Said, Shape};

/// Which act an arrival gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The n-th arrival gets the n-th act.
    #[default]
    Arrival,
    /// A request whose history holds n answers of the model gets act n (from 0): many sessions can play one script
    /// at the same time.
    Turn,
}

/// The acts of one route. The last one repeats, unless the script is strict.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct Script {
    acts: Vec<Act>,
    order: Order,
    strict: bool,
    tools_off: Option<Act>,
}

impl TryFrom<Value> for Script {
    type Error = ScriptError;

    fn try_from(value: Value) -> Result<Script, ScriptError> {
        super::data::script(value)
    }
}

impl Script {
    /// A script of these acts, by arrival, the last one repeating.
    #[must_use]
    pub fn new(acts: impl IntoIterator<Item = Act>) -> Script {
        Script { acts: acts.into_iter().take(limit::ACTS_MAX).collect(), order: Order::Arrival, strict: false, tools_off: None }
    }

    pub(super) fn ruled(acts: Vec<Act>, order: Order, strict: bool, tools_off: Option<Act>) -> Script {
        Script { order, strict, tools_off, ..Script::new(acts) }
    }

    /// Handed out by turn of the session instead of by arrival.
    #[must_use]
    pub fn by_turn(mut self) -> Script {
        self.order = Order::Turn;
        self
    }

    /// After the last act the fake answers 500 `script exhausted` and [`super::Upstream::assert_clean`] fails.
    #[must_use]
    pub fn strict(mut self) -> Script {
        self.strict = true;
        self
    }

    /// Requests with tools switched off (`tool_choice: none`, or no tools) get this act, whatever their turn: a model that
    /// does as it is told.
    #[must_use]
    pub fn when_tools_are_off(mut self, act: Act) -> Script {
        self.tools_off = Some(act);
        self
    }

    pub(super) fn answers_unread(&self) -> bool {
        self.acts.iter().any(Act::is_unread)
    }

    /// Act number `nth`, from 0; `None` when a strict script has run out.
    fn act(&self, nth: usize) -> Option<&Act> {
        let last = self.acts.len().saturating_sub(1);
        if self.strict { self.acts.get(nth) } else { self.acts.get(nth.min(last)) }
    }
}

impl From<Act> for Script {
    fn from(act: Act) -> Script {
        Script::new([act])
    }
}

impl<const N: usize> From<[Act; N]> for Script {
    fn from(acts: [Act; N]) -> Script {
        Script::new(acts)
    }
}

impl From<Vec<Act>> for Script {
    fn from(acts: Vec<Act>) -> Script {
        Script::new(acts)
    }
}

impl From<&str> for Script {
    /// # Panics
    /// When the notation is broken.
    fn from(text: &str) -> Script {
        match notation::script(text) {
            Ok(script) => script,
            Err(fault) => panic!("script `{text}`: {fault}"),
        }
    }
}

/// Where a route listens.
#[derive(Debug)]
pub(super) enum Place {
    /// The paths of models, of every form.
    Models,
    /// One path; `*` at its end matches the rest.
    Path(String),
}

/// A path and model with their script.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) name: Arc<str>,
    place: Place,
    model: Option<String>,
    pub(super) script: Script,
    /// Arrivals handed an act of this script so far.
    pub(super) played: usize,
}

impl Route {
    pub(super) fn new(name: &str, place: Place, model: Option<&str>, script: Script) -> Route {
        Route { name: name.into(), place, model: model.map(str::to_owned), script, played: 0 }
    }

    /// Whether the route takes this path (without query) and body.
    pub(super) fn takes(&self, path: &str, body: Option<&Value>) -> bool {
        let on_path = match &self.place {
            Place::Models => Shape::of(path).is_some(),
            Place::Path(own) => own.strip_suffix('*').map_or_else(|| path == own, |prefix| path.starts_with(prefix)),
        };
        let asked = || body.and_then(|body| body.get("model")).and_then(Value::as_str);
        on_path && (self.model.is_none() || self.model.as_deref() == asked())
    }

    /// The act that the next arrival gets if it must be played before reading.
    pub(super) fn unread(&self) -> Option<Act> {
        self.script.act(self.played).filter(|act| act.is_unread()).cloned()
    }

    /// Takes the act for an arrival of this form with this body; `None` when a strict script has run out.
    pub(super) fn take(&mut self, shape: Shape, body: Option<&Value>) -> Option<Act> {
        let nth = match self.script.order {
            Order::Arrival => self.played,
            Order::Turn => turns(shape, body),
        };
        self.played += 1;
        match &self.script.tools_off {
            Some(act) if body.is_some_and(|body| shape.are_tools_off(body)) => Some(act.clone()),
            Some(_) | None => self.script.act(nth).cloned(),
        }
    }
}

/// Answers of the model in the history of a request.
fn turns(shape: Shape, body: Option<&Value>) -> usize {
    let history = body.and_then(|body| shape.history(body).ok());
    history.map_or(0, |all| all.iter().filter(|said| matches!(said, Said::Turn(_))).count())
}

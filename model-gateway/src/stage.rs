//! What the legs of one call share: what was passed on, what is held back, what each leg cost.
//!
//! A leg's future may be dropped at any moment (a timeout, the deadline), so nothing of this lives inside it.
//!
//! The rule of held text: where a turn may still turn into tool calls, its text is kept back until the turn has ended
//! without calls, or until it has been arriving for `hold` without a call having begun. From the first piece passed on
//! the call is committed: nothing is repeated. Where no tool may be called there is nothing to wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ambit_core::port::TextSink;
use ambit_resilience::{Committed, Failure, Leg};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::dialect::Answer;
use crate::usage::{Bill, Usage};

/// Longest text for people that is kept of a failure, characters.
const DETAIL_CHARS_MAX: usize = 500;
/// Where a request stands in a distributed trace (W3C Trace Context).
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What other tracing systems pass along.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The state of one logical call.
pub(crate) struct Stage<'a> {
    sink: Option<&'a dyn TextSink>,
    /// `None`: no tool may be called, nothing is held.
    hold: Option<Duration>,
    trace_state: Option<&'a str>,
    committed: Committed,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// True once the first piece was passed on.
    live: bool,
    passed: String,
    held: String,
    held_since: Option<Instant>,
    call_begun: bool,
    bills: Vec<Bill>,
    detail: Option<String>,
    empty: Option<Answer>,
}

/// The stage as one leg sees it.
pub(crate) struct LegStage<'a> {
    stage: &'a Stage<'a>,
    leg: Leg<'a>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(sink: Option<&'a dyn TextSink>, hold: Option<Duration>, trace_state: Option<&'a str>) -> Self {
        Self { sink, hold, trace_state, committed: Committed::new(), state: Mutex::new(State::default()) }
    }

    pub(crate) const fn committed(&self) -> &Committed {
        &self.committed
    }

    /// A leg begins with nothing held and nothing known of its cost.
    pub(crate) fn leg(&'a self, leg: Leg<'a>) -> LegStage<'a> {
        let mut state = self.lock();
        state.held.clear();
        state.held_since = None;
        state.call_begun = false;
        state.bills.push(Bill::Unknown);
        drop(state);
        LegStage { stage: self, leg }
    }

    /// What leg `index` (from 0) cost.
    pub(crate) fn bill(&self, index: usize) -> Bill {
        self.lock().bills.get(index).copied().unwrap_or(Bill::Unknown)
    }

    /// The text that was passed on.
    pub(crate) fn passed(&self) -> Option<String> {
        let state = self.lock();
        (!state.passed.is_empty()).then(|| state.passed.clone())
    }

    /// The text that arrived before the last leg broke off: what was passed on, else what was held or nobody heard.
    /// Words before calls are no answer.
    pub(crate) fn produced(&self) -> Option<String> {
        let state = self.lock();
        let text = if state.passed.is_empty() && !state.call_begun { &state.held } else { &state.passed };
        (!text.is_empty()).then(|| text.clone())
    }

    /// What the last failed leg had to say to people.
    pub(crate) fn detail(&self) -> Option<String> {
        self.lock().detail.take()
    }

    /// The answer that was empty, if that is how it ended.
    pub(crate) fn take_empty(&self) -> Option<Answer> {
        self.lock().empty.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LegStage<'_> {
    /// The first valid token is there.
    pub(crate) fn first_token(&self) {
        self.leg.first_token();
    }

    /// The provider answered with this HTTP status.
    pub(crate) fn status(&self, status: u16) {
        self.leg.status(status);
    }

    /// Adds what tells the provider where this request stands in a distributed trace. Baggage goes to nobody.
    pub(crate) fn trace(&self, headers: &mut HeaderMap) {
        let Some(parent) = self.leg.trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok()) else { return };
        headers.insert(TRACEPARENT, parent);
        if let Some(state) = self.stage.trace_state.and_then(|state| HeaderValue::try_from(state).ok()) {
            headers.insert(TRACESTATE, state);
        }
    }

    /// When the whole answer must be there.
    pub(crate) const fn end_by(&self) -> Instant {
        self.leg.end_by
    }

    /// True if somebody reads along.
    pub(crate) const fn is_heard(&self) -> bool {
        self.stage.sink.is_some()
    }

    /// A piece of text arrived.
    pub(crate) fn text(&self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let mut state = self.stage.lock();
        if !self.is_heard() {
            state.held.push_str(piece);
            return;
        }
        if state.live || self.stage.hold.is_none() {
            self.pass(&mut state, piece);
            return;
        }
        state.held.push_str(piece);
        let since = *state.held_since.get_or_insert_with(Instant::now);
        if !state.call_begun && self.stage.hold.is_some_and(|hold| since.elapsed() >= hold) {
            self.pass_held(&mut state);
        }
    }

    /// The turn asks for a call: what is still held stays held.
    pub(crate) fn call_begun(&self) {
        self.stage.lock().call_begun = true;
    }

    /// When held text is due to be passed on, should nothing else arrive.
    pub(crate) fn release_at(&self) -> Option<Instant> {
        let state = self.stage.lock();
        let since = state.held_since.filter(|_| !state.live && !state.call_begun)?;
        self.stage.hold.map(|hold| since + hold)
    }

    /// Passes on what is held.
    pub(crate) fn release(&self) {
        self.pass_held(&mut self.stage.lock());
    }

    /// The turn is whole: held text is its answer, unless it asks for calls.
    pub(crate) fn whole(&self, answer: &Answer) {
        if let Some(usage) = answer.usage {
            self.leg.usage(usage.input, usage.output);
        }
        if answer.calls.is_empty() {
            self.release();
        }
    }

    /// The provider said what the leg used.
    pub(crate) fn reported(&self, usage: Usage) {
        self.set_bill(Bill::Reported(usage));
    }

    /// The leg cost nothing.
    pub(crate) fn unbilled(&self) {
        self.set_bill(Bill::Nothing);
    }

    /// What is known of the leg's cost.
    pub(crate) fn bill(&self) -> Bill {
        self.stage.lock().bills.last().copied().unwrap_or(Bill::Unknown)
    }

    /// Keeps words for people beside a failure.
    pub(crate) fn fails(&self, failure: Failure, detail: &str) -> Failure {
        self.stage.lock().detail = Some(one_line(detail));
        failure
    }

    /// Keeps an answer that counts as a failure for every layer but the caller's.
    pub(crate) fn keep_empty(&self, answer: Answer) {
        self.stage.lock().empty = Some(answer);
    }

    fn set_bill(&self, bill: Bill) {
        if let Some(last) = self.stage.lock().bills.last_mut() {
            *last = bill;
        }
    }

    fn pass_held(&self, state: &mut State) {
        let held = std::mem::take(&mut state.held);
        if !held.is_empty() {
            self.pass(state, &held);
        }
    }

    fn pass(&self, state: &mut State, piece: &str) {
        let Some(sink) = self.stage.sink else { return };
        // Before the piece leaves, so that no moment exists in which it is out and the call still repeatable.
        self.leg.commit();
        state.live = true;
        state.passed.push_str(piece);
        sink.text(piece);
    }
}

/// One line without control characters, at most [`DETAIL_CHARS_MAX`] characters.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        for c in (chars > 0).then_some(' ').into_iter().chain(word.chars()) {
            if chars == DETAIL_CHARS_MAX {
                return line;
            }
            line.push(c);
            chars += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_people_are_one_bounded_line() {
        assert_eq!(one_line("  a\r\n\tb\u{0}c  "), "a b c");
        assert_eq!(one_line(&"x".repeat(DETAIL_CHARS_MAX)).len(), DETAIL_CHARS_MAX);
        assert_eq!(one_line(&"x".repeat(DETAIL_CHARS_MAX + 1)).len(), DETAIL_CHARS_MAX);
        assert_eq!(one_line(&"é ".repeat(DETAIL_CHARS_MAX)).chars().count(), DETAIL_CHARS_MAX);
    }
}

//! Events that wait for the span that will show them: a span is made when it is over, and they come before.
//!
//! Bounded on both sides. What is forgotten is an event in a trace, never a span.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ambit_core::{SessionId, Step};
use opentelemetry::trace::Event;
use opentelemetry_sdk::trace::SpanEvents;

/// Most spans that events wait for: far above what runs at once. The oldest session's are forgotten first.
const SPANS_MAX: usize = 4_096;
/// Most events that one span shows; of a call that is retried eight times each is there.
const EVENTS_MAX: usize = 32;

/// Which span: that of a step, or of its whole session. Sessions sort by age.
pub(super) type Of = (SessionId, Option<Step>);

/// Events by the span that they wait for.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<BTreeMap<Of, SpanEvents>>);

impl Waiting {
    /// Keeps an event for a span.
    pub(super) fn put(&self, of: Of, event: Event) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let events = waiting.entry(of).or_default();
        if events.events.len() < EVENTS_MAX {
            events.events.push(event);
        } else {
            events.dropped_count += 1;
        }
        if waiting.len() > SPANS_MAX {
            waiting.pop_first();
        }
    }

    /// The events of a span that is over.
    pub(super) fn take(&self, of: Of) -> SpanEvents {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&of).unwrap_or_default()
    }

    /// For how many spans events wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(nth: usize) -> SessionId {
        format!("ses_{nth:026}").parse().unwrap()
    }

    #[test]
    fn a_span_shows_as_many_events_as_fit_and_counts_the_rest() {
        let waiting = Waiting::default();
        for _ in 0..=EVENTS_MAX {
            waiting.put((session(1), None), Event::with_name("e"));
        }
        let events = waiting.take((session(1), None));
        assert_eq!((events.events.len(), events.dropped_count), (EVENTS_MAX, 1));
        assert!(waiting.take((session(1), None)).events.is_empty() && waiting.len() == 0);
    }

    #[test]
    fn the_oldest_session_is_forgotten_first() {
        let waiting = Waiting::default();
        for nth in 0..=SPANS_MAX {
            waiting.put((session(nth), Some(Step(1))), Event::with_name("e"));
        }
        assert_eq!(waiting.len(), SPANS_MAX);
        assert!(waiting.take((session(0), Some(Step(1)))).events.is_empty());
        assert_eq!(waiting.take((session(1), Some(Step(1)))).events.len(), 1);
    }
}

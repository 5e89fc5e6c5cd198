//! The sessions that run in this process: how to reach each, and how many there are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ambit_core::session::Canceller;
use ambit_core::signal::{DependencyKind, Signal, SignalSink, Subject};
use ambit_core::{AttemptKind, SessionId, Step};
use ambit_store::{Lease, MessageId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::text::LiveText;
use crate::error::Untightened;
use crate::record::Note;
use crate::request::LimitsWish;
use crate::view::SessionView;

/// Most messages that wait for one session. Pieces of text that find no place are sent with the next.
pub(crate) const MAILBOX: usize = 64;

/// What a running session can be told.
pub(crate) enum Mail {
    /// Somebody wants it to stop; `heard` is the message in the store that said so.
    Cancel { by: Canceller, heard: Option<MessageId> },
    /// Somebody wants tighter limits, and waits for what comes of it unless it is a message in the store.
    Tighten { wish: LimitsWish, heard: Option<MessageId>, told: Option<oneshot::Sender<Result<(), Untightened>>> },
    /// A call that is no read wants to leave; answered `true` once that is durable.
    Dispatch { step: Step, go: oneshot::Sender<bool> },
    /// Text has arrived.
    Text,
    /// Something to show.
    Note(Note),
}

/// One running session.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) agent: Arc<str>,
    pub(crate) mail: mpsc::Sender<Mail>,
    pub(crate) verdict: watch::Receiver<Option<Arc<SessionView>>>,
    /// The text of its answer while it arrives, if somebody may read along.
    pub(crate) text: Option<Arc<LiveText>>,
}

/// All of them, by id.
#[derive(Default)]
pub(crate) struct Live {
    sessions: Mutex<HashMap<SessionId, Handle>>,
    /// Sessions that this process still owns, whose task ended because the journal could not be written.
    lost: Mutex<Vec<Lease>>,
}

impl Live {
    pub(crate) fn insert(&self, id: SessionId, handle: Handle) {
        self.lock().insert(id, handle);
    }

    /// Takes a session off the list, unless the place is a successor's by now.
    pub(crate) fn remove(&self, id: SessionId, mail: &mpsc::Sender<Mail>) {
        let mut sessions = self.lock();
        if sessions.get(&id).is_some_and(|handle| handle.mail.same_channel(mail)) {
            sessions.remove(&id);
        }
    }

    pub(crate) fn find(&self, id: SessionId) -> Option<Handle> {
        self.lock().get(&id).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn all(&self) -> Vec<Handle> {
        self.lock().values().cloned().collect()
    }

    /// Remembers a session for when the journal can be written again.
    pub(crate) fn lose(&self, lease: Lease) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(lease);
    }

    /// The sessions to take up again.
    pub(crate) fn take_lost(&self) -> Vec<Lease> {
        std::mem::take(&mut self.lost.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sessions without a verdict, by agent.
    pub(crate) fn in_flight(&self) -> HashMap<Arc<str>, usize> {
        let mut counts = HashMap::new();
        for handle in self.lock().values().filter(|handle| handle.verdict.borrow().is_none()) {
            *counts.entry(handle.agent.clone()).or_insert(0) += 1;
        }
        counts
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Handle>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes signals on, and shows a session its own failed attempts as notes.
///
/// Given to gateway and executor in place of the sink itself. Never blocks: a full mailbox costs a note.
pub struct Timeline {
    pub(crate) live: Arc<Live>,
    next: Arc<dyn SignalSink>,
}

impl Timeline {
    /// Stands before `next`.
    #[must_use]
    pub fn before(next: Arc<dyn SignalSink>) -> Self {
        Self { live: Arc::default(), next }
    }

    /// The sink behind.
    pub(crate) fn sink(&self) -> &Arc<dyn SignalSink> {
        &self.next
    }
}

impl SignalSink for Timeline {
    fn emit(&self, subject: Subject, signal: &Signal) {
        self.next.emit(subject, signal);
        let Signal::AttemptFinished { kind: DependencyKind::Model, target, attempt, code, .. } = signal else { return };
        let (Some(session), Some(step)) = (subject.session, subject.step) else { return };
        if **code == *"ok" || **code == *"cancelled" {
            return;
        }
        let kind: AttemptKind = *attempt;
        if let Some(handle) = self.live.find(session) {
            let note = Note::AttemptFailed { step, target: target.clone(), kind, code: code.clone() };
            // Notes may be missing: nobody waits for room.
            let _ = handle.mail.try_send(Mail::Note(note));
        }
    }
}

//! Starting under an idempotency key: the same request finds the same session.
//!
//! The store decides who is first, in the transaction that begins the session; see `ambit_store::KeyName`. Within this
//! process equal requests come one after the other, so that those behind the first take neither a place nor a permit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambit_core::session::Principal;
use ambit_core::signal::{IdempotencyOutcome, Signal, Subject};
use ambit_store::{KeyKind, KeyName, KeyRecord};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use crate::clock::wall_ms;
use crate::error::{LookupError, StartError};
use crate::orchestrator::{Orchestrator, Running};
use crate::request::{IdempotencyKey, SessionRequest};

/// When to ask again where nothing is known of the session yet.
const SOON: Duration = Duration::from_secs(1);
/// Longest that a request waits for an equal one that is being started: one wait for the disk, and one for a permit.
const TURN_WAIT: Duration = Duration::from_secs(15);
/// The answer where the session of a key has yet to be begun, or is being deleted.
pub(crate) const NOT_YET: StartError = StartError::IdempotencyInProgress { session: None, left: SOON };

/// The key of a principal's session.
pub(crate) fn name(key: &IdempotencyKey, principal: &Principal) -> KeyName {
    KeyName { tenant: principal.tenant.clone(), kind: KeyKind::Session, scope: principal.id.clone(), key: key.key.clone() }
}

/// Until when a request waits for its turn.
pub(crate) fn patience(request: &SessionRequest) -> Instant {
    let own = request.header_deadline_ms.map_or(TURN_WAIT, |left| TURN_WAIT.min(Duration::from_millis(left)));
    request.arrived + own
}

/// Who starts under which key at the moment. As many entries as requests that are being started.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<KeyName, Arc<tokio::sync::Mutex<()>>>>);

/// The turn of one request, or its place in the line.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    name: KeyName,
    /// Let go of under the lock of the map alone, so that whoever leaves last sees that.
    line: Option<Arc<tokio::sync::Mutex<()>>>,
    mine: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn, at most until `until`.
    ///
    /// # Cancel safety
    /// Dropping the future gives the place in the line back.
    pub(crate) async fn wait(self: &Arc<Self>, name: KeyName, until: Instant) -> Option<Turn> {
        let line = self.lock().entry(name.clone()).or_default().clone();
        let mut turn = Turn { turns: self.clone(), name, line: Some(line.clone()), mine: None };
        turn.mine = Some(timeout_at(until, line.lock_owned()).await.ok()?);
        Some(turn)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<KeyName, Arc<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.mine = None;
        let mut turns = self.turns.lock();
        self.line = None;
        // The map's own: nobody else stands in the line.
        if turns.get(&self.name).is_some_and(|line| Arc::strong_count(line) == 1) {
            turns.remove(&self.name);
        }
    }
}

impl Orchestrator {
    /// The session that a request's key stands for, if it is taken.
    pub(crate) async fn known(&self, request: &SessionRequest, key: &IdempotencyKey) -> Result<Option<Running>, StartError> {
        let record = self.store().key(&name(key, &request.principal), wall_ms()).await.map_err(StartError::Store)?;
        match record {
            Some(record) => self.again(request, key, &record).await.map(Some),
            None => Ok(None),
        }
    }

    /// What a taken key is answered with.
    async fn again(&self, request: &SessionRequest, key: &IdempotencyKey, record: &KeyRecord) -> Result<Running, StartError> {
        let tell = |outcome| self.sink().emit(Subject { session: record.session, ..Subject::default() }, &Signal::Idempotency { outcome });
        if record.hash != key.hash {
            tell(IdempotencyOutcome::Conflict);
            return Err(StartError::IdempotencyKeyReused);
        }
        let in_progress = |left: Duration| {
            tell(IdempotencyOutcome::InFlight);
            StartError::IdempotencyInProgress { session: record.session, left: left.max(SOON) }
        };
        // A key without a session is one whose session is being deleted.
        let Some(id) = record.session else { return Err(in_progress(SOON)) };
        let row = self.store().session(id).await.map_err(StartError::Store)?;
        let Some(row) = row.filter(|row| row.deleted_ms.is_none()) else { return Err(in_progress(SOON)) };
        if row.verdict_ms.is_none() && !request.heard {
            return Err(in_progress(Duration::from_millis(row.deadline_ms.saturating_sub(wall_ms()))));
        }
        match self.replay(id).await {
            Ok(running) => {
                tell(IdempotencyOutcome::Replay);
                Ok(running)
            }
            Err(LookupError::NotFound(_)) => Err(in_progress(SOON)),
            Err(LookupError::Store(failed)) => Err(StartError::Store(failed)),
            Err(LookupError::Unreadable(wrong)) => Err(StartError::Unreadable(wrong)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str) -> KeyName {
        KeyName { tenant: "t".into(), kind: KeyKind::Session, scope: "p".into(), key: key.into() }
    }

    fn in_ms(ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn equal_keys_come_one_after_the_other_and_nothing_stays() {
        let turns = Arc::new(Turns::default());
        let first = turns.wait(key("a"), in_ms(1)).await.unwrap();
        let other = turns.wait(key("b"), in_ms(1)).await.unwrap();
        assert!(turns.wait(key("a"), in_ms(10)).await.is_none(), "the first still has it");
        let second = turns.wait(key("a"), in_ms(60_000));
        let (second, ()) = tokio::join!(second, async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(second.is_some());
        drop((second, other));
        assert!(turns.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_last_leaves_nothing() {
        let turns = Arc::new(Turns::default());
        let first = turns.wait(key("a"), in_ms(1)).await.unwrap();
        let mut waiting = Box::pin(turns.wait(key("a"), in_ms(60_000)));
        assert!(timeout_at(Instant::now(), &mut waiting).await.is_err());
        drop(first);
        assert_eq!(turns.lock().len(), 1, "somebody stands in the line");
        drop(waiting);
        assert!(turns.lock().is_empty());
    }
}

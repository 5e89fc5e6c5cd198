//! Tightening the limits of a session that runs, here or in another process.

use std::time::Duration;

use ambit_core::SessionId;
use ambit_core::limit::TIGHTENINGS_MAX;
use ambit_core::session::Event;
use ambit_store::{Follower, Need, RecordKind, StoreError};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::driver::live::Mail;
use crate::driver::recovery::rebuild;
use crate::error::{LookupError, Untightened};
use crate::orchestrator::Orchestrator;
use crate::record;
use crate::request::LimitsWish;

/// How long the owner of a session in another process is waited for: it looks for messages every quarter of a second.
const OWNER_WAIT: Duration = Duration::from_secs(5);
/// Kind of the message that carries a wish to the owner of a session.
pub(crate) const TIGHTEN: &str = "tighten";

/// What came of a wish for tighter limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tightened {
    /// They are in the session's journal, or the session has its verdict and nothing changes any more.
    Settled,
    /// The wish is kept durably, and whoever owns the session has not journalled it yet.
    Waiting,
}

impl Orchestrator {
    /// Tightens the limits of a running session, wherever it runs. What the session has spent already stays spent: a limit
    /// below that ends it at its next step. Asking again changes nothing, nor does asking after the verdict.
    ///
    /// # Errors
    /// If there is no such session, it cannot be reached, or the wish goes beyond what the session has; nothing is changed
    /// then.
    ///
    /// # Cancel safety
    /// Dropping the future revokes nothing that was sent.
    pub async fn tighten(&self, id: SessionId, wish: LimitsWish) -> Result<Tightened, Untightened> {
        self.visible(id).await?;
        if let Some(outcome) = self.tighten_here(id, wish).await {
            return outcome.map(|()| Tightened::Settled);
        }
        let store = self.store();
        let rebuilt = rebuild(store, id).await?;
        let machine = &rebuilt.progress.machine;
        // What is too high is refused of a session that has its verdict, too: nobody should take it for granted.
        let limits = wish.apply(machine.limits()).map_err(Untightened::TooHigh)?;
        if machine.verdict().is_some() || limits == *machine.limits() {
            return Ok(Tightened::Settled);
        }
        if machine.tightenings() >= TIGHTENINGS_MAX {
            return Err(Untightened::TooOften);
        }
        let follower = store.follow(id, rebuilt.seq);
        match store.inbox_put(id, TIGHTEN, record::write(&wish), Need::Durable).await {
            Ok(()) => {}
            Err(StoreError::SessionClosed { .. }) => return Ok(Tightened::Settled),
            Err(StoreError::InboxFull { .. }) => return Err(Untightened::TooOften),
            Err(StoreError::NotFound { .. }) => return Err(LookupError::NotFound(id).into()),
            Err(failed) => return Err(LookupError::Store(failed).into()),
        }
        match timeout(OWNER_WAIT, heard(follower)).await {
            Ok(()) => Ok(Tightened::Settled),
            Err(_) => Ok(Tightened::Waiting),
        }
    }

    /// Tells a session of this process; `None` if there is none, or if it ended meanwhile.
    async fn tighten_here(&self, id: SessionId, wish: LimitsWish) -> Option<Result<(), Untightened>> {
        let mail = self.mail_of(id)?;
        let (told, outcome) = oneshot::channel();
        mail.send(Mail::Tighten { wish, heard: None, told: Some(told) }).await.ok()?;
        outcome.await.ok()
    }
}

/// Waits until a tightening stands in the journal, or the session is closed.
async fn heard(mut follower: Follower) {
    // Each round brings records of a bounded journal; whoever waits bounds the time.
    while let Some(Ok(records)) = follower.next().await {
        let tightens = |body: &str| matches!(record::read_event(0, body), Ok(Event::LimitsTightened { .. }));
        if records.iter().any(|record| record.kind == RecordKind::Event && tightens(&record.body)) {
            return;
        }
    }
}

//! The reading desk: sessions as whoever has the file sees them, beside the processes that run them.
//!
//! **Invariant:** nothing is taken over, no model is called and no tool is started. The one thing that a desk may do to a
//! session is to leave a wish in its inbox.

use ambit_core::SessionId;
use ambit_core::session::{Canceller, Event};
use ambit_store::{Page, RecordKind, SessionRow, Store, StoreError, StoreOptions, TextFate, Visitor};

use crate::clock::wall_ms;
use crate::content::Texts;
use crate::driver::recovery::{rebuild, texts};
use crate::error::LookupError;
use crate::follow::SessionStream;
use crate::orchestrator::{Sessions, answer_text};
use crate::record;
use crate::replay::{Replay, Retelling};
use crate::view::SessionView;

/// Records read at once.
const PAGE: u32 = 512;

/// Looks at the sessions of a database that is there.
#[derive(Debug)]
pub struct Desk {
    visitor: Visitor,
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// A running process owns the session and will hear it.
    Heard,
    /// No running process owns it: whoever takes it over will hear it.
    Waits,
    /// The session had ended before.
    Closed,
}

impl Desk {
    /// Sits down at a database.
    ///
    /// # Errors
    /// As [`Visitor::open`]: above all if there is no database.
    pub async fn open(options: StoreOptions) -> Result<Self, StoreError> {
        Ok(Self { visitor: Visitor::open(options).await? })
    }

    /// One page of sessions.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, page: Page) -> Result<Sessions, LookupError> {
        let listing = self.store().sessions(page).await.map_err(LookupError::Store)?;
        Ok(Sessions { rows: listing.rows, has_more: listing.has_more })
    }

    /// A session as it stands; with everything said, if asked for.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub async fn view(&self, id: SessionId, transcript: bool) -> Result<SessionView, LookupError> {
        view(self.store(), id, transcript).await
    }

    /// Follows a session's events from the first, then as its owner writes them.
    ///
    /// # Errors
    /// If there is none, or the store cannot be read.
    pub async fn follow(&self, id: SessionId, settlement: bool) -> Result<SessionStream, LookupError> {
        self.row(id).await?;
        Ok(SessionStream::new(self.store().clone(), id, settlement, None))
    }

    /// Every decision of a session with its reason, as far as its journal goes.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub async fn replay(&self, id: SessionId) -> Result<Replay, LookupError> {
        let store = self.store();
        self.row(id).await?;
        let texts = texts(store, id).await?;
        let mut retelling = Retelling::default();
        let mut seq = 0;
        // Ends: a journal has a bounded number of records, and each page moves on.
        loop {
            let page = store.entries(id, seq, PAGE).await.map_err(LookupError::Store)?;
            let last = page.len() < PAGE as usize;
            for entry in &page {
                seq = entry.seq;
                if entry.kind == RecordKind::Event {
                    retelling.feed(entry, &texts).map_err(LookupError::Unreadable)?;
                }
            }
            if last {
                break;
            }
        }
        retelling.finish().ok_or(LookupError::NotFound(id))
    }

    /// Asks a session to stop, wherever it runs. Asking again changes nothing.
    ///
    /// # Errors
    /// If there is none, or the store cannot be written.
    pub async fn cancel(&self, id: SessionId, by: Canceller) -> Result<Posted, LookupError> {
        let row = self.row(id).await?;
        if row.verdict_ms.is_some() {
            return Ok(Posted::Closed);
        }
        let is_owned = row.lease_until_ms.is_some_and(|until| until > wall_ms());
        match self.visitor.post(id, "cancel", record::write(&Event::Cancelled { by })).await {
            // A full inbox holds such a wish already.
            Ok(()) | Err(StoreError::InboxFull { .. }) if is_owned => Ok(Posted::Heard),
            Ok(()) | Err(StoreError::InboxFull { .. }) => Ok(Posted::Waits),
            Err(StoreError::SessionClosed { .. }) => Ok(Posted::Closed),
            Err(StoreError::NotFound { .. }) => Err(LookupError::NotFound(id)),
            Err(failed) => Err(LookupError::Store(failed)),
        }
    }

    /// Version of the database's schema.
    #[must_use]
    pub const fn schema(&self) -> i64 {
        self.visitor.schema()
    }

    /// Takes the lock for writing and gives it back.
    ///
    /// # Errors
    /// What keeps this process from writing.
    pub async fn try_write(&self) -> Result<(), StoreError> {
        self.visitor.try_write().await
    }

    /// Leaves.
    ///
    /// # Errors
    /// If the readers do not close in time.
    pub async fn close(self) -> Result<(), StoreError> {
        self.visitor.close().await
    }

    const fn store(&self) -> &Store {
        self.visitor.store()
    }

    async fn row(&self, id: SessionId) -> Result<SessionRow, LookupError> {
        visible(self.store(), id).await
    }
}

/// The row of a session, unless it was deleted: then there is none for whoever asks.
pub(crate) async fn visible(store: &Store, id: SessionId) -> Result<SessionRow, LookupError> {
    let row = store.session(id).await.map_err(LookupError::Store)?;
    row.filter(|row| row.deleted_ms.is_none()).ok_or(LookupError::NotFound(id))
}

/// A session as it stands, from its journal; with everything said, if asked for.
pub(crate) async fn view(store: &Store, id: SessionId, transcript: bool) -> Result<SessionView, LookupError> {
    let mut rebuilt = rebuild(store, id).await?;
    if rebuilt.row.deleted_ms.is_some() {
        return Err(LookupError::NotFound(id));
    }
    let now = wall_ms().saturating_sub(rebuilt.row.created_ms).max(rebuilt.progress.tally.last_at);
    if rebuilt.row.texts != TextFate::Kept && rebuilt.row.closed_ms.is_some() {
        // Its texts are gone, or about to: what one reader would still find, the next would not.
        rebuilt.around.failure = None;
        return Ok(SessionView::of(&rebuilt.progress, &Texts::default(), &rebuilt.around, now));
    }
    if transcript {
        let texts = texts(store, id).await?;
        return Ok(SessionView::of(&rebuilt.progress, &texts, &rebuilt.around, now).with_transcript(&rebuilt.progress, &texts));
    }
    let texts = answer_text(store, id, &rebuilt.progress).await?;
    Ok(SessionView::of(&rebuilt.progress, &texts, &rebuilt.around, now))
}

//! A session's stream as a reader gets it: the projection of its records, with texts filled in.

use std::collections::VecDeque;

use ambit_core::{Digest, SessionId};
use ambit_store::{Follower, RecordKind, Store};
use serde_json::{Value, json};

use crate::error::LookupError;
use crate::orchestrator::{answer_text, failure_words};
use crate::stream::{EventId, Payload, Projection, Record, Remaining, StreamEvent};
use crate::view::{Around, SessionView};

/// The events of one session, from the first, then live.
pub struct SessionStream {
    store: Store,
    id: SessionId,
    follower: Follower,
    projection: Projection,
    waiting: VecDeque<StreamEvent>,
    last_at: u64,
}

/// One event, complete.
#[derive(Debug, Clone)]
pub struct Followed {
    /// Its place.
    pub id: EventId,
    /// Its type.
    pub kind: &'static str,
    /// When it happened, milliseconds on the session's clock.
    pub at: u64,
    /// Wall time of the same, milliseconds since 1970.
    pub wall_ms: u64,
    /// What is left.
    pub remaining: Remaining,
    /// What it says.
    pub said: Said,
    /// True for the last event.
    pub terminal: bool,
}

/// What an event says.
#[derive(Debug, Clone)]
pub enum Said {
    /// This.
    Value(Value),
    /// The session as it stands.
    Session(Box<SessionView>),
}

impl SessionStream {
    pub(crate) fn new(store: Store, id: SessionId, settlement: bool) -> Self {
        let follower = store.follow(id, 0);
        Self { store, id, follower, projection: Projection::new(settlement), waiting: VecDeque::new(), last_at: 0 }
    }

    /// The next event; `None` after the terminal one, or if the store was closed before it.
    ///
    /// # Errors
    /// If the store cannot be read, or a record cannot be understood.
    ///
    /// # Cancel safety
    /// Calling again goes on where it was.
    pub async fn next(&mut self) -> Result<Option<Followed>, LookupError> {
        // Each round takes at least one record of a bounded journal, or waits for one.
        loop {
            if let Some(event) = self.waiting.front() {
                let event = event.clone();
                let followed = self.fill(event).await?;
                self.waiting.pop_front();
                if followed.terminal {
                    self.waiting.clear();
                }
                return Ok(Some(followed));
            }
            if self.projection.is_over() {
                return Ok(None);
            }
            let Some(records) = self.follower.next().await.transpose().map_err(LookupError::Store)? else { return Ok(None) };
            for record in records {
                let record = Record { seq: record.seq, note: record.kind == RecordKind::Note, at: record.at_ms, body: record.body.into() };
                self.last_at = self.last_at.max(record.at);
                let events = self.projection.feed(&record).map_err(LookupError::Unreadable)?;
                self.waiting.extend(events);
            }
        }
    }

    async fn fill(&self, event: StreamEvent) -> Result<Followed, LookupError> {
        let created = self.projection.progress().map_or(0, |progress| progress.machine.started().wall_ms);
        let said = match event.payload {
            Payload::Value(value) => Said::Value(value),
            Payload::Text { step, digest, from } => {
                let text = self.text(digest).await?;
                // A piece ends between characters; a place inside one is moved to the next.
                let from = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
                Said::Value(json!({"step": step, "delta": text[from..]}))
            }
            Payload::Session => Said::Session(Box::new(self.session().await?)),
        };
        Ok(Followed {
            id: event.id,
            kind: event.kind,
            at: event.at,
            wall_ms: created.saturating_add(event.at),
            remaining: event.remaining,
            said,
            terminal: event.terminal,
        })
    }

    async fn text(&self, digest: Digest) -> Result<std::sync::Arc<str>, LookupError> {
        Ok(self.store.content(self.id, digest).await.map_err(LookupError::Store)?.unwrap_or_else(|| "".into()))
    }

    async fn session(&self) -> Result<SessionView, LookupError> {
        let row = self.store.session(self.id).await.map_err(LookupError::Store)?.ok_or(LookupError::NotFound(self.id))?;
        let progress = self.projection.progress().ok_or(LookupError::NotFound(self.id))?;
        let texts = answer_text(&self.store, self.id, progress).await?;
        let around = Around {
            metadata: serde_json::from_str(&row.metadata).unwrap_or_default(),
            closed_ms: row.closed_ms,
            failure: failure_words(&self.store, self.id, self.projection.failure()).await?,
        };
        Ok(SessionView::of(progress, &texts, &around, self.last_at))
    }
}

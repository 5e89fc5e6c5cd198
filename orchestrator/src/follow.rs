//! A session's stream as a reader gets it: the projection of its records, with texts filled in.
//!
//! Facts come from the journal alone. Text of a turn that runs in this process is shown as it arrives; what the journal
//! brings of it later is not shown again.

use std::collections::VecDeque;
use std::sync::Arc;

use ambit_core::{Digest, SessionId};
use ambit_store::{Follower, RecordKind, Store};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock::wall_ms;
use crate::driver::text::LiveText;
use crate::error::LookupError;
use crate::orchestrator::{answer_text, failure_words};
use crate::stream::{Cursor, EventId, Payload, Projection, Record, Remaining, StreamEvent, tail};
use crate::view::{Around, SessionView};

/// The events of one session, from the first, then live.
pub struct SessionStream {
    store: Store,
    id: SessionId,
    follower: Follower,
    live: Option<Live>,
    cursor: Cursor,
    projection: Projection,
    waiting: VecDeque<StreamEvent>,
    last_at: u64,
}

/// Text that arrives in this process.
struct Live {
    text: Arc<LiveText>,
    grown: watch::Receiver<()>,
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
    pub(crate) fn new(store: Store, id: SessionId, settlement: bool, text: Option<Arc<LiveText>>) -> Self {
        let follower = store.follow(id, 0);
        let live = text.map(|text| Live { grown: text.watch(), text });
        let projection = Projection::new(settlement);
        Self { store, id, follower, live, cursor: Cursor::default(), projection, waiting: VecDeque::new(), last_at: 0 }
    }

    /// The same stream for a reader who has everything up to a place.
    #[must_use]
    pub fn behind(mut self, cursor: Cursor) -> Self {
        self.cursor = cursor;
        self
    }

    /// The next event; `None` after the terminal one, or if the store was closed before it.
    ///
    /// # Errors
    /// If the store cannot be read, or a record cannot be understood.
    ///
    /// # Cancel safety
    /// Calling again goes on where it was.
    pub async fn next(&mut self) -> Result<Option<Followed>, LookupError> {
        // Each round takes at least one record of a bounded journal or some of a bounded text, or waits for one.
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
            if let Some(event) = self.arrived() {
                self.waiting.push_back(event);
                continue;
            }
            let records = tokio::select! {
                biased;
                records = self.follower.next() => records,
                true = grown(&mut self.live) => continue,
            };
            let Some(records) = records.transpose().map_err(LookupError::Store)? else { return Ok(None) };
            for record in records {
                let record = Record { seq: record.seq, note: record.kind == RecordKind::Note, at: record.at_ms, body: record.body.into() };
                self.last_at = self.last_at.max(record.at);
                let events = self.projection.feed(&record).map_err(LookupError::Unreadable)?;
                let cursor = self.cursor;
                self.waiting.extend(events.into_iter().filter_map(|event| cursor.unseen(event)));
            }
        }
    }

    /// Text that has arrived and was not shown yet.
    fn arrived(&mut self) -> Option<StreamEvent> {
        let live = self.live.as_mut()?;
        live.grown.mark_unchanged();
        let at = wall_ms().saturating_sub(self.projection.progress()?.machine.started().wall_ms).max(self.last_at);
        let event = live.text.read(|step, text| self.projection.live(step, text, at))?;
        self.cursor.unseen(event)
    }

    async fn fill(&self, event: StreamEvent) -> Result<Followed, LookupError> {
        let created = self.projection.progress().map_or(0, |progress| progress.machine.started().wall_ms);
        let said = match event.payload {
            Payload::Value(value) => Said::Value(value),
            Payload::Text { step, digest, from, .. } => Said::Value(json!({"step": step, "delta": tail(&self.text(digest).await?, from)})),
            Payload::Live { step, text } => Said::Value(json!({"step": step, "delta": text})),
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

/// Waits until text has arrived, or for ever where none will. False once its session has left this process.
async fn grown(live: &mut Option<Live>) -> bool {
    let still_here = match live {
        Some(live) => live.grown.changed().await.is_ok(),
        None => false,
    };
    if !still_here {
        *live = None;
        std::future::pending::<()>().await;
    }
    still_here
}

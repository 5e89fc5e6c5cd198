//! Rebuilding a session from its journal: the same events, the same decisions, checked record by record.

use std::sync::Arc;

use ambit_core::session::fingerprint;
use ambit_core::{Digest, SessionId};
use ambit_store::{RecordKind, SessionRow, Store};

use crate::content::Texts;
use crate::error::LookupError;
use crate::orchestrator::failure_words;
use crate::progress::Progress;
use crate::record::{self, Note};
use crate::view::Around;

/// Records read at once; a journal is read in pages of this size.
const PAGE: u32 = 512;

/// A session as its journal has it.
pub(crate) struct Rebuilt {
    pub(crate) row: SessionRow,
    pub(crate) progress: Progress,
    pub(crate) around: Around,
    /// Place of the last record.
    pub(crate) seq: u64,
    /// False if the machine of today decides otherwise than the journal records.
    pub(crate) agrees: bool,
}

/// Reads a session's row and journal and replays it.
///
/// # Errors
/// If there is no such session, or the store cannot be read, or a record cannot be understood.
pub(crate) async fn rebuild(store: &Store, id: SessionId) -> Result<Rebuilt, LookupError> {
    let row = store.session(id).await.map_err(LookupError::Store)?.ok_or(LookupError::NotFound(id))?;
    let mut replay = Replay::default();
    // Ends: a journal has a bounded number of records, and each page moves on.
    loop {
        let page = store.entries(id, replay.seq, PAGE).await.map_err(LookupError::Store)?;
        let last = page.len() < PAGE as usize;
        for entry in page {
            replay
                .feed(entry.seq, entry.kind == RecordKind::Event, entry.at_ms, &entry.body, entry.fingerprint)
                .map_err(LookupError::Unreadable)?;
        }
        if last {
            break;
        }
    }
    let metadata = serde_json::from_str(&row.metadata).unwrap_or_default();
    let failure = failure_words(store, id, replay.failure).await?;
    let around = Around { metadata, closed_ms: row.closed_ms, failure };
    match replay.progress {
        Some(progress) => Ok(Rebuilt { seq: replay.seq.max(row.last_seq), row, progress, around, agrees: replay.agrees }),
        None => Err(LookupError::NotFound(id)),
    }
}

/// All texts of a session.
pub(crate) async fn texts(store: &Store, id: SessionId) -> Result<Texts, LookupError> {
    let contents = store.contents(id).await.map_err(LookupError::Store)?;
    Ok(Texts::stored(contents.into_iter().map(|content| (content.digest, content.text))))
}

struct Replay {
    progress: Option<Progress>,
    seq: u64,
    agrees: bool,
    /// Where the words of the last failure stand.
    failure: Option<Digest>,
}

impl Default for Replay {
    fn default() -> Self {
        Self { progress: None, seq: 0, agrees: true, failure: None }
    }
}

impl Replay {
    fn feed(&mut self, seq: u64, event: bool, at: u64, body: &str, recorded: u64) -> Result<(), record::Unreadable> {
        self.seq = seq;
        if !event {
            if let Note::Failure { digest, .. } = record::read_note(seq, body)? {
                self.failure = Some(digest);
            }
            return Ok(());
        }
        let commands = match &mut self.progress {
            None => {
                let (progress, commands) = Progress::start(Arc::new(record::read_started(seq, body)?), at);
                self.progress = Some(progress);
                commands
            }
            Some(progress) => progress.hear(record::read_event(seq, body)?, at).1,
        };
        self.agrees &= fingerprint(&commands) == recorded;
        Ok(())
    }
}

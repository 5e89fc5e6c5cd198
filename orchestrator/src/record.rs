//! The journal's records as JSON: the first holds what the session began with, events follow, notes lie between.

use std::sync::Arc;

use ambit_core::session::{Event, Started};
use ambit_core::{AttemptKind, Digest, Step};
use serde::{Deserialize, Serialize};

/// One note: shown in timelines and streams, never replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(crate) enum Note {
    /// A piece of the text of a turn, as it arrived.
    Text {
        /// The model call's step.
        step: Step,
        /// Bytes of this step's text before the piece.
        offset: u64,
        /// Bytes of the piece.
        bytes: u64,
        /// Where the piece stands in the content.
        digest: Digest,
    },
    /// A request on the wire failed.
    AttemptFailed {
        /// The step it belonged to.
        step: Step,
        /// To whom.
        target: Arc<str>,
        /// Why it was sent.
        kind: AttemptKind,
        /// What went wrong.
        code: Arc<str>,
    },
    /// A model call brought no turn.
    Failure {
        /// The model call's step.
        step: Step,
        /// Where the words for the caller stand in the content.
        digest: Digest,
    },
    /// A capability is not what it should be.
    Degraded {
        /// Which.
        capability: Arc<str>,
        /// What it is now.
        mode: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("record {seq} of the journal cannot be read")]
pub struct Unreadable {
    /// Its place.
    pub seq: u64,
    #[source]
    source: serde_json::Error,
}

/// Writes any record. The forms have string keys only, so that writing them cannot fail.
#[must_use]
pub(crate) fn write<T: Serialize>(record: &T) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

/// Reads what a session began with.
///
/// # Errors
/// If the text is not of this form.
pub(crate) fn read_started(seq: u64, text: &str) -> Result<Started, Unreadable> {
    serde_json::from_str(text).map_err(|source| Unreadable { seq, source })
}

/// Reads an event.
///
/// # Errors
/// If the text is not of this form.
pub(crate) fn read_event(seq: u64, text: &str) -> Result<Event, Unreadable> {
    serde_json::from_str(text).map_err(|source| Unreadable { seq, source })
}

/// Reads a note.
///
/// # Errors
/// If the text is not of this form.
pub(crate) fn read_note(seq: u64, text: &str) -> Result<Note, Unreadable> {
    serde_json::from_str(text).map_err(|source| Unreadable { seq, source })
}

//! Text of a turn on its way into the journal: gathered into pieces of a kilobyte or a quarter of a second.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ambit_core::Step;
use ambit_core::port::TextSink;
use tokio::sync::mpsc;

use crate::driver::live::Mail;

/// A piece is sent on at this size, bytes.
pub(crate) const PIECE_BYTES: usize = 1 << 10;
/// A piece is sent on at this age.
pub(crate) const PIECE_AGE: Duration = Duration::from_millis(250);

/// Gathers the text of one model call.
pub(crate) struct Pieces {
    step: Step,
    mail: mpsc::Sender<Mail>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    text: String,
    sent: u64,
}

impl Pieces {
    pub(crate) fn new(step: Step, mail: mpsc::Sender<Mail>) -> Self {
        Self { step, mail, waiting: Mutex::default() }
    }

    /// Sends what has been gathered. What finds no room waits for the next piece; the whole turn carries it at last.
    pub(crate) fn flush(&self) {
        let mut waiting = self.lock();
        if waiting.text.is_empty() {
            return;
        }
        let text = std::mem::take(&mut waiting.text);
        let bytes = text.len() as u64;
        match self.mail.try_send(Mail::Text { step: self.step, offset: waiting.sent, text }) {
            Ok(()) => waiting.sent += bytes,
            Err(mpsc::error::TrySendError::Full(Mail::Text { text, .. }) | mpsc::error::TrySendError::Closed(Mail::Text { text, .. })) => {
                waiting.text = text;
            }
            Err(_) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TextSink for Pieces {
    fn text(&self, piece: &str) {
        let full = {
            let mut waiting = self.lock();
            waiting.text.push_str(piece);
            waiting.text.len() >= PIECE_BYTES
        };
        if full {
            self.flush();
        }
    }
}

//! Text of a turn while it arrives: shown at once to readers in this process, and gathered for the journal into pieces of
//! a kilobyte or a quarter of a second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ambit_core::Step;
use ambit_core::port::TextSink;
use tokio::sync::{mpsc, watch};

use crate::driver::live::Mail;

/// A piece is sent on at this size, bytes.
pub(crate) const PIECE_BYTES: usize = 1 << 10;
/// A piece is sent on at this age.
pub(crate) const PIECE_AGE: Duration = Duration::from_millis(250);

/// The text of the turn under way, for any number of readers: each takes what it has not shown, whenever it comes to
/// it. Bounded by the largest answer of a model; gone with its turn.
#[derive(Debug)]
pub(crate) struct LiveText {
    turn: Mutex<(Step, String)>,
    grown: watch::Sender<()>,
}

impl LiveText {
    pub(crate) fn new() -> Self {
        Self { turn: Mutex::new((Step(0), String::new())), grown: watch::Sender::new(()) }
    }

    /// Says when there is more.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.grown.subscribe()
    }

    /// Looks at the text so far.
    pub(crate) fn read<T>(&self, look: impl FnOnce(Step, &str) -> T) -> T {
        let turn = self.lock();
        look(turn.0, &turn.1)
    }

    fn push(&self, step: Step, piece: &str) {
        {
            let mut turn = self.lock();
            if turn.0 != step {
                *turn = (step, String::new());
            }
            turn.1.push_str(piece);
        }
        self.grown.send_replace(());
    }

    /// The turn is over: the journal has it whole.
    fn clear(&self) {
        self.lock().1 = String::new();
    }

    fn lock(&self) -> MutexGuard<'_, (Step, String)> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the text of one model call.
pub(crate) struct Pieces {
    step: Step,
    live: Arc<LiveText>,
    mail: mpsc::Sender<Mail>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    text: String,
    sent: u64,
}

impl Pieces {
    pub(crate) fn new(step: Step, live: Arc<LiveText>, mail: mpsc::Sender<Mail>) -> Self {
        Self { step, live, mail, waiting: Mutex::default() }
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
        self.live.push(self.step, piece);
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

impl Drop for Pieces {
    fn drop(&mut self) {
        self.live.clear();
    }
}

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
    turn: Mutex<Turn>,
    grown: watch::Sender<()>,
}

#[derive(Debug)]
struct Turn {
    step: Step,
    text: String,
    /// Bytes that were taken for the journal.
    taken: usize,
}

impl LiveText {
    pub(crate) fn new() -> Self {
        Self { turn: Mutex::new(Turn { step: Step(0), text: String::new(), taken: 0 }), grown: watch::Sender::new(()) }
    }

    /// Says when there is more.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.grown.subscribe()
    }

    /// Looks at the text so far.
    pub(crate) fn read<T>(&self, look: impl FnOnce(Step, &str) -> T) -> T {
        let turn = self.lock();
        look(turn.step, &turn.text)
    }

    /// What the journal has not, and where it begins in the turn's text.
    pub(crate) fn take(&self) -> Option<(Step, u64, String)> {
        let mut turn = self.lock();
        let (from, piece) = (turn.taken, turn.text[turn.taken..].to_owned());
        turn.taken = turn.text.len();
        (!piece.is_empty()).then_some((turn.step, from as u64, piece))
    }

    /// Takes a piece in; says how much the journal has not. A turn that was given up is not listened to any more.
    fn push(&self, step: Step, piece: &str) -> usize {
        let waiting = {
            let mut turn = self.lock();
            if step < turn.step {
                return 0;
            }
            if step > turn.step {
                *turn = Turn { step, text: String::new(), taken: 0 };
            }
            turn.text.push_str(piece);
            turn.text.len() - turn.taken
        };
        self.grown.send_replace(());
        waiting
    }

    /// A turn is over: the journal has it whole.
    fn clear(&self, step: Step) {
        let mut turn = self.lock();
        if turn.step == step {
            (turn.text, turn.taken) = (String::new(), 0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the text of one model call.
pub(crate) struct Pieces {
    step: Step,
    live: Arc<LiveText>,
    mail: mpsc::Sender<Mail>,
}

impl Pieces {
    pub(crate) fn new(step: Step, live: Arc<LiveText>, mail: mpsc::Sender<Mail>) -> Self {
        Self { step, live, mail }
    }

    /// Says that there is text for the journal. Where there is no room for that, it goes with the next piece or fact.
    pub(crate) fn flush(&self) {
        let _ = self.mail.try_send(Mail::Text);
    }
}

impl TextSink for Pieces {
    fn text(&self, piece: &str) {
        if self.live.push(self.step, piece) >= PIECE_BYTES {
            self.flush();
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.live.clear(self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_was_given_up_touches_nothing_of_the_next() {
        let live = LiveText::new();
        assert_eq!(live.push(Step(1), "old"), 3);
        assert_eq!(live.push(Step(3), "new"), 3);
        assert_eq!(live.push(Step(1), "late"), 0);
        live.clear(Step(1));
        assert_eq!(live.read(|step, text| (step, text.to_owned())), (Step(3), "new".to_owned()));
        assert_eq!(live.take(), Some((Step(3), 0, "new".to_owned())));
        assert_eq!((live.push(Step(3), "er"), live.take(), live.take()), (2, Some((Step(3), 3, "er".to_owned())), None));
        live.clear(Step(3));
        assert_eq!(live.read(|_, text| text.len()), 0);
    }
}

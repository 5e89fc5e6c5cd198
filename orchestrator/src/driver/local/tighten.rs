//! Tightening the limits of a session while it runs.

use ambit_core::limit::TIGHTENINGS_MAX;
use ambit_core::session::{Event, Heard};
use ambit_store::{Append, MessageId, Need};
use tokio::sync::oneshot;

use super::Session;
use crate::error::Untightened;
use crate::request::LimitsWish;

impl Session {
    /// Hears a wish for tighter limits: of somebody who waits for what comes of it, or of one who left it in the store.
    pub(super) async fn tighten(
        &mut self,
        wish: &LimitsWish,
        message: Option<MessageId>,
        told: Option<oneshot::Sender<Result<(), Untightened>>>,
    ) {
        let outcome = self.tightened(wish, message).await;
        if let Some(told) = told {
            // Whoever asked may have gone; it holds all the same.
            let _ = told.send(outcome);
        }
    }

    async fn tightened(&mut self, wish: &LimitsWish, message: Option<MessageId>) -> Result<(), Untightened> {
        let machine = &self.progress.machine;
        let limits = match message {
            // It was checked when it was left; what has been tightened further since then stays.
            Some(_) => wish.within(machine.limits()),
            None => wish.apply(machine.limits()).map_err(Untightened::TooHigh)?,
        };
        let often = machine.tightenings() >= TIGHTENINGS_MAX;
        if machine.verdict().is_some() || limits == *machine.limits() || often {
            if let Some(message) = message {
                self.write(Append { heard: vec![message], ..Append::default() }, Need::Applied).await;
            }
            let changes = self.progress.verdict().is_none() && limits != *self.progress.machine.limits();
            return if changes { Err(Untightened::TooOften) } else { Ok(()) };
        }
        match self.heard(Event::LimitsTightened { limits }, message).await {
            _ if self.lost => Err(Untightened::Lost),
            Heard::Applied | Heard::Late => Ok(()),
            Heard::Invalid => Err(Untightened::TooOften),
        }
    }

    /// When the verdict is due now, milliseconds since 1970.
    pub(super) fn deadline_ms(&self) -> u64 {
        let machine = &self.progress.machine;
        machine.started().wall_ms.saturating_add(machine.limits().deadline_ms)
    }
}

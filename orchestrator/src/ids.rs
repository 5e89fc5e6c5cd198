//! Ids of sessions: ULIDs that never repeat and sort in the order in which they were made in this process.

use std::sync::{Mutex, PoisonError};

use ambit_core::SessionId;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ulid::Ulid;

use crate::clock::wall_ms;

/// Makes ids.
pub(crate) struct Ids(Mutex<(Ulid, StdRng)>);

impl Ids {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Mutex::new((Ulid::nil(), StdRng::seed_from_u64(seed))))
    }

    /// Within one millisecond, and when the wall clock steps back, the next id is the last one plus one.
    pub(crate) fn next(&self) -> SessionId {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, rng) = &mut *guard;
        let now = wall_ms();
        let id = if now > last.timestamp_ms() { Ulid::from_parts(now, rng.random()) } else { last.increment().unwrap_or(*last) };
        *last = id;
        let mut text = [0; ulid::ULID_LEN];
        // The text of a ULID is what a session id is made of; the nil id, which is never given out, keeps this total.
        SessionId::from_ulid(id.array_to_str(&mut text)).unwrap_or(SessionId::NIL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_never_repeat() {
        let ids = Ids::seeded(1);
        let made: Vec<_> = (0..10_000).map(|_| ids.next()).collect();
        assert!(made.is_sorted_by(|a, b| a < b));
    }
}

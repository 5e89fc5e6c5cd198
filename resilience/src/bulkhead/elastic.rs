//! Permits whose number can change while some of them are out.
//!
//! **Invariant:** what exists is what is free plus what is out, and it is never more than the larger of the old and the
//! new size: a smaller size takes free permits away at once and the others when they come back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// A semaphore with a size of its own.
pub(super) struct Elastic {
    semaphore: Semaphore,
    size: Mutex<Size>,
}

#[derive(Clone, Copy)]
struct Size {
    wanted: u32,
    /// Permits above the size, which are kept when they come back.
    owed: u32,
}

/// One permit, given back on drop.
pub(super) struct Held<'a>(&'a Elastic);

impl Elastic {
    pub(super) fn new(size: u32) -> Self {
        Self { semaphore: Semaphore::new(usize_of(size)), size: Mutex::new(Size { wanted: size, owed: 0 }) }
    }

    /// How many there should be.
    pub(super) fn size(&self) -> u32 {
        self.lock().wanted
    }

    /// How many are out now; above the size for a while after it became smaller.
    pub(super) fn out(&self) -> u32 {
        let Size { wanted, owed } = *self.lock();
        wanted.saturating_add(owed).saturating_sub(count(self.semaphore.available_permits()))
    }

    /// Takes a free one; whoever takes it has to [`give_back`](Self::give_back).
    pub(super) fn try_take(&self) -> bool {
        self.semaphore.try_acquire().is_ok_and(|permit| {
            permit.forget();
            true
        })
    }

    /// Waits for one, first in, first out; whoever takes it has to [`give_back`](Self::give_back).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub(super) async fn take(&self) -> bool {
        self.semaphore.acquire().await.is_ok_and(|permit| {
            permit.forget();
            true
        })
    }

    /// Takes a free one until the guard goes.
    pub(super) fn try_hold(&self) -> Option<Held<'_>> {
        self.try_take().then(|| Held(self))
    }

    pub(super) fn give_back(&self) {
        let mut size = self.lock();
        if size.owed > 0 {
            size.owed -= 1;
        } else {
            self.semaphore.add_permits(1);
        }
    }

    /// Changes the size. More are there at once; fewer as soon as those that are out have come back.
    pub(super) fn resize(&self, wanted: u32) {
        let mut size = self.lock();
        if wanted >= size.wanted {
            let more = wanted - size.wanted;
            let kept = more.min(size.owed);
            size.owed -= kept;
            self.semaphore.add_permits(usize_of(more - kept));
        } else {
            let fewer = size.wanted - wanted;
            let gone = count(self.semaphore.forget_permits(usize_of(fewer)));
            size.owed += fewer - gone;
        }
        size.wanted = wanted;
    }

    fn lock(&self) -> MutexGuard<'_, Size> {
        self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

fn usize_of(n: u32) -> usize {
    usize::try_from(n).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `+`, gives back `-`, resizes to a digit; after each: how many are out, and how many are free.
    #[track_caller]
    fn check(size: u32, steps: &str, expected: &[(u32, usize)]) {
        let elastic = Elastic::new(size);
        let seen: Vec<_> = steps
            .chars()
            .map(|step| {
                match step {
                    '+' => assert!(elastic.try_take(), "none is free"),
                    '-' => elastic.give_back(),
                    digit => elastic.resize(digit.to_digit(10).unwrap()),
                }
                (elastic.out(), elastic.semaphore.available_permits())
            })
            .collect();
        assert_eq!(seen, expected, "{steps}");
    }

    #[test]
    fn a_size_changes_under_way() {
        check(2, "++4", &[(1, 1), (2, 0), (2, 2)]);
        // One is free and goes at once; of two that are out one is kept when it comes back.
        check(3, "++1--", &[(1, 2), (2, 1), (2, 0), (1, 0), (0, 1)]);
        // What was owed is let go before new ones are made.
        check(2, "++13--", &[(1, 1), (2, 0), (2, 0), (2, 1), (1, 2), (0, 3)]);
        check(2, "++0--2", &[(1, 1), (2, 0), (2, 0), (1, 0), (0, 0), (0, 2)]);
    }
}

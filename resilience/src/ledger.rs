//! The allowance of one command, shared by all of its legs.
//!
//! **Invariant:** never more than was lent is out at once. A leg takes its whole reservation before it is sent, all of
//! it or nothing; what a leg turned out not to need is put back. Local refusals take nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ambit_core::{Allowance, Money};
use tokio::time::Instant;

/// What one leg is going to use besides its one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserve {
    /// Tokens in and out.
    pub tokens: u64,
    /// Money.
    pub cost: Money,
}

impl Reserve {
    /// Nothing besides the request: what a tool call uses.
    pub const NONE: Self = Self { tokens: 0, cost: Money::ZERO };
}

/// What is left of an allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Requests on the wire.
    pub attempts: u32,
    /// Tokens in and out.
    pub tokens: u64,
    /// Money.
    pub cost: Money,
}

/// The allowance of one command. Shared by reference among its legs; dropped with the command.
#[derive(Debug)]
pub struct Ledger {
    lent: Left,
    left: Mutex<Left>,
    deadline: Instant,
}

impl Ledger {
    /// Opens the ledger of one command. `deadline` is the allowance's deadline on this process's clock.
    #[must_use]
    pub const fn new(allowance: &Allowance, deadline: Instant) -> Self {
        let lent = Left { attempts: allowance.attempts, tokens: allowance.tokens, cost: allowance.cost };
        Self { lent, left: Mutex::new(lent), deadline }
    }

    /// Takes one request and its reservation; takes nothing and says `false` where one of them is not there.
    #[must_use]
    pub fn take(&self, reserve: Reserve) -> bool {
        let mut left = self.lock();
        let Some(taken) = left.less(reserve) else { return false };
        *left = taken;
        true
    }

    /// Takes one request without tokens or money.
    #[must_use]
    pub fn take_attempt(&self) -> bool {
        self.take(Reserve::NONE)
    }

    /// True if [`take`](Self::take) would succeed now.
    #[must_use]
    pub fn affords(&self, reserve: Reserve) -> bool {
        self.lock().less(reserve).is_some()
    }

    /// Takes tokens beyond a reservation, all or none.
    #[must_use]
    pub fn take_tokens(&self, tokens: u64) -> bool {
        let mut left = self.lock();
        let Some(rest) = left.tokens.checked_sub(tokens) else { return false };
        left.tokens = rest;
        true
    }

    /// Takes money beyond a reservation, all or none.
    #[must_use]
    pub fn take_cost(&self, cost: Money) -> bool {
        let mut left = self.lock();
        let Some(rest) = left.cost.0.checked_sub(cost.0) else { return false };
        left.cost = Money(rest);
        true
    }

    /// Replaces a leg's reservation by what it really used. More than was reserved is taken as far as it is there.
    pub fn settle(&self, reserved: Reserve, used: Reserve) {
        let mut left = self.lock();
        left.tokens = left.tokens.saturating_add(reserved.tokens).saturating_sub(used.tokens).min(self.lent.tokens);
        left.cost = left.cost.saturating_add(reserved.cost).saturating_sub(used.cost).min(self.lent.cost);
    }

    /// Puts one request and its reservation back: nothing was sent after all.
    pub fn put_back(&self, reserve: Reserve) {
        self.settle(reserve, Reserve::NONE);
        let mut left = self.lock();
        left.attempts = left.attempts.saturating_add(1).min(self.lent.attempts);
    }

    /// What is left.
    #[must_use]
    pub fn left(&self) -> Left {
        *self.lock()
    }

    /// When all of it ends.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        // Nothing panics while it is held; a poisoned ledger would still hold true figures.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Left {
    fn less(self, reserve: Reserve) -> Option<Self> {
        Some(Self {
            attempts: self.attempts.checked_sub(1)?,
            tokens: self.tokens.checked_sub(reserve.tokens)?,
            cost: Money(self.cost.0.checked_sub(reserve.cost.0)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ledger(attempts: u32, tokens: u64, cost: u64) -> Ledger {
        Ledger::new(&Allowance { attempts, tokens, cost: Money(cost), deadline: 0 }, Instant::now())
    }

    const fn reserve(tokens: u64, cost: u64) -> Reserve {
        Reserve { tokens, cost: Money(cost) }
    }

    #[test]
    fn a_leg_takes_all_of_its_reservation_or_nothing() {
        let ledger = ledger(2, 100, 50);
        assert!(!ledger.take(reserve(101, 0)), "one token too many");
        assert!(!ledger.take(reserve(0, 51)), "one nano-dollar too many");
        assert_eq!(ledger.left(), Left { attempts: 2, tokens: 100, cost: Money(50) });
        assert!(ledger.take(reserve(100, 50)), "exactly what is there");
        assert!(!ledger.take(reserve(1, 0)));
        assert!(ledger.take_attempt());
        assert!(!ledger.affords(Reserve::NONE));
        assert!(!ledger.take_attempt(), "one attempt past the limit");
    }

    #[test]
    fn a_reservation_is_replaced_by_what_was_used() {
        let ledger = ledger(3, 100, 100);
        assert!(ledger.take(reserve(60, 60)));
        ledger.settle(reserve(60, 60), reserve(10, 20));
        assert_eq!(ledger.left(), Left { attempts: 2, tokens: 90, cost: Money(80) });
        assert!(ledger.take(reserve(50, 50)));
        ledger.settle(reserve(50, 50), reserve(900, 70));
        assert_eq!(ledger.left(), Left { attempts: 1, tokens: 0, cost: Money(10) });
        assert!(!ledger.take_tokens(1));
        assert!(ledger.take_cost(Money(10)) && !ledger.take_cost(Money(1)));
    }

    #[test]
    fn what_was_not_sent_after_all_is_put_back_and_no_more() {
        let ledger = ledger(1, 10, 10);
        assert!(ledger.take(reserve(10, 10)));
        ledger.put_back(reserve(10, 10));
        ledger.put_back(reserve(10, 10));
        assert_eq!(ledger.left(), Left { attempts: 1, tokens: 10, cost: Money(10) });
    }

    proptest! {
        /// Legs that take, settle and put back in any order never have more out than was lent.
        #[test]
        fn never_more_is_out_than_was_lent(ops in prop::collection::vec((0_u8..3, 0_u64..60, 0_u64..60), 0..64)) {
            let (ledger, mut out) = (ledger(8, 100, 100), Vec::new());
            for (op, tokens, cost) in ops {
                match op {
                    0 => if ledger.take(reserve(tokens, cost)) { out.push(reserve(tokens, cost)) },
                    1 => if let Some(leg) = out.pop() { ledger.settle(leg, leg) },
                    _ => if let Some(leg) = out.pop() { ledger.put_back(leg) },
                }
                let left = ledger.left();
                let sum: u64 = out.iter().map(|leg| leg.tokens).sum();
                prop_assert!(left.tokens + sum <= 100);
                prop_assert!(usize::try_from(left.attempts).unwrap() + out.len() <= 8);
            }
        }
    }
}

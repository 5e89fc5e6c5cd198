//! What a leg uses: estimated before it is sent, taken as reported afterwards, charged whole where nobody said.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ambit_core::money::Price;
use ambit_core::{AttemptRecord, Money};
use ambit_resilience::{Left, LegRecord, Reserve};

/// Characters taken for one token until a target has reported better.
const CHARS_PER_TOKEN: u64 = 3;
/// Highest ratio that is believed: ten tokens a character.
const TOKENS_PER_KCHAR_MAX: u64 = 10_000;

/// Tokens as a provider reported them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Read, those from its prompt cache included.
    pub(crate) input: u64,
    /// Of those, read from its prompt cache.
    pub(crate) cached: u64,
    /// Written.
    pub(crate) output: u64,
}

/// What is set aside for one leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cost: Money,
}

/// What is known of a leg's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bill {
    /// Nothing was charged: it never arrived, or it was refused.
    Nothing,
    /// As reported.
    Reported(Usage),
    /// Nobody said: the whole reservation.
    Unknown,
}

/// Input tokens for 1,000 characters, as a target last reported.
#[derive(Debug, Default)]
pub(crate) struct Ratio(AtomicU32);

impl Ratio {
    /// The same to begin with, learning by itself from here on.
    pub(crate) fn handed_on(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }

    /// Tokens that `chars` characters are taken for: a third of them, or as measured and a tenth more.
    pub(crate) fn estimate(&self, chars: u64) -> u64 {
        match u64::from(self.0.load(Ordering::Relaxed)) {
            0 => chars.div_ceil(CHARS_PER_TOKEN),
            ratio => chars.saturating_mul(ratio).saturating_mul(11).div_ceil(10_000),
        }
    }

    /// Learns from a report, and says what was learned; nothing from a report that cannot be true.
    pub(crate) fn learn(&self, tokens: u64, chars: u64) -> Option<u32> {
        let ratio = tokens.checked_mul(1_000)?.checked_div(chars)?.max(u64::from(tokens > 0));
        let ratio = u32::try_from(ratio).ok().filter(|ratio| (1..=TOKENS_PER_KCHAR_MAX).contains(&u64::from(*ratio)))?;
        self.0.store(ratio, Ordering::Relaxed);
        Some(ratio)
    }
}

impl Reservation {
    /// Sets aside what a leg is estimated to use, at most what is left: the machine has decided already that the call can
    /// be paid, and a ratio measured elsewhere in the meantime does not revoke that.
    pub(crate) fn new(input: u64, output: u64, price: Price, left: Left) -> Self {
        let output = output.min(left.tokens);
        let input = input.min(left.tokens - output);
        Self { input, output, cost: price.of(input, 0, output).min(left.cost) }
    }

    pub(crate) fn reserve(&self) -> Reserve {
        Reserve { tokens: self.input.saturating_add(self.output), cost: self.cost }
    }
}

impl Usage {
    pub(crate) fn spent(&self, price: Price) -> Reserve {
        Reserve { tokens: self.input.saturating_add(self.output), cost: price.of(self.input, self.cached, self.output) }
    }
}

/// One leg as it is accounted for.
pub(crate) fn record(leg: LegRecord, bill: Bill, reserved: &Reservation, price: Price) -> AttemptRecord {
    let LegRecord { kind, target, code, sent, ms, .. } = leg;
    let bill = if sent { bill } else { Bill::Nothing };
    let (input_tokens, output_tokens, cost, at_least) = match bill {
        Bill::Nothing => (0, 0, Money::ZERO, false),
        Bill::Reported(usage) => (usage.input, usage.output, usage.spent(price).cost, false),
        Bill::Unknown => (reserved.input, reserved.output, reserved.cost, true),
    };
    AttemptRecord { kind, target: Arc::clone(&target), code, input_tokens, output_tokens, cost, at_least, ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { input: Money(2), output: Money(10), cached: Money(1) };

    #[test]
    fn estimates_follow_the_last_report_and_a_tenth() {
        let ratio = Ratio::default();
        assert_eq!(ratio.estimate(3_001), 1_001);
        assert_eq!(ratio.learn(250, 1_000), Some(250));
        assert_eq!(ratio.estimate(1_000), 275);
        for (tokens, chars) in [(0, 1_000), (5, 0), (10_001, 1_000), (u64::MAX, 1_000)] {
            assert_eq!(ratio.learn(tokens, chars), None, "{tokens} {chars}");
        }
        assert_eq!(ratio.learn(10_000, 1_000), Some(10_000), "the most that is believed");
        assert_eq!(ratio.learn(1, 10_000), Some(1), "never down to nothing");
    }

    #[test]
    fn a_reservation_never_exceeds_what_is_left_and_keeps_room_for_the_answer() {
        let left = Left { attempts: 1, tokens: 100, cost: Money(500) };
        assert_eq!(Reservation::new(60, 40, PRICE, left), Reservation { input: 60, output: 40, cost: Money(500) });
        assert_eq!(Reservation::new(90, 40, PRICE, left), Reservation { input: 60, output: 40, cost: Money(500) });
        assert_eq!(Reservation::new(9, 2, PRICE, left).reserve(), Reserve { tokens: 11, cost: Money(38) });
    }

    #[test]
    fn a_leg_is_charged_as_reported_or_whole_or_not_at_all() {
        let reserved = Reservation { input: 60, output: 40, cost: Money(520) };
        let usage = Usage { input: 50, cached: 10, output: 7 };
        let check = |bill, sent, expected: (u64, u64, u64, bool)| {
            let leg =
                LegRecord { kind: ambit_core::AttemptKind::First, target: "t".into(), code: "ok".into(), sent, ms: 3, first_token: None };
            let record = record(leg, bill, &reserved, PRICE);
            assert_eq!((record.input_tokens, record.output_tokens, record.cost.0, record.at_least), expected, "{bill:?} {sent}");
        };
        check(Bill::Reported(usage), true, (50, 7, 40 * 2 + 10 + 70, false));
        check(Bill::Unknown, true, (60, 40, 520, true));
        check(Bill::Unknown, false, (0, 0, 0, false));
        check(Bill::Nothing, true, (0, 0, 0, false));
    }
}

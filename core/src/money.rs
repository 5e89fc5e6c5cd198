//! Money as an integer, so that sums are exact and the same on every machine.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount in billionths of a US dollar (nano-dollars); prices a token of the cheapest model exactly. At most 18 billion dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub u64);

const NANO: u64 = 1_000_000_000;

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Converts dollars, rounded to the nearest nano-dollar; negative or not a number is nothing, too much is the maximum.
    #[must_use]
    pub fn from_usd(usd: f64) -> Self {
        // A float-to-int cast saturates and maps NaN to zero.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating is what is wanted")]
        Self((usd * 1e9).round() as u64)
    }

    /// The amount in dollars, for people and JSON.
    #[must_use]
    pub fn usd(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact up to nine million dollars")]
        let nano = self.0 as f64;
        nano / 1e9
    }

    /// This price a token, times `tokens`.
    #[must_use]
    pub const fn times(self, tokens: u64) -> Self {
        Self(self.0.saturating_mul(tokens))
    }

    /// The sum, at most the maximum.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least nothing.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = self.0.div_ceil(1_000);
        write!(f, "${}.{:06}", micro / (NANO / 1_000), micro % (NANO / 1_000))
    }
}

/// What one target charges a token, in nano-dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Price {
    /// A token read by the model.
    pub input: Money,
    /// A token written by the model.
    pub output: Money,
    /// A token read from the provider's prompt cache.
    pub cached: Money,
}

impl Price {
    /// What `input` tokens (of which `cached` came from the provider's cache) and `output` tokens cost.
    #[must_use]
    pub fn of(self, input: u64, cached: u64, output: u64) -> Money {
        let cached = cached.min(input);
        self.input.times(input - cached).saturating_add(self.cached.times(cached)).saturating_add(self.output.times(output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_go_in_and_come_out() {
        assert_eq!(Money::from_usd(1.0), Money(1_000_000_000));
        assert_eq!(Money::from_usd(0.000_000_15).0, 150);
        assert_eq!(Money::from_usd(-1.0), Money::ZERO);
        assert_eq!(Money::from_usd(f64::NAN), Money::ZERO);
        assert_eq!(Money::from_usd(f64::INFINITY), Money(u64::MAX));
        assert_eq!(Money(1_234_567_890).to_string(), "$1.234568");
    }

    #[test]
    fn cached_tokens_are_charged_once_and_never_more_than_were_read() {
        let price = Price { input: Money(150), output: Money(600), cached: Money(75) };
        assert_eq!(price.of(10, 4, 2), Money(6 * 150 + 4 * 75 + 2 * 600));
        assert_eq!(price.of(2, 9, 0), Money(2 * 75));
    }
}

//! The envelope for people: one line a figure, with its arithmetic.

use std::fmt;
use std::time::Duration;

use ambit_core::money::Money;

use super::{Bounds, Line};
use crate::value::Period;

/// Milliseconds as a period; nothing is `0s`.
pub(super) fn time(ms: u64) -> String {
    if ms == 0 { "0s".into() } else { Period(Duration::from_millis(ms)).to_string() }
}

/// Bytes, rounded up to three digits or so where they are many.
pub(super) fn bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..=1_023 => return format!("{bytes} B"),
        1_024..=1_048_575 => (1_u64 << 10, "KiB"),
        1_048_576..=1_073_741_823 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    let tenths = bytes.saturating_mul(10).div_ceil(unit);
    if tenths.is_multiple_of(10) { format!("{} {name}", tenths / 10) } else { format!("{}.{} {name}", tenths / 10, tenths % 10) }
}

/// A price as providers tell it.
pub(super) fn price(token: Money) -> String {
    format!("{} a million", token.times(1_000_000))
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "worst case of profile `{}`, revision {}", self.profile, self.config_revision)?;
        for agent in &self.agents {
            writeln!(f, "\none session of agent `{}`", agent.agent)?;
            table(f, &agent.lines)?;
        }
        writeln!(f, "\na full process")?;
        table(f, &self.process.lines)?;
        write!(f, "\nnote: {}", self.excess)
    }
}

fn table(f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
    let name = lines.iter().map(|line| line.name.len()).max().unwrap_or_default();
    let value = lines.iter().map(|line| line.value.len()).max().unwrap_or_default();
    for line in lines {
        writeln!(f, "  {:name$}  {:>value$}  = {}", line.name, line.value, line.arithmetic)?;
    }
    Ok(())
}

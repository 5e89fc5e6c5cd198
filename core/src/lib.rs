//! The words that every part of Ambit shares, and the session machine that decides.
//!
//! **Invariant:** nothing here does I/O, reads a clock, rolls dice, spawns, locks or awaits. Time, identifiers and
//! digests come in as arguments, bodies (texts, arguments, results) stay outside and are known by [`Body`] alone.

pub mod attempt;
pub mod effect;
pub mod error;
pub mod id;
pub mod limit;
pub mod money;
pub mod port;
pub mod session;
pub mod signal;
pub mod tool;
pub mod trace;
pub mod verdict;

pub use attempt::{Allowance, AttemptKind, AttemptRecord};
pub use effect::{Effect, Gate};
pub use error::{ErrorKind, Origin};
pub use id::{Body, Digest, SessionId, Step};
pub use limit::{Axis, Limits};
pub use money::Money;
pub use signal::Signal;
pub use tool::{ToolCode, ToolResult};
pub use verdict::{Cause, Reason, Settlement, Status, Verdict};

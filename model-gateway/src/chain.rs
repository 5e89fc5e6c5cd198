//! Targets in the order in which they are asked.
//!
//! A chain has exactly one target so far. Fallback (the next target after a failure that [`Class::next`] lets go on) and
//! hedging (a second leg beside a slow first one) take their place in [`Chain::call`]: both stand outside of the
//! targets' policies, share the one ledger of the command, and add their legs to the same records.
//!
//! [`Class::next`]: ambit_resilience::Class::next

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::money::Price;
use ambit_core::signal::Subject;
use ambit_resilience::{Permit, Saturated};
use tokio::time::Instant;

use crate::chat::{ModelCall, ModelOutcome};
use crate::target::Target;

/// Targets in the order in which they are asked.
pub struct Chain {
    name: Arc<str>,
    target: Arc<Target>,
}

/// The right to make one model call, taken at the door. Moves into the first call; dropped it is given back.
#[derive(Debug)]
pub struct Admission(Permit);

/// Says that no permit could be had. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model bulkhead `{pool}` is full ({in_use} of {permits} running, {queued} waiting)")]
pub struct Refusal {
    /// Whose limit: the target's bulkhead.
    pub pool: Arc<str>,
    /// Calls allowed at once.
    pub permits: u32,
    /// Calls that are running.
    pub in_use: u32,
    /// Calls that wait.
    pub queued: u32,
    /// When it may be worth coming back, from how long permits have been held lately.
    pub retry_after: Duration,
}

/// Most that one call over a chain can be lent: what `CallCeiling` of a session's first record says, but for the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceiling {
    /// Requests on the wire, over all targets.
    pub attempts: u32,
    /// The smallest context window, tokens; `None` where nobody said.
    pub context_window: Option<u64>,
    /// The dearest price, each kind of token for itself.
    pub price: Price,
    /// The smallest maximum of output tokens; `None` where nobody said.
    pub max_output_tokens: Option<u32>,
    /// The longest that one call may take with all its attempts.
    pub request: Duration,
}

impl Chain {
    pub(crate) const fn new(name: Arc<str>, target: Arc<Target>) -> Self {
        Self { name, target }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Names of its targets and what their models are called, in order.
    pub fn targets(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        let options = self.target.options();
        std::iter::once((&options.name, &options.model))
    }

    /// Most that one call can be lent.
    #[must_use]
    pub fn ceiling(&self) -> Ceiling {
        let options = self.target.options();
        Ceiling {
            attempts: options.retry.attempts.get().min(ambit_resilience::ATTEMPTS_MAX),
            context_window: options.context_window,
            price: options.price,
            max_output_tokens: options.max_output_tokens.map(std::num::NonZeroU32::get),
            request: options.request,
        }
    }

    /// With less than this left no target makes an attempt.
    #[must_use]
    pub fn min_useful(&self) -> Duration {
        self.target.options().min_useful
    }

    /// Takes the permit of a fresh session's first call, without sending anything. Waits at most the target's
    /// `fresh_wait`, which is zero unless configured, and never past `deadline`.
    ///
    /// # Errors
    /// [`Refusal`] if there is none: the answer is `SATURATED`.
    ///
    /// # Cancel safety
    /// Dropping the future gives its place in the queue back.
    pub async fn admit(&self, subject: Subject, deadline: Instant) -> Result<Admission, Refusal> {
        let bulkhead = self.target.bulkhead();
        match bulkhead.admit_fresh(subject, deadline).await {
            Ok(permit) => Ok(Admission(permit)),
            Err(Saturated { pool, permits, retry_after, .. }) => {
                Err(Refusal { pool, permits, in_use: bulkhead.in_use(), queued: bulkhead.queued(), retry_after })
            }
        }
    }

    /// Asks for one turn.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection and returns permit and place in the queue. What it had used by then is
    /// not reported: whoever drops it charges the whole allowance.
    pub async fn call(&self, mut call: ModelCall<'_>) -> ModelOutcome {
        let permit = call.admission.take().map(|Admission(permit)| permit);
        self.target.call(&self.name, call, permit).await
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("name", &self.name).field("target", &self.target).finish()
    }
}

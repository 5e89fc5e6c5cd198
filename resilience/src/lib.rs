//! Deadline, bulkhead, retry, timeout and the policy that composes them.
//!
//! **Invariant:** no HTTP client, no provider, no framework is known here, no task is spawned, and nothing waits
//! without a bound. Whatever is dropped, no permit, place or counter stays behind.
//!
//! One [`Policy`] stands around one target; each logical call goes through it:
//!
//! ```
//! # use std::{num::NonZeroU32, sync::Arc, time::Duration};
//! # use ambit_core::{Allowance, Money, signal::{DependencyKind, Silent, Subject}};
//! # use ambit_resilience::*;
//! # use tokio::time::Instant;
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let sink = Arc::new(Silent);
//! let bulkhead = Bulkhead::new(
//!     BulkheadOptions {
//!         pool: "primary".into(),
//!         kind: DependencyKind::Model,
//!         permits: NonZeroU32::new(8).unwrap(),
//!         queue: 56,
//!         fresh_wait: Duration::ZERO,
//!         continuing_wait: Duration::from_secs(2),
//!     },
//!     sink.clone(),
//! );
//! let policy = Policy::new(
//!     PolicyOptions {
//!         kind: DependencyKind::Model,
//!         dependency: "model".into(),
//!         target: "primary".into(),
//!         peer: Arc::default(),
//!         request: Duration::from_secs(30),
//!         attempt: Duration::from_secs(20),
//!         margin: Duration::from_millis(150),
//!         min_useful: Duration::from_secs(3),
//!         retry: RetryOptions::attempts(ATTEMPTS_DEFAULT),
//!         seed: 7,
//!     },
//!     bulkhead.clone(),
//!     sink,
//! );
//!
//! // At the door: a permit, or an answer at once.
//! let admission = bulkhead.try_admit_fresh(Subject::default()).unwrap();
//!
//! // One command's allowance, shared by all legs.
//! let deadline = Instant::now() + Duration::from_secs(37);
//! let allowance = Allowance { attempts: 2, tokens: 4_000, cost: Money::ZERO, deadline: 37_000 };
//! let ledger = Ledger::new(&allowance, deadline);
//! let committed = Committed::new();
//! let context = CallContext {
//!     deadline,
//!     subject: Subject::default(),
//!     ledger: &ledger,
//!     reserve: Reserve { tokens: 1_200, cost: Money::ZERO },
//!     repeatable: true,
//!     admission: Some(admission),
//!     fresh: true,
//!     committed: &committed,
//! };
//! let called = policy
//!     .call(context, |leg| async move {
//!         // Build headers, body and key anew, send with `leg.end_by` as deadline upstream ..
//!         if leg.number == 1 {
//!             return Err(Failure::new(Outcome::status(503)).with_retry_after(None));
//!         }
//!         leg.first_token(); // the head is there: the attempt's timer has done its work
//!         leg.commit(); // before the first piece is passed on: nothing is repeated after this
//!         Ok("an answer")
//!     })
//!     .await;
//! // The permit covers the body: keep it until the body is read.
//! let (answer, permit) = called.result.unwrap();
//! assert_eq!((answer, called.legs.len(), bulkhead.in_use()), ("an answer", 2, 1));
//! drop(permit);
//! ledger.settle(Reserve { tokens: 1_200, cost: Money::ZERO }, Reserve { tokens: 900, cost: Money::ZERO });
//! assert!(bulkhead.is_quiescent());
//! # }
//! ```

mod bulkhead;
mod bulkheads;
mod class;
mod classify;
pub mod deadline;
mod failure;
mod ledger;
mod leg;
mod policy;
mod retry;

pub use bulkhead::{
    Bulkhead, BulkheadOptions, CONTINUING_WAIT_DEFAULT, FRESH_WAIT_MAX, PERMITS_MODEL, Permit, RETRY_AFTER_MAX, RETRY_AFTER_MIN, Saturated,
    SaturatedReason,
};
pub use bulkheads::Bulkheads;
pub use class::{Breaker, Class, Credential, Health, Next, Retry, Row};
pub use classify::{Outcome, Refuser, Says, classify};
pub use failure::Failure;
pub use ledger::{Ledger, Left, Reserve};
pub use leg::{Committed, Leg, LegRecord, Legs};
pub use policy::{CallContext, Called, Policy, PolicyError, PolicyOptions};
pub use retry::{
    ATTEMPTS_DEFAULT, ATTEMPTS_MAX, BASE_DEFAULT, HOLD_MAX, MAX_DELAY_DEFAULT, MIN_DELAY_DEFAULT, RETRY_AFTER_HONOURED_MAX, RetryOptions,
    back_off, pushed_back, retry_after,
};

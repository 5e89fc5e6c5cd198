//! Drivers that do what the session machine decides, and decide nothing.
//!
//! **Invariant:** an event is in the journal before a command that it caused runs; every reader of a session goes through
//! its journal, so that no reader knows which driver ran; every task is tracked and ends when the process drains.

mod agent;
mod clock;
mod content;
mod continued;
mod desk;
mod driver;
mod error;
mod follow;
mod housekeeping;
mod ids;
mod keyed;
mod notice;
mod orchestrator;
mod progress;
mod reasons;
mod record;
mod rendered;
mod replay;
mod request;
mod setup;
mod stream;
mod tighten;
mod view;

pub use agent::Agent;
pub use clock::{SessionClock, wall_ms};
pub use content::{body_of, digest_of};
pub use desk::{Desk, Posted};
pub use driver::live::Timeline;
pub use error::{LookupError, StartError, Untightened};
pub use follow::{Followed, Said, SessionStream};
pub use orchestrator::{CancelOnDrop, Orchestrator, OrchestratorOptions, Quiescence, Running, Sessions};
pub use progress::StepTally;
pub use reasons::settled;
pub use record::Unreadable;
pub use replay::{Decided, Decision, Left, RefusedCall, Replay};
pub use request::{IdempotencyKey, LimitRefusal, LimitsWish, METADATA_KEY_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_MAX, SessionRequest};
pub use setup::{Agents, Setup};
pub use stream::{Cursor, EventId, NoEventId, Remaining, limits_json};
pub use tighten::Tightened;
pub use view::{Degradation, EffectCounts, FailureView, Line, SessionView};

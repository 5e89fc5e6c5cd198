//! The session machine: pure, total, replayable. It decides, a driver does.

mod batch;
mod budget;
mod command;
mod effects;
mod event;
mod loops;
mod machine;
mod running;
mod settle;
mod started;
mod transcript;
mod turn;

pub use budget::Spent;
pub use command::{Command, fingerprint};
pub use effects::{EffectRecord, EffectState};
pub use event::{CallClass, Canceller, Decision, Event, Finding, FinishReason, ModelFault, PreparedCall, Reply};
pub use machine::{Heard, Machine};
pub use started::{
    CallCeiling, Continues, InputItem, MACHINE_VERSION, NamedTarget, OfferedTool, OnLimit, Principal, Saga, Speaker, Started, TaintRule,
};
pub use transcript::{Transcript, Turn, TurnCall};

//! The session machine: pure, total, replayable. It decides, a driver does.

mod command;
mod event;
mod started;

pub use command::{Command, fingerprint};
pub use event::{CallClass, Canceller, Decision, Event, Finding, FinishReason, ModelFault, PreparedCall, Reply};
pub use started::{CallCeiling, InputItem, MACHINE_VERSION, OfferedTool, OnLimit, Principal, Saga, Speaker, Started, TaintRule};

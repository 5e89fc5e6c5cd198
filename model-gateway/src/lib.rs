//! Chat types of our own, one file a provider dialect, the chain of targets.
//!
//! A [`Gateway`] holds the configured targets and chains. [`Chain::admit`] takes the first permit at the door without
//! sending anything; [`Chain::call`] asks for one turn of the model and answers with the turn, or with the fault in
//! the machine's words, and with one record a request on the wire.
//!
//! **Invariant:** nothing here reads files, environment or a wall clock; nothing decides what a failure means (that is
//! [`ambit_resilience::classify`] alone); no task is spawned. Dropping a call closes its connection and gives its permit
//! back. Once a piece of text was passed on, nothing of that turn is repeated.
//!
//! Provider JSON never leaves its dialect: what others see is [`Turn`], [`RawCall`] and [`ModelFailure`].

mod chain;
mod chat;
mod dialect;
mod error;
mod gateway;
mod options;
mod peer;
mod probe;
mod stage;
mod target;
#[cfg(test)]
mod tests;
mod usage;
mod wall;

pub use chain::{Admission, Ceiling, Chain, Refusal};
pub use chat::{Conversation, Message, ModelCall, ModelFailure, ModelOutcome, NUDGE, RawCall, ToolChoice, ToolDeclaration, Tools, Turn};
pub use error::{GatewayError, ScriptError};
pub use gateway::{Gateway, PoolState};
pub use options::{
    ChainOptions, DialectOptions, GatewayOptions, HOLD_DEFAULT, ProviderOptions, RESPONSE_DEFAULT, SSE_LINE_DEFAULT, ScriptedOptions,
    Streaming, TargetOptions,
};
pub use probe::{Found, Probe, probe};
pub use wall::WallClock;

pub use ambit_core::session::FinishReason;

//! What a model is shown and what it answers, in words of our own: no provider's JSON.

mod conversation;
mod tools;
mod turn;

pub(crate) use conversation::Item;
pub use conversation::{Conversation, Message};
pub(crate) use tools::Form;
pub use tools::{ToolDeclaration, Tools};
pub use turn::{ModelCall, ModelFailure, ModelOutcome, NUDGE, RawCall, ToolChoice, Turn};

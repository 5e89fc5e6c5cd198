//! The only reader of files and environment: profiles, validation, the envelope.
//!
//! [`load`] reads [`Sources`] and gives a [`Config`] in which everything was checked, or [`ConfigErrors`] with everything
//! that is wrong. From a `Config` come the `Options` of every other crate, the envelope ([`bounds`]), and what a person
//! may ask ([`Config::explain`], [`Config::show`], [`schema`], [`reference()`]).
//!
//! **Invariant:** no other crate reads a file or a variable to find out how it should behave, and nothing here does
//! anything else. A setting is accepted only if it is enforced; a secret is never printed.

mod bounds;
mod changes;
mod check;
mod config;
mod convert;
pub mod demo;
mod error;
mod explain;
mod files;
mod layers;
mod load;
mod node;
mod otel;
mod reference;
mod revision;
mod secret;
pub mod settings;
mod shape;
mod sources;
#[cfg(test)]
mod tests;
mod unbuilt;
mod validate;
pub mod value;
mod variables;

pub use bounds::{AgentBounds, Bounds, EXCESS, Envelope, Line, ProcessBounds, bounds};
pub use changes::{Change, VALUE_CHARS_MAX, needs_restart};
pub use check::NAME_CHARS_MAX;
pub use config::{AgentDefinition, Config, REQUEST_OVER_DEADLINE};
pub use convert::Surroundings;
pub use error::{ConfigErrors, PROBLEMS_MAX, Problem};
pub use explain::{Candidate, Explanation};
pub use files::{SCHEMA_BYTES_MAX, SCRIPT_BYTES_MAX};
pub use load::load;
pub use node::Place;
pub use otel::{OtlpProtocol, TRACE_EXPORT_MS_MAX, TRACE_QUEUE_MAX, TraceExport, TraceSampler};
pub use reference::reference;
pub use secret::SECRET_BYTES_MAX;
pub use shape::schema;
pub use sources::{FILE_BYTES_MAX, FILE_DEFAULT, File, INJECTED, PREFIX, RESERVED, Sources};

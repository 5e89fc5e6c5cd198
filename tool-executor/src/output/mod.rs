//! What a model gets to read of a tool's output: cleaned, capped, and fenced where it is not trusted.

pub(crate) mod cap;
pub(crate) mod clean;
pub(crate) mod fence;

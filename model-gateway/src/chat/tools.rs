//! The tools that a model is told about. What they do, and whether they may, is not known here.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

/// One tool as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDeclaration {
    /// The name it is called by: at most 64 characters of `[A-Za-z0-9_-]`.
    pub name: Arc<str>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// JSON Schema of its arguments.
    pub schema: Arc<Value>,
}

/// A dialect's form of declarations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Of chat completions.
    OpenAiChat,
    /// Of OpenAI's Responses API.
    OpenAiResponses,
    /// Of Anthropic's Messages API.
    Anthropic,
}

/// The declarations of one session, encoded once a form. Shared by all of its calls.
pub struct Tools {
    declarations: Vec<ToolDeclaration>,
    chars: u64,
    encoded: [OnceLock<Box<[u8]>>; 3],
}

impl Tools {
    /// Fixes what is offered.
    #[must_use]
    pub fn new(declarations: Vec<ToolDeclaration>) -> Self {
        let chars = declarations.iter().map(ToolDeclaration::chars).sum();
        Self { declarations, chars, encoded: Default::default() }
    }

    /// Offers nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Vec::new())
    }

    /// What is offered, in order.
    #[must_use]
    pub fn declarations(&self) -> &[ToolDeclaration] {
        &self.declarations
    }

    /// True if nothing is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.declarations.is_empty()
    }

    /// Characters of all declarations: what `CallCeiling::tools_chars` of the session's first record says.
    #[must_use]
    pub const fn chars(&self) -> u64 {
        self.chars
    }

    /// True if a tool of this name is offered.
    #[must_use]
    pub fn offers(&self, name: &str) -> bool {
        self.declarations.iter().any(|tool| *tool.name == *name)
    }

    pub(crate) fn encoded(&self, form: Form, encode: impl FnOnce(&[ToolDeclaration]) -> Vec<u8>) -> &[u8] {
        let place = match form {
            Form::OpenAiChat => 0,
            Form::OpenAiResponses => 1,
            Form::Anthropic => 2,
        };
        self.encoded[place].get_or_init(|| encode(&self.declarations).into_boxed_slice())
    }
}

impl ToolDeclaration {
    fn chars(&self) -> u64 {
        let text = self.name.chars().count() + self.description.chars().count() + self.schema.to_string().chars().count();
        text as u64
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.declarations.iter().map(|tool| &tool.name)).finish()
    }
}

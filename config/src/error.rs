//! Everything that is wrong with a configuration, all at once, each with its place and what to do.

use std::fmt;

use ambit_core::{ErrorKind, Origin};

use crate::node::Place;

/// Most problems that are reported at once; a file with more is not read to its end by anybody.
pub const PROBLEMS_MAX: usize = 100;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands; `None` for what concerns the configuration as a whole.
    pub place: Option<Place>,
    /// Which key, dots between its parts.
    pub key: String,
    /// What stands there; never for a secret.
    pub value: Option<String>,
    /// What is wrong with it.
    pub reason: String,
    /// What is allowed, or what to do.
    pub hint: Option<String>,
    /// Other keys that it depends on: a problem of theirs explains this one.
    pub(crate) also: Vec<String>,
}

impl Problem {
    pub(crate) fn new(place: Option<Place>, key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place, key: key.into(), value: None, reason: reason.into(), hint: None, also: Vec::new() }
    }

    pub(crate) fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn also(mut self, key: impl Into<String>) -> Self {
        self.also.push(key.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "`{}`", self.key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.reason)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// All problems of a configuration, in order of their places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// At least one, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub more: usize,
}

impl ConfigErrors {
    /// Sorts, removes what is said twice and caps.
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| (&a.place, &a.key, &a.reason).cmp(&(&b.place, &b.key, &b.reason)));
        problems.dedup();
        let more = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        Self { problems, more }
    }

    /// What kind of error it is: always [`ErrorKind::Invalid`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    /// Whose it is: always the caller's.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        Origin::Caller
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len() + self.more;
        write!(f, "the configuration has {count} problem{}", if count == 1 { "" } else { "s" })?;
        for problem in &self.problems {
            write!(f, "\n{problem}")?;
        }
        if self.more > 0 {
            write!(f, "\n.. and {} more", self.more)?;
        }
        Ok(())
    }
}

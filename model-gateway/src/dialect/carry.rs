//! What a provider wants back with a turn (reasoning, thinking), as it is kept with the turn.
//!
//! Kept for turns with calls only: nobody wants to read old reasoning once the tool loop is over. It goes back to the
//! target that said it and, should that target have learned another dialect meanwhile, to nobody: what one provider signed
//! another one refuses.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Parts of a turn, unchanged, in the order in which they came.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Carry {
    /// The target.
    by: String,
    dialect: String,
    parts: Vec<Part>,
}

/// One part of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// How many calls of the turn stand before it.
    pub(super) behind: usize,
    /// As the provider wrote it.
    pub(super) value: Value,
}

/// What is kept of a turn with so many calls; `None` for nothing.
pub(super) fn keep(target: &str, dialect: &str, parts: Vec<Part>, n_calls: usize) -> Option<String> {
    if parts.is_empty() || n_calls == 0 {
        return None;
    }
    serde_json::to_string(&Carry { by: target.to_owned(), dialect: dialect.to_owned(), parts }).ok()
}

/// What goes back with a turn to this target in this dialect.
pub(super) fn of(carry: Option<&str>, target: &str, dialect: &str) -> Vec<Part> {
    let carry = carry.and_then(|carry| serde_json::from_str::<Carry>(carry).ok());
    carry.filter(|carry| carry.by == target && carry.dialect == dialect).map(|carry| carry.parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_kept_goes_to_its_target_in_its_dialect_and_to_nobody_else() {
        let parts = || vec![Part { behind: 1, value: json!({"type": "thinking", "signature": "s"}) }];
        let kept = keep("t", "anthropic", parts(), 2).unwrap();
        assert_eq!(of(Some(&kept), "t", "anthropic"), parts());
        for (carry, target, dialect) in [
            (Some(&*kept), "u", "anthropic"),
            (Some(&*kept), "t", "openai_responses"),
            (None, "t", "anthropic"),
            (Some("{"), "t", "anthropic"),
        ] {
            assert_eq!(of(carry, target, dialect), [], "{carry:?} {target} {dialect}");
        }
        assert_eq!(of(Some(r#"{"by":"t","message":{"reasoning_content":"hm"}}"#), "t", "anthropic"), [], "of chat completions");
        assert_eq!(keep("t", "anthropic", parts(), 0), None, "nobody wants it back once the tool loop is over");
        assert_eq!(keep("t", "anthropic", vec![], 1), None);
    }
}

//! Names of tools as strict providers take them.

use std::borrow::Cow;

/// Longest name of a tool, characters: the least that any provider allows.
const NAME_CHARS_MAX: usize = 64;
/// A name where the model wrote none.
const NAMELESS: &str = "unnamed";

/// The name in a call of the history. A model may have made it up, and a strict provider refuses the whole history for a
/// character that it would not have taken in a declaration.
pub(crate) fn tool_name(name: &str) -> Cow<'_, str> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() {
        return NAMELESS.into();
    }
    if name.len() <= NAME_CHARS_MAX && name.chars().all(is_fit) {
        return name.into();
    }
    name.chars().take(NAME_CHARS_MAX).map(|c| if is_fit(c) { c } else { '_' }).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_made_up_is_one_that_providers_take() {
        for (name, expected) in [("look-up_1", "look-up_1"), ("look up.now", "look_up_now"), ("größe", "gr__e"), ("", "unnamed")] {
            assert_eq!(tool_name(name), expected);
        }
        assert_eq!(tool_name(&"x".repeat(NAME_CHARS_MAX)).len(), NAME_CHARS_MAX);
        assert_eq!(tool_name(&"x".repeat(NAME_CHARS_MAX + 1)).len(), NAME_CHARS_MAX);
    }
}

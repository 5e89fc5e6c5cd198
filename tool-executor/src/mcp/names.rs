//! The names under which a server's tools are offered: what every provider accepts, and the same in every run.

use crate::prepare::digest;

/// Longest name that providers accept, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Hexadecimal digits that tell two tools apart whose names would otherwise be one.
const DIGITS: usize = 8;

/// The name of a server's tool, `SERVER__TOOL` where that can be said; else as much of it as fits and a digest of the
/// whole. Depends on the two names alone, so that it never changes with what else there is.
pub(crate) fn offered_name(server: &str, tool: &str) -> String {
    let plain = format!("{server}__{tool}");
    let spoken: String = plain.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect();
    if spoken == plain && spoken.len() <= NAME_CHARS_MAX {
        return spoken;
    }
    let digest = digest(format!("{server}\0{tool}").as_bytes()).to_string();
    let head: String = spoken.chars().take(NAME_CHARS_MAX - DIGITS - 1).collect();
    format!("{head}_{}", &digest[..DIGITS])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_that_can_be_said_stays_and_others_get_a_digest() {
        assert_eq!(offered_name("fs", "read_file"), "fs__read_file");
        assert_eq!(offered_name("fs", &"x".repeat(60)), format!("fs__{}", "x".repeat(60)));
        let long = offered_name("fs", &"x".repeat(61));
        assert_eq!(long.len(), 64);
        assert_ne!(long, offered_name("fs", &"x".repeat(62)));
        assert_ne!(offered_name("fs", "a.b"), offered_name("fs", "a/b"));
        assert_ne!(offered_name("fs", "a.b"), offered_name("fs", "a_b"));
    }

    proptest! {
        #[test]
        fn every_name_is_what_providers_accept(server in "\\PC{1,20}", tool in "\\PC{0,100}") {
            let name = offered_name(&server, &tool);
            prop_assert!(name.len() <= NAME_CHARS_MAX && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            prop_assert_eq!(name, offered_name(&server, &tool));
        }
    }
}

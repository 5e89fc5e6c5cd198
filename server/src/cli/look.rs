//! How a terminal may be spoken to: with colour and moving lines, or as a file is.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

/// What may be shown where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Stdout takes colour.
    pub(crate) out_colour: bool,
    /// Stdout is a terminal, whether or not it takes colour.
    pub(crate) out_terminal: bool,
    /// Stderr takes colour, and lines that are drawn again.
    pub(crate) live: bool,
}

impl Look {
    /// Looks at the process's streams and at what its environment says about them.
    pub(crate) fn of(env: &BTreeMap<String, String>) -> Self {
        Self::decide(env, std::io::stdout().is_terminal(), std::io::stderr().is_terminal())
    }

    fn decide(env: &BTreeMap<String, String>, out_terminal: bool, err_terminal: bool) -> Self {
        let plain = env.get("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env.get("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let styled = !plain && !dumb;
        Self { out_colour: out_terminal && styled, out_terminal, live: err_terminal && styled }
    }

    /// A text for stdout in a colour (a parameter of ECMA-48's SGR), if it takes one.
    pub(crate) fn out(self, colour: &str, text: &str) -> String {
        if self.out_colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A text for stderr in a colour, if it takes one.
    pub(crate) fn err(self, colour: &str, text: &str) -> String {
        if self.live { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Less bright.
pub(crate) const DIM: &str = "2";
/// For what is well.
pub(crate) const GREEN: &str = "32";
/// For what should be looked at.
pub(crate) const YELLOW: &str = "33";
/// For what is wrong.
pub(crate) const RED: &str = "31";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_that_wants_it() {
        let check = |vars: &[(&str, &str)], terminal, styled| {
            let env = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let look = Look::decide(&env, terminal, terminal);
            assert_eq!((look.out_colour, look.live, look.out_terminal), (styled, styled, terminal), "{vars:?}");
        };
        check(&[("TERM", "xterm")], true, true);
        check(&[("TERM", "xterm")], false, false);
        check(&[("TERM", "xterm"), ("NO_COLOR", "1")], true, false);
        check(&[("TERM", "xterm"), ("NO_COLOR", "")], true, true);
        check(&[("TERM", "dumb")], true, false);
        check(&[], true, false);
    }
}

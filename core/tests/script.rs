//! What a session does, told as scripts: what happens on the left, what the machine asks for on the right.
//!
//! The words are those of [`crate::kit`]. The right side is `commands | results | settlement`; the last two may be left out.

mod crash;
mod limits;
mod model;
mod outside;
mod settlement;
mod time;
mod tools;
mod turns;

use ambit_core::session::EffectState;

use crate::kit::{Play, play};

#[track_caller]
fn check(script: &str, expected: &str) {
    let play = play(script);
    let mut parts = expected.split('|').map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(play.printed.join(" "), parts.next().unwrap(), "commands of `{script}`");
    if let Some(results) = parts.next() {
        assert_eq!(play.driver.results(), results, "results of `{script}`");
    }
    if let Some(settlement) = parts.next() {
        assert_eq!(play.driver.machine.settlement().as_str(), settlement, "settlement of `{script}`");
    }
}

/// What the last command lends: `attempts tokens cost deadline`, and the output asked for.
#[track_caller]
fn lent(script: &str, expected: &str) {
    let play = play(script);
    let last = play.driver.journal.last().map_or(&play.driver.first, |entry| &entry.commands).last().unwrap().to_string();
    let (from, to) = (last.find('[').unwrap(), last.find(']').unwrap());
    let output = last.split(' ').find(|word| word.starts_with("output=")).map(|word| format!(" {word}")).unwrap_or_default();
    assert_eq!(format!("{}{output}", &last[from + 1..to]), expected, "`{script}`");
}

fn states(play: &Play) -> Vec<EffectState> {
    play.driver.machine.effects().iter().map(|effect| effect.state).collect()
}

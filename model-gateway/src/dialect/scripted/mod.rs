//! Dialect `scripted`: a file of rules in place of a provider, for demos, tests and offline work.
//!
//! It looks at the last message, takes the first rule that fits, and says or calls what the rule says, piece by piece
//! like a real model. It knows nothing but the conversation, so that the same conversation always gets the same answer.
//! **Invariant:** a call is only made to a tool that is offered and while tools are switched on; without a rule that
//! fits, the default answers in words.

mod file;
mod rule;
mod template;

use std::time::Duration;

use ambit_core::session::FinishReason;

use self::rule::{Rule, Said, Scene};
use self::template::Template;
use crate::chat::ToolChoice;
use crate::dialect::{Answer, Ask};
use crate::error::ScriptError;
use crate::stage::LegStage;
use crate::usage::Usage;

/// Characters that count as one token here: about what English text comes to.
const CHARS_PER_TOKEN: u64 = 4;

/// A file of rules, checked.
#[derive(Debug)]
pub(crate) struct Script {
    pace: Pace,
    rules: Vec<Rule>,
    default: Template,
}

/// How fast it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    /// Before the first piece.
    first: Duration,
    /// Before each further piece.
    piece: Duration,
    /// Characters of a piece.
    chars: usize,
}

impl Script {
    /// Reads and checks a file's text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and what would be right.
    pub(crate) fn parse(source: &str, text: &str) -> Result<Self, ScriptError> {
        file::parse(source, text)
    }

    /// Answers.
    ///
    /// # Cancel safety
    /// Dropping the future stops it between two pieces.
    pub(crate) async fn play(&self, ask: &Ask<'_>, leg: &LegStage<'_>) -> Answer {
        let Said { mut text, calls } = self.say(ask);
        let written: u64 = calls.iter().map(|call| tokens(&call.name) + tokens(&call.arguments)).sum();
        let room = u64::from(ask.max_output).saturating_sub(written);
        let mut finish = FinishReason::Stop;
        if tokens(&text) > room {
            text = text.chars().take(usize::try_from(room * CHARS_PER_TOKEN).unwrap_or(usize::MAX)).collect();
            finish = FinishReason::Length;
        }

        tokio::time::sleep(self.pace.first).await;
        leg.first_token();
        for (n, piece) in pieces(&text, self.pace.chars).enumerate() {
            if n > 0 {
                tokio::time::sleep(self.pace.piece).await;
            }
            leg.text(piece);
        }
        if !calls.is_empty() {
            leg.call_begun();
        }
        let input = ask.conversation.chars().saturating_add(ask.tools.chars()).div_ceil(CHARS_PER_TOKEN);
        let usage = Usage { input, cached: 0, output: tokens(&text) + written };
        leg.reported(usage);
        Answer { text, calls, carry: None, finish, model: None, usage: Some(usage) }
    }

    fn say(&self, ask: &Ask<'_>) -> Said {
        let scene = Scene::new(ask.conversation, ask.tools, ask.tool_choice == ToolChoice::Auto);
        let said = self.rules.iter().find_map(|rule| rule.play(&scene));
        said.unwrap_or_else(|| Said { text: self.default.fill(|slot| scene.value(slot)), calls: Vec::new() })
    }
}

fn tokens(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(CHARS_PER_TOKEN)
}

fn pieces(text: &str, chars: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let cut = rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(cut);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests;

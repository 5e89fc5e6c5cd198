//! Going on from an earlier session: what its caller and its agent said, and nothing else of it.
//!
//! A session keeps what it was begun with, the words of those before it included, so that one look at the last of a line
//! finds all of it, and whatever is deleted elsewhere later stays readable here. Words come in pairs (what was asked,
//! what was answered) and are left out pair by pair, the oldest first: an answer never stands without its question.

use std::sync::Arc;

use ambit_core::limit::{CONTINUED_CHARS_MAX, CONTINUED_LINKS_MAX, MESSAGE_CHARS};
use ambit_core::session::{Continues, InputItem, Principal, Speaker};
use ambit_core::{Body, SessionId};
use ambit_store::{Store, TextFate};

use crate::driver::recovery::rebuild;
use crate::error::{LookupError, StartError};

/// What a new session takes over from an earlier one.
pub(crate) struct Earlier {
    /// Who said what, the oldest first.
    pub(crate) words: Vec<(Speaker, Arc<str>)>,
    /// For the first record.
    pub(crate) continues: Continues,
    /// True if the earlier session had untrusted content in its context at its end.
    pub(crate) tainted: bool,
}

/// What there is room for beside the session's own prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Characters of the model's window, framing included.
    pub(crate) chars: u64,
    /// Bytes of the transcript.
    pub(crate) bytes: u64,
}

/// Reads what is to be taken over from `previous`.
///
/// # Errors
/// [`StartError::PreviousNotFound`], also if it is somebody else's; [`StartError::PreviousUnusable`] if it has no end or no
/// texts; [`StartError::Store`].
pub(crate) async fn earlier(store: &Store, previous: SessionId, principal: &Principal, room: Room) -> Result<Earlier, StartError> {
    let unusable = |why| StartError::PreviousUnusable { id: previous, why };
    let row = store.session(previous).await.map_err(StartError::Store)?;
    let own = row.filter(|row| row.deleted_ms.is_none() && row.tenant == *principal.tenant && row.principal == *principal.id);
    let row = own.ok_or(StartError::PreviousNotFound { id: previous })?;
    match row.texts {
        TextFate::Kept => {}
        TextFate::ToGo | TextFate::Gone => return Err(unusable("its texts are not kept")),
    }
    if row.verdict_ms.is_none() {
        return Err(unusable("it is still running: wait for its end, or cancel it"));
    }
    let rebuilt = rebuild(store, previous).await.map_err(|failed| match failed {
        LookupError::NotFound(id) => StartError::PreviousNotFound { id },
        LookupError::Store(failed) => StartError::Store(failed),
        LookupError::Unreadable(_) => unusable("its journal cannot be understood"),
    })?;
    let machine = &rebuilt.progress.machine;
    let started = machine.started();
    // Providers refuse a turn that says nothing.
    let answer = machine.verdict().and_then(|verdict| verdict.answer).filter(|answer| answer.bytes > 0);
    let all = pairs(&started.input, answer);
    let left_out = left_out(&all, room);
    let mut words = Vec::new();
    for item in all.into_iter().skip(left_out).flatten() {
        let text = store.content(previous, item.body.digest).await.map_err(StartError::Store)?;
        words.push((item.speaker, text.ok_or(unusable("its texts are not kept"))?));
    }
    // What was left out before is still missing.
    let before = started.continues.map_or(0, |continues| continues.left_out);
    let left_out = before.saturating_add(u32::try_from(left_out).unwrap_or(u32::MAX));
    Ok(Earlier { words, continues: Continues { previous, left_out }, tainted: machine.is_tainted() })
}

/// Everything that was said, in pairs. What was never answered belongs to the next answer.
fn pairs(input: &[InputItem], answer: Option<Body>) -> Vec<Vec<InputItem>> {
    let answer = answer.map(|body| InputItem { speaker: Speaker::Agent, body });
    let mut pairs = Vec::new();
    let mut open = Vec::new();
    for item in input.iter().copied().chain(answer) {
        open.push(item);
        if item.speaker == Speaker::Agent {
            pairs.push(std::mem::take(&mut open));
        }
    }
    if !open.is_empty() {
        pairs.push(open);
    }
    pairs
}

/// How many of the oldest pairs have to go.
fn left_out(pairs: &[Vec<InputItem>], room: Room) -> usize {
    let (mut chars, mut framed, mut bytes) = (0_u64, 0_u64, 0_u64);
    let fits = |pair: &&Vec<InputItem>| {
        for InputItem { body, .. } in *pair {
            chars += u64::from(body.chars);
            framed += u64::from(body.chars) + MESSAGE_CHARS;
            bytes += u64::from(body.bytes);
        }
        chars <= CONTINUED_CHARS_MAX && framed <= room.chars && bytes <= room.bytes
    };
    let kept = pairs.iter().rev().take(CONTINUED_LINKS_MAX as usize).take_while(fits).count();
    pairs.len() - kept
}

#[cfg(test)]
mod tests {
    use ambit_core::Digest;

    use super::*;

    const ROOMY: Room = Room { chars: u64::MAX, bytes: u64::MAX };

    fn item(speaker: Speaker, chars: u32) -> InputItem {
        InputItem { speaker, body: Body { digest: Digest([0; 32]), bytes: chars, chars } }
    }

    /// Each pair as the characters of what was asked and of what was answered.
    fn said(pairs: &[(u32, u32)]) -> Vec<InputItem> {
        pairs.iter().flat_map(|(asked, answered)| [item(Speaker::User, *asked), item(Speaker::Agent, *answered)]).collect()
    }

    fn check(said: &[InputItem], room: Room, expected: usize) {
        assert_eq!(left_out(&pairs(said, None), room), expected, "{room:?}");
    }

    #[test]
    fn the_oldest_pairs_go_first_and_whole() {
        check(&said(&[(10, 10), (8_000, 0), (4_000, 4_000)]), ROOMY, 1);
        check(&said(&[(4_000, 4_000), (4_000, 4_000)]), ROOMY, 0);
        check(&said(&[(4_001, 4_000), (4_000, 4_000)]), ROOMY, 1);
        // What does not fit stands between: what is older does not come back behind it.
        check(&said(&[(1, 1), (16_000, 1), (1, 1)]), ROOMY, 2);
        check(&said(&[(16_000, 1)]), ROOMY, 1);
        check(&[], ROOMY, 0);
    }

    #[test]
    fn twenty_links_are_kept_and_not_one_more() {
        check(&said(&[(1, 1); 20]), ROOMY, 0);
        check(&said(&[(1, 1); 21]), ROOMY, 1);
    }

    #[test]
    fn window_and_transcript_bound_what_is_kept() {
        let two = said(&[(100, 100), (100, 100)]);
        let framed = 2 * (100 + MESSAGE_CHARS);
        check(&two, Room { chars: 2 * framed, ..ROOMY }, 0);
        check(&two, Room { chars: 2 * framed - 1, ..ROOMY }, 1);
        check(&two, Room { chars: 0, ..ROOMY }, 2);
        check(&two, Room { bytes: 400, ..ROOMY }, 0);
        check(&two, Room { bytes: 399, ..ROOMY }, 1);
    }

    #[test]
    fn what_was_not_answered_belongs_to_the_next_answer() {
        let asked = [item(Speaker::User, 1), item(Speaker::User, 2)];
        assert_eq!(pairs(&asked, None).len(), 1);
        assert_eq!(pairs(&asked, Some(item(Speaker::Agent, 3).body)), [vec![asked[0], asked[1], item(Speaker::Agent, 3)]]);
    }
}

//! The loop guard: a call that keeps giving the same result is not worth another.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{Body, Digest};
use crate::tool::{ToolCode, ToolResult};

/// Counts, for each tool and canonical arguments, how often in a row the result was the same.
#[derive(Debug, Clone, Default)]
pub(super) struct LoopGuard {
    seen: BTreeMap<(Arc<str>, Digest), Seen>,
}

#[derive(Debug, Clone, Default)]
struct Seen {
    /// Accepted, and without a result yet: taken to bring the same once more.
    pending: u32,
    /// Same results in a row.
    same: u32,
    last: Option<(ToolCode, Option<Body>)>,
}

impl LoopGuard {
    /// True if the call may run: with `repeats` 3 the third identical result is had, a fourth call is refused.
    pub(super) fn admit(&mut self, tool: &Arc<str>, canonical: Digest, repeats: u32) -> bool {
        let seen = self.seen.entry((tool.clone(), canonical)).or_default();
        if repeats > 0 && seen.same + seen.pending >= repeats {
            return false;
        }
        seen.pending += 1;
        true
    }

    /// Takes the result of an admitted call; `None` if it never ran.
    pub(super) fn finish(&mut self, tool: &Arc<str>, canonical: Digest, result: Option<ToolResult>) {
        let Some(seen) = self.seen.get_mut(&(tool.clone(), canonical)) else { return };
        seen.pending = seen.pending.saturating_sub(1);
        let Some(result) = result else { return };
        let result = Some((result.code, result.body));
        seen.same = if seen.last == result { seen.same + 1 } else { 1 };
        seen.last = result;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(n: u8) -> ToolResult {
        ToolResult { code: ToolCode::Ok, body: Some(Body { digest: Digest([n; 32]), bytes: 1, chars: 1 }), truncated: false }
    }

    /// `script`: a digit is the result that a call brings; prints `.` for a call that ran and `x` for a refused one.
    fn check(repeats: u32, script: &str, expected: &str) {
        let mut guard = LoopGuard::default();
        let tool: Arc<str> = "t".into();
        let got: String = script
            .bytes()
            .map(|byte| {
                if guard.admit(&tool, Digest([0; 32]), repeats) {
                    guard.finish(&tool, Digest([0; 32]), Some(result(byte)));
                    '.'
                } else {
                    'x'
                }
            })
            .collect();
        assert_eq!(got, expected, "{script}");
    }

    #[test]
    fn the_third_identical_result_is_had_and_the_fourth_call_is_refused() {
        check(3, "1111", "...x");
        check(3, "1121111", "......x");
        check(1, "11", ".x");
    }

    #[test]
    fn a_poller_may_see_the_same_for_ever() {
        check(0, "11111111", "........");
    }

    #[test]
    fn calls_in_flight_count_as_repeats_until_they_differ() {
        let mut guard = LoopGuard::default();
        let tool: Arc<str> = "t".into();
        let canonical = Digest([0; 32]);
        assert_eq!([(); 4].map(|()| guard.admit(&tool, canonical, 3)), [true, true, true, false]);
        guard.finish(&tool, canonical, None);
        assert!(guard.admit(&tool, canonical, 3), "one that never ran leaves its place");
    }
}

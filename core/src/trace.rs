//! A session's place in a distributed trace (W3C Trace Context).
//!
//! The ids of spans are computed from what a span is about, never drawn: whoever sends a request can name the span of it
//! without asking whoever exports spans, and a session that is taken up after a crash goes on in the same tree.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempt::AttemptKind;
use crate::id::{SessionId, Step};

/// Longest `tracestate` that is passed on, bytes: what the specification asks everybody to pass on at least.
pub const TRACE_STATE_BYTES_MAX: usize = 512;

/// Names a trace; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// Names a span of a trace; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

/// Says that a text is no id of a trace or span, or no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not of the form of W3C Trace Context")]
pub struct InvalidTrace;

/// One span as a header names it: `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// True if whoever made the span records it.
    pub sampled: bool,
}

/// Where a session hangs in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The trace.
    pub id: TraceId,
    /// The span above the session's own, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// What others are told about whether it is recorded.
    pub sampled: bool,
    /// True if its spans are exported here. If not, others hang theirs under `parent`, so that no link of the tree is
    /// missing.
    pub recorded: bool,
}

/// A session's place in a trace, with what other tracing systems pass along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// Where it hangs.
    pub trace: Trace,
    /// `tracestate` as it came, passed on unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<str>>,
}

impl TraceId {
    /// The id of all ones, in place of the zeros that dice may show and no id may have.
    pub const LAST: Self = Self([0xff; 16]);

    /// An id of these bytes; `None` for all zeros.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// The id of all ones, in place of the zeros that dice may show and no id may have.
    pub const LAST: Self = Self([0xff; 8]);

    /// An id of these bytes; `None` for all zeros.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 8] {
        self.0
    }

    /// The span of a whole session.
    #[must_use]
    pub fn of_session(session: SessionId) -> Self {
        Self::of(Mix::new(b"session").and(session.ulid().as_bytes()))
    }

    /// The span of a step: one logical call with all its attempts.
    #[must_use]
    pub fn of_step(session: SessionId, step: Step) -> Self {
        Self::of(Mix::new(b"step").and(session.ulid().as_bytes()).and(&step.0.to_be_bytes()))
    }

    /// The span of one request on the wire: number `number` of this kind to this target.
    #[must_use]
    pub fn of_attempt(session: SessionId, step: Step, target: &str, kind: AttemptKind, number: u32) -> Self {
        let step = Mix::new(b"attempt").and(session.ulid().as_bytes()).and(&step.0.to_be_bytes());
        Self::of(step.and(target.as_bytes()).and(kind.as_str().as_bytes()).and(&number.to_be_bytes()))
    }

    fn of(mix: Mix) -> Self {
        Self(mix.end().max(1).to_be_bytes())
    }
}

impl Trace {
    /// What a request carries whose own span is `own`.
    #[must_use]
    pub fn outgoing(&self, own: SpanId) -> TraceParent {
        let span = if self.recorded { own } else { self.parent.unwrap_or(own) };
        TraceParent { trace: self.id, span, sampled: self.sampled }
    }
}

/// `state` if it may be passed on: a list of `key=value` of bounded length.
#[must_use]
pub fn trace_state(state: &str) -> Option<Arc<str>> {
    let is_member = |member: &str| {
        let member = member.trim_matches([' ', '\t']);
        member.is_empty() || member.split_once('=').is_some_and(|(key, value)| !key.is_empty() && !value.is_empty())
    };
    let is_text = state.bytes().all(|byte| (b' '..=b'~').contains(&byte) || byte == b'\t');
    let state = state.trim_matches([' ', '\t']);
    (is_text && !state.is_empty() && state.len() <= TRACE_STATE_BYTES_MAX && state.split(',').all(is_member)).then(|| state.into())
}

/// A hash of 64 bits for names that nobody has an interest to forge: FNV-1a over parts, each closed by its length, then
/// mixed so that neighbours share no beginning (the finalizer of MurmurHash3).
#[derive(Clone, Copy)]
struct Mix(u64);

impl Mix {
    fn new(tag: &[u8]) -> Self {
        Self(0xcbf2_9ce4_8422_2325).and(tag)
    }

    fn and(self, part: &[u8]) -> Self {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = part.iter().fold(self.0, fold);
        Self((part.len() as u64).to_be_bytes().iter().fold(hash, fold))
    }

    const fn end(self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

/// Names a key without showing it, in 64 bits.
#[must_use]
pub fn key_hash(key: &str) -> u64 {
    Mix::new(b"key").and(key.as_bytes()).end()
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    // The longest id has 16 bytes; one write, since every request that leaves has two of them.
    let mut text = [0_u8; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    f.write_str(std::str::from_utf8(&text[..2 * bytes.len()]).unwrap_or_default())
}

/// Lower-case hexadecimal digits alone, as the specification wants them.
fn read_hex<const N: usize>(text: &str) -> Result<[u8; N], InvalidTrace> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidTrace),
    };
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return Err(InvalidTrace);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (nibble(pair[0])? << 4) | nibble(pair[1])?;
    }
    Ok(bytes)
}

impl FromStr for TraceParent {
    type Err = InvalidTrace;

    /// Reads version 00, and of later versions what they share with it.
    fn from_str(text: &str) -> Result<Self, InvalidTrace> {
        let mut parts = text.trim_matches([' ', '\t']).split('-');
        let mut part = || parts.next().ok_or(InvalidTrace);
        let [version] = read_hex(part()?)?;
        let (trace, span) = (part()?.parse()?, part()?.parse()?);
        let [flags] = read_hex(part()?)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return Err(InvalidTrace);
        }
        Ok(Self { trace, span, sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-0{}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Text forms of an id: hexadecimal digits.
macro_rules! hex_id {
    ($id:ident) => {
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $id {
            type Err = InvalidTrace;

            fn from_str(text: &str) -> Result<Self, InvalidTrace> {
                Self::from_bytes(read_hex(text)?).ok_or(InvalidTrace)
            }
        }

        impl Serialize for $id {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<'_, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id!(TraceId);
hex_id!(SpanId);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_as_the_specification_says() {
        let check = |text: &str, expected: Option<&str>| {
            let read = text.parse::<TraceParent>().ok().map(|parent| parent.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        };
        check(HEADER, Some(HEADER));
        check(&HEADER.replace("-01", "-00"), Some(&HEADER.replace("-01", "-00")));
        // Flags that this version does not know are dropped; a later version may say more behind them.
        check(&HEADER.replace("-01", "-ff"), Some(HEADER));
        check(&format!("cc{}-what-else", &HEADER[2..]), Some(HEADER));
        check(&format!(" {HEADER}\t"), Some(HEADER));
        for wrong in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_tracestate_is_passed_on_whole_or_not_at_all() {
        let longest = format!("k={}", "v".repeat(TRACE_STATE_BYTES_MAX - 2));
        for fine in ["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a=b, ,c=d", "t@s=1", &longest] {
            assert_eq!(trace_state(fine).as_deref(), Some(fine));
        }
        assert_eq!(trace_state("  a=b\t").as_deref(), Some("a=b"));
        for wrong in ["", "  ", "novalue", "=v", "k=", "k=v\r\nx: y", "k=é", &format!("{longest}v")] {
            assert_eq!(trace_state(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_of_different_things_have_different_ids() {
        let sessions = ["01K0Q8WZ5E7Y2M3N4P5Q6R7S8T", "01K0Q8WZ5E7Y2M3N4P5Q6R7S8V"];
        let mut ids = BTreeSet::new();
        let mut made = 0;
        for session in sessions.iter().map(|ulid| SessionId::from_ulid(ulid).unwrap()) {
            ids.insert(SpanId::of_session(session));
            made += 1;
            for step in (1..=300).map(Step) {
                ids.insert(SpanId::of_step(session, step));
                made += 1;
                for (target, kind) in [("a", AttemptKind::First), ("a", AttemptKind::Retry), ("b", AttemptKind::Fallback)] {
                    ids.extend((1..=3).map(|number| SpanId::of_attempt(session, step, target, kind, number)));
                    made += 3;
                }
            }
        }
        assert_eq!(ids.len(), made);
        let again = SpanId::of_step(SessionId::from_ulid(sessions[0]).unwrap(), Step(7));
        assert!(ids.contains(&again), "the same thing has the same id");
    }

    #[test]
    fn what_is_not_recorded_leaves_the_tree_of_others_whole() {
        let parent: TraceParent = HEADER.parse().unwrap();
        let own = SpanId([7; 8]);
        let trace = Trace { id: parent.trace, parent: Some(parent.span), sampled: true, recorded: true };
        assert_eq!(trace.outgoing(own).span, own);
        assert_eq!(Trace { recorded: false, ..trace }.outgoing(own), parent);
        assert_eq!(Trace { recorded: false, parent: None, ..trace }.outgoing(own).span, own);
    }

    #[test]
    fn a_context_survives_being_written() {
        let parent: TraceParent = HEADER.parse().unwrap();
        let trace = Trace { id: parent.trace, parent: Some(parent.span), sampled: true, recorded: false };
        for context in
            [TraceContext { trace, state: Some("a=b".into()) }, TraceContext { trace: Trace { parent: None, ..trace }, state: None }]
        {
            let written = serde_json::to_string(&context).unwrap();
            assert_eq!(serde_json::from_str::<TraceContext>(&written).unwrap(), context, "{written}");
        }
    }
}

//! Identifiers and references: who a session is, which step of it, and which body stands outside.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Characters of a ULID in its text form.
const ULID_CHARS: usize = 26;
/// Crockford's alphabet, the one ULIDs are written in (github.com/ulid/spec).
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Names one session: `ses_<ULID>`. Made outside (time and dice do not live here); sorts by creation time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId([u8; ULID_CHARS]);

/// Says why a text is no session id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no session id: expected `ses_` and 26 characters of a ULID")]
pub struct InvalidSessionId {
    /// The text as given, at most its first 64 characters.
    pub text: String,
}

impl SessionId {
    /// The id of no session.
    pub const NIL: Self = Self([b'0'; ULID_CHARS]);

    /// Takes the text form of a ULID, which is made outside; `None` if it is none.
    #[must_use]
    pub fn from_ulid(text: &str) -> Option<Self> {
        let mut id = [0; ULID_CHARS];
        if text.len() != ULID_CHARS {
            return None;
        }
        for (place, byte) in id.iter_mut().zip(text.bytes()) {
            *place = byte.to_ascii_uppercase();
        }
        // 26 characters carry 130 bits; the first may only use three of its five.
        (id.iter().all(|b| CROCKFORD.contains(b)) && id[0] <= b'7').then_some(Self(id))
    }

    /// The bare ULID, upper case, 26 characters.
    #[must_use]
    pub fn ulid(&self) -> &str {
        // The constructor admits ASCII only.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for SessionId {
    type Err = InvalidSessionId;

    /// Accepts `ses_<ULID>` and `resp_<ULID>` (any id of a session finds it), in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidSessionId { text: text.chars().take(64).collect() };
        let ulid = text.strip_prefix("ses_").or_else(|| text.strip_prefix("resp_")).ok_or_else(invalid)?;
        Self::from_ulid(ulid).ok_or_else(invalid)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ses_{}", self.ulid())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SessionId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Counts the steps of a session from 1; with the session's id it names one journalled unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u32);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A SHA-256 digest, computed outside; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0_u8; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(InvalidDigest);
        }
        let mut digest = [0; 32];
        for (place, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
            let nibble = |b: u8| char::from(b).to_digit(16).ok_or(InvalidDigest);
            *place = u8::try_from(nibble(pair[0])? * 16 + nibble(pair[1])?).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(digest))
    }
}

/// Says that a text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits")]
pub struct InvalidDigest;

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Refers to a text that is kept outside the journal (a prompt, an answer, arguments, a result).
///
/// The machine decides on sizes and equality alone, so that content can be encrypted, shortened or deleted without
/// touching the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Body {
    /// SHA-256 of the text: equal digests mean equal texts.
    pub digest: Digest,
    /// Length in bytes of UTF-8.
    pub bytes: u32,
    /// Length in characters (Unicode scalar values), what token estimates are made from.
    pub chars: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_read_under_each_of_its_names_and_written_under_one() {
        let text = "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T";
        for name in [text, "resp_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T", "ses_01k0q8wz5e7y2m3n4p5q6r7s8t"] {
            assert_eq!(name.parse::<SessionId>().unwrap().to_string(), text, "{name}");
        }
    }

    #[test]
    fn what_is_no_session_id_is_refused_with_the_text() {
        for text in [
            "",
            "ses_",
            "01K0Q8WZ5E7Y2M3N4P5Q6R7S8T",
            "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8",
            "ses_81K0Q8WZ5E7Y2M3N4P5Q6R7S8T",
            "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8U",
            "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7Sßx",
        ] {
            assert_eq!(text.parse::<SessionId>().unwrap_err().text, text);
        }
    }

    #[test]
    fn a_digest_survives_its_text_form() {
        let digest = Digest(std::array::from_fn(|i| u8::try_from(i * 8).unwrap()));
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert_eq!("zz".repeat(32).parse::<Digest>(), Err(InvalidDigest));
        assert_eq!("00".parse::<Digest>(), Err(InvalidDigest));
    }
}

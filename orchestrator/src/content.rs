//! Texts and their references: a text is hashed once, stored once, and known by its [`Body`] from then on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use ambit_core::{Body, Digest};
use sha2::{Digest as _, Sha256};

/// The reference to a text.
///
/// A text of 4 GiB and more, which no limit admits, would be given the largest size that a reference can say.
#[must_use]
pub fn body_of(text: &str) -> Body {
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Body { digest: digest_of(text), bytes: size(text.len()), chars: size(text.chars().count()) }
}

/// The SHA-256 digest of a text.
#[must_use]
pub fn digest_of(text: &str) -> Digest {
    Digest(Sha256::digest(text.as_bytes()).into())
}

/// The texts of one session that are in memory, by digest. Bounded by the session's transcript limit.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    known: HashMap<Digest, Arc<str>>,
    /// Those that the store has not been given yet.
    fresh: Vec<Digest>,
}

impl Texts {
    /// Takes what the store already has.
    #[must_use]
    pub fn stored(texts: impl IntoIterator<Item = (Digest, Arc<str>)>) -> Self {
        Self { known: texts.into_iter().collect(), fresh: Vec::new() }
    }

    /// Takes a text and gives its reference.
    pub fn add(&mut self, text: &str) -> Body {
        let body = body_of(text);
        if let Entry::Vacant(place) = self.known.entry(body.digest) {
            place.insert(text.into());
            self.fresh.push(body.digest);
        }
        body
    }

    /// The text behind a reference; empty if it is gone.
    #[must_use]
    pub fn get(&self, body: Body) -> Arc<str> {
        self.known.get(&body.digest).cloned().unwrap_or_else(|| "".into())
    }

    /// What the store has to be given, each once.
    pub fn take_fresh(&mut self) -> Vec<(Digest, Arc<str>)> {
        self.fresh.drain(..).filter_map(|digest| Some((digest, self.known.get(&digest)?.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_given_to_the_store_once() {
        let mut texts = Texts::default();
        let body = texts.add("grüße");
        assert_eq!((body.bytes, body.chars), (7, 5));
        assert_eq!(texts.add("grüße"), body);
        assert_eq!(texts.take_fresh().len(), 1);
        assert!(texts.take_fresh().is_empty());
        assert_eq!(&*texts.get(body), "grüße");
    }

    #[test]
    fn the_digest_is_sha256() {
        assert_eq!(digest_of("abc").to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

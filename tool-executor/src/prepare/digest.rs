//! SHA-256, in the form that the core knows.

use ambit_core::Digest;
use sha2::{Digest as _, Sha256};

/// The digest of some bytes.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

//! Which settings are in force, without secrets: what `show` prints and what the revision is a digest of.

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::shape::{Kind, Shape};

/// What stands for a secret.
pub(crate) const MASK: &str = "***";
/// Hexadecimal digits of a revision; among a thousand of them two are alike once in a billion.
const DIGITS: usize = 12;

/// The same settings with every secret masked.
pub(crate) fn masked(shape: &Shape, value: Json) -> Json {
    match (&shape.kind, value) {
        (Kind::Secret, _) => MASK.into(),
        (Kind::Table(entries), Json::Object(present)) => present
            .into_iter()
            .map(|(key, value)| {
                let value = match entries.iter().find(|(name, _)| *name == key) {
                    Some((_, of)) => masked(of, value),
                    None => value,
                };
                (key, value)
            })
            .collect(),
        (Kind::Map { of, .. }, Json::Object(present)) => present.into_iter().map(|(key, value)| (key, masked(of, value))).collect(),
        (_, value) => value,
    }
}

/// Names the settings in force, whatever order and file they came from: equal revisions mean equal settings, but for
/// the secrets, which may be rotated without another revision.
pub(crate) fn revision(profile: &str, masked: &Json) -> String {
    let mut text = format!("{profile}\n");
    canonical(masked, &mut text);
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().chars().take(DIGITS).collect()
}

/// JSON with sorted keys and no spaces.
fn canonical(value: &Json, out: &mut String) {
    match value {
        Json::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(&Json::from(key.as_str()), out);
                out.push(':');
                canonical(value, out);
            }
            out.push('}');
        }
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => out.push_str(&value.to_string()),
    }
}

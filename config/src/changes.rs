//! What differs between two configurations, and which of it only a restart can change.
//!
//! **Invariant:** a secret shows that it differs, and nothing else about it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::revision::{MASK, revision};
use crate::settings::Server;
use crate::shape::{Inside, Kind, SETTINGS, Shape};

/// Most characters of a value that are shown; instructions can be pages long.
pub const VALUE_CHARS_MAX: usize = 200;

/// Keys, or tables of them, that a running process took in when it started: listeners, the places for sessions, the
/// store, the engine, the log.
const RESTART: &[&str] =
    &["server.listen", "server.admin_listen", "server.max_in_flight", "server.connections", "server.head", "store", "engine", "telemetry"];

/// One key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key.
    pub key: String,
    /// What it was, as JSON; `None` if it was not there.
    pub before: Option<String>,
    /// What it is; `None` if it is not there any more.
    pub after: Option<String>,
    /// Where the new value comes from.
    pub source: Option<String>,
}

/// Digests of the secrets by key. Prints the keys only.
#[derive(Clone, Default)]
pub(crate) struct SecretDigests(BTreeMap<String, [u8; 32]>);

impl SecretDigests {
    /// Of settings in which every reference was followed.
    pub(crate) fn of(resolved: &Json) -> Self {
        let mut digests = BTreeMap::new();
        leaves(&SETTINGS, resolved, &mut Vec::new(), &mut |key, shape, value| {
            if let (Kind::Secret, Json::String(secret)) = (&shape.kind, value) {
                digests.insert(key, Sha256::digest(secret.as_bytes()).into());
            }
        });
        Self(digests)
    }
}

impl fmt::Debug for SecretDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Config {
    /// Every key whose value differs from `before`, in order. Secrets are compared and not shown; of scripts and schemas in
    /// files of their own the content is compared, too.
    #[must_use]
    pub fn changes_from(&self, before: &Self) -> Vec<Change> {
        let (was, is) = (before.values(), self.values());
        let mut keys: Vec<&String> = was.keys().chain(is.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let differs = |key: &str| was.get(key) != is.get(key) || before.secrets.0.get(key) != self.secrets.0.get(key);
        let mut changes: Vec<Change> = keys
            .into_iter()
            .filter(|key| differs(key))
            .map(|key| Change {
                key: key.clone(),
                before: was.get(key).cloned(),
                after: is.get(key).cloned(),
                source: self.place(key).map(|place| place.to_string()),
            })
            .collect();
        for (key, path) in self.other_content(before) {
            if !changes.iter().any(|change| change.key == key) {
                let source = self.place(&key).map(|place| place.to_string());
                changes.push(Change { key, before: Some(path.clone()), after: Some(format!("{path} with other content")), source });
            }
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        changes
    }

    /// Every key in force, with where its value comes from.
    #[must_use]
    pub fn places(&self) -> BTreeMap<String, String> {
        self.values()
            .into_keys()
            .map(|key| {
                let place = self.place(&key).map_or_else(|| "built-in default".to_owned(), |place| place.to_string());
                (key, place)
            })
            .collect()
    }

    /// The same configuration in a process that has started with another one: what only a restart changes is as it was. The
    /// revision names the settings that are then in force.
    #[must_use]
    pub fn in_process_of(mut self, started: &Self) -> Self {
        let (own, kept) = (&mut self.settings, &started.settings);
        // Written out, so that whoever adds a key decides.
        let Server { listen: _, admin_listen: _, max_in_flight: _, connections: _, head: _, request, demo_service } = own.server.clone();
        own.server = Server { request, demo_service, ..kept.server.clone() };
        own.store.clone_from(&kept.store);
        own.engine.clone_from(&kept.engine);
        own.telemetry.clone_from(&kept.telemetry);
        for key in RESTART {
            let path: Vec<&str> = key.split('.').collect();
            put(&mut self.effective, &path, path.iter().try_fold(&started.effective, |value, key| value.get(key)));
        }
        self.secrets.0.retain(|key, _| !needs_restart(key));
        self.secrets.0.extend(started.secrets.0.iter().filter(|(key, _)| needs_restart(key)).map(|(key, digest)| (key.clone(), *digest)));
        self.revision = revision(self.profile(), &self.effective);
        self
    }

    /// Each value as text, by key.
    fn values(&self) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        leaves(&SETTINGS, &self.effective, &mut Vec::new(), &mut |key, shape, value| {
            let text = if matches!(shape.kind, Kind::Secret) { MASK.to_owned() } else { cut(value.to_string()) };
            values.insert(key, text);
        });
        values
    }

    /// Keys that name a file whose content differs, with its path.
    fn other_content(&self, before: &Self) -> Vec<(String, String)> {
        let scripts = self.files.scripts.iter().filter(|(name, (_, text))| {
            let was = before.files.scripts.get(*name);
            was.is_some_and(|(_, was)| was != text)
        });
        let scripts = scripts.map(|(name, (path, _))| (format!("models.{name}.script"), path.clone()));
        let schemas = self.settings.tools.iter().filter_map(|(name, tool)| Some((name, tool.schema_file.as_ref()?)));
        let schemas = schemas.filter(|(name, _)| {
            let was = before.files.schemas.get(*name);
            was.is_some_and(|was| Some(was) != self.files.schemas.get(*name))
        });
        scripts.chain(schemas.map(|(name, path)| (format!("tools.{name}.schema_file"), path.clone()))).collect()
    }
}

/// True for a key that a running process took in when it started.
#[must_use]
pub fn needs_restart(key: &str) -> bool {
    RESTART.iter().any(|one| key.strip_prefix(one).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Shows every value that is there with its key and its shape.
fn leaves(shape: &Shape, value: &Json, path: &mut Vec<String>, found: &mut impl FnMut(String, &Shape, &Json)) {
    let below = |key: &str| match shape.inside() {
        Inside::Table(known) => known.iter().find(|(name, _)| name == key).map(|(_, of)| of),
        Inside::Map(of) => Some(of),
        Inside::Value => None,
    };
    match (shape.inside(), value) {
        (Inside::Table(_) | Inside::Map(_), Json::Object(entries)) => {
            for (key, value) in entries {
                let Some(of) = below(key) else { continue };
                path.push(key.clone());
                leaves(of, value, path, found);
                path.pop();
            }
        }
        (Inside::Table(_) | Inside::Map(_) | Inside::Value, _) => found(path.join("."), shape, value),
    }
}

/// Puts a value at a path, or takes away what is there.
fn put(into: &mut Json, path: &[&str], value: Option<&Json>) {
    let Some((last, tables)) = path.split_last() else { return };
    let table = tables.iter().try_fold(into, |value, key| value.get_mut(key));
    if let Some(table) = table.and_then(Json::as_object_mut) {
        match value {
            Some(value) => drop(table.insert((*last).to_owned(), value.clone())),
            None => drop(table.remove(*last)),
        }
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_restart_exists() {
        for key in RESTART {
            let path: Vec<&str> = key.split('.').collect();
            assert!(SETTINGS.at(&path).is_some(), "{key}");
        }
        assert!(needs_restart("store.url") && needs_restart("server.listen"));
        assert!(!needs_restart("server.listener") && !needs_restart("server.request") && !needs_restart("stores.url"));
    }

    #[test]
    fn a_long_value_is_cut_at_its_bound() {
        assert_eq!(cut("ä".repeat(VALUE_CHARS_MAX)).chars().count(), VALUE_CHARS_MAX);
        assert_eq!(cut("ä".repeat(VALUE_CHARS_MAX + 1)).chars().count(), VALUE_CHARS_MAX + 2);
    }
}

//! From the name that a model wrote to one of the tools on offer: lossless repairs only.
//!
//! Models prefix names with a namespace of their own, glue markers of their chat format on, or drop the prefix of an
//! MCP server. Each of these leaves no doubt what was meant. A spelling mistake does, and goes back with the nearest
//! names.

use std::sync::Arc;

use crate::registry::Entry;

/// Most names that a refusal suggests.
const NEAREST_MAX: usize = 3;
/// Names less like than this (Jaro-Winkler, 0 to 1) are no suggestion.
const LIKENESS_MIN: f64 = 0.7;

/// The one tool that the name means.
pub(crate) fn find<'a>(name: &str, tools: &'a [Arc<Entry>]) -> Option<&'a Entry> {
    let exact = |name: &str| tools.iter().find(|entry| &*entry.declaration.name == name).map(|entry| &**entry);
    if let Some(entry) = exact(name) {
        return Some(entry);
    }
    let bare = bare(name);
    if let Some(entry) = exact(bare) {
        return Some(entry);
    }
    let mut aliased = tools.iter().filter(|entry| entry.alias.as_deref() == Some(bare));
    match (aliased.next(), aliased.next()) {
        (Some(entry), None) => Some(entry),
        (None | Some(_), _) => None,
    }
}

/// Without space, markers of a chat format and the namespace that some models put in front.
fn bare(name: &str) -> &str {
    let name = name.split("<|").next().unwrap_or_default().trim();
    name.strip_prefix("functions.").unwrap_or(name)
}

/// The names most like this one, the likest first.
pub(crate) fn nearest(name: &str, tools: &[Arc<Entry>]) -> Vec<String> {
    let name = bare(name);
    let mut scored: Vec<(f64, &str)> = tools
        .iter()
        .map(|entry| {
            let own = strsim::jaro_winkler(name, &entry.declaration.name);
            let alias = entry.alias.as_deref().map_or(0.0, |alias| strsim::jaro_winkler(name, alias));
            (own.max(alias), &*entry.declaration.name)
        })
        .filter(|(score, _)| *score >= LIKENESS_MIN)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(NEAREST_MAX).map(|(_, name)| name.to_owned()).collect()
}

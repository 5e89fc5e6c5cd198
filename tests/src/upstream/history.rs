//! Whether a request to a model carries a sound history.

use serde_json::Value;

use super::shape::{Said, Shape};

/// Checks that every tool call of the history has exactly one result, directly after its turn and in the order asked, that
/// no result is an orphan, that no id is used twice, and what the form of the request asks for besides.
///
/// # Errors
/// With the first fault, in words.
pub fn check_history(shape: Shape, request: &Value) -> Result<(), String> {
    let mut awaited: Vec<String> = Vec::new();
    let mut used: Vec<String> = Vec::new();
    for (at, said) in shape.history(request)?.into_iter().enumerate() {
        let calls = match said {
            Said::Result(id, content) => {
                if awaited.is_empty() {
                    return Err(format!("entry {at} answers `{id}`, but no call awaits a result"));
                }
                let expected = awaited.remove(0);
                if id != expected {
                    return Err(format!("entry {at} answers `{id}`, but it is the turn of `{expected}`"));
                }
                if content.is_none() {
                    return Err(format!("entry {at}, the result of `{id}`, has no content"));
                }
                continue;
            }
            Said::Words => Vec::new(),
            Said::Turn(calls) => calls,
        };
        if let Some(missing) = awaited.first() {
            return Err(format!("entry {at} comes before the result of `{missing}`"));
        }
        for id in calls {
            if id.is_empty() {
                return Err(format!("entry {at} has a call without an id"));
            }
            if used.contains(&id) {
                return Err(format!("entry {at} uses the call id `{id}` again"));
            }
            used.push(id.clone());
            awaited.push(id);
        }
    }
    match awaited.first() {
        Some(missing) => Err(format!("the history ends without the result of `{missing}`")),
        None => Ok(()),
    }
}

//! Whether a chat request carries a sound history.

use serde_json::Value;

/// Checks that every tool call of the history has exactly one result, directly after its turn and in the order asked, that
/// no result is an orphan, and that no id is used twice.
///
/// # Errors
/// With the first fault, in words.
pub fn check_history(request: &Value) -> Result<(), String> {
    let Some(messages) = request["messages"].as_array() else { return Err("`messages` is no list".to_owned()) };
    let mut awaited: Vec<&str> = Vec::new();
    let mut used: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or("(none)");
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or("(none)");
            if awaited.is_empty() {
                return Err(format!("message {at} answers `{id}`, but no call awaits a result"));
            }
            let expected = awaited.remove(0);
            if id != expected {
                return Err(format!("message {at} answers `{id}`, but it is the turn of `{expected}`"));
            }
            if !message["content"].is_string() && !message["content"].is_array() {
                return Err(format!("message {at}, the result of `{id}`, has no content"));
            }
            continue;
        }
        if let Some(missing) = awaited.first() {
            return Err(format!("message {at} ({role}) comes before the result of `{missing}`"));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() || role != "assistant" {
                return Err(format!("message {at} ({role}) has a call without an id or of the wrong role"));
            }
            if used.contains(&id) {
                return Err(format!("message {at} uses the call id `{id}` again"));
            }
            used.push(id);
            awaited.push(id);
        }
    }
    match awaited.first() {
        Some(missing) => Err(format!("the history ends without the result of `{missing}`")),
        None => Ok(()),
    }
}

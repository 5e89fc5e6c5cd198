//! `[tools.NAME]` and `[mcp.NAME]`.

use serde_json::Value as Json;

use super::{Report, http_url};
use crate::demo::SAMPLE;
use crate::settings::{Effect, Mcp, Tool, ToolKind};

/// Names of the builtins.
const BUILTINS: &[&str] = &["list_files", "read_file"];

/// Checks every tool and every MCP server.
pub(super) fn check(report: &mut Report<'_>) {
    let settings = report.config.settings();
    for (name, tool) in &settings.tools {
        let key = format!("tools.{name}");
        match tool.kind {
            ToolKind::Http => http(report, &key, name, tool),
            ToolKind::Builtin => builtin(report, &key, name, tool),
        }
        if tool.retry.min_delay.0 > tool.retry.max_delay.0 {
            let (min, max) = (tool.retry.min_delay, tool.retry.max_delay);
            report.say(
                &format!("{key}.retry.min_delay"),
                format!("{min} is longer than `max_delay` {max}"),
                "the shortest wait comes first",
            );
        }
        if settings.mcp.contains_key(name) {
            report.say(
                &format!("mcp.{name}"),
                format!("`tools.{name}` has the same name, and agents name both alike"),
                "rename one of them",
            );
        }
    }
    for (name, server) in &settings.mcp {
        mcp(report, &format!("mcp.{name}"), server);
    }
}

/// Says that keys of another kind of tool are there.
fn foreign(report: &mut Report<'_>, key: &str, present: &[(&str, bool)], kind: &str) {
    for (part, _) in present.iter().filter(|(_, is_there)| *is_there) {
        report.say(&format!("{key}.{part}"), format!("has no meaning for a tool of kind `{kind}`"), "leave it away");
    }
}

fn http(report: &mut Report<'_>, key: &str, name: &str, tool: &Tool) {
    foreign(report, key, &[("builtin", tool.builtin.is_some()), ("root", tool.root.is_some())], "http");
    if tool.description.as_deref().is_none_or(|text| text.trim().is_empty()) {
        report.say(&format!("{key}.description"), "is missing", "tell the model what the tool does and when to use it");
    }
    if tool.schema.is_some() && tool.schema_file.is_some() {
        report.say(&format!("{key}.schema_file"), "`schema` is there, too", "keep one of the two");
    }
    let Some(url) = &tool.url else {
        report.say(&format!("{key}.url"), "is missing", "a tool of kind `http` needs one");
        return;
    };
    match http_url(url) {
        Err(reason) => report.say_value(&format!("{key}.url"), url, reason, "write `https://host/path/{placeholder}`"),
        Ok((_, rest)) if crate::config::host(rest).contains(['{', '}']) => {
            report.say_value(
                &format!("{key}.url"),
                url,
                "has a placeholder in its host",
                "a host is the operator's choice alone; placeholders stand in paths and query values",
            );
        }
        Ok(_) => match placeholders(url) {
            None => report.say_value(&format!("{key}.url"), url, "has a brace without its other half", "write `{name}`"),
            Some(names) => {
                // A schema that could not be read was a problem of its own.
                if let Some(schema) = report.config.files.schemas.get(name) {
                    names.iter().for_each(|placeholder| typed(report, key, schema, placeholder));
                }
            }
        },
    }
    if let Some(idempotency) = &tool.idempotency {
        if tool.leaves() == Effect::Read {
            report.say(&format!("{key}.idempotency"), "is for calls that change something, and `effect` is `read`", "leave it away");
        }
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if idempotency.header.is_empty() || !idempotency.header.bytes().all(is_token) {
            report.say_value(
                &format!("{key}.idempotency.header"),
                &idempotency.header,
                "is no name of a header",
                "write `Idempotency-Key`",
            );
        }
    }
}

/// A placeholder must be typed, so that nothing but an identifier can get there.
fn typed(report: &mut Report<'_>, key: &str, schema: &Json, name: &str) {
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    let is_typed = property.is_some_and(|p| {
        ["format", "pattern", "enum", "const"].iter().any(|word| p.get(word).is_some())
            || p.get("type").and_then(Json::as_str).is_some_and(|t| t == "integer" || t == "number" || t == "boolean")
    });
    let required = schema.get("required").and_then(Json::as_array).is_some_and(|names| names.iter().any(|n| n == name));
    let field = format!("{key}.schema.properties.{name}");
    if property.is_none() {
        report.say(
            &field,
            format!("is missing, and `url` has the placeholder `{{{name}}}`"),
            "describe it, with a `format` or a `pattern`",
        );
    } else if !is_typed {
        report.say(&field, "is a placeholder of `url` and may hold any text", "give it a `format`, a `pattern` or an `enum`");
    } else if !required {
        report.say(&format!("{key}.schema.required"), format!("lacks `{name}`, which is a placeholder of `url`"), "add it");
    }
}

/// The names of a template's placeholders; `None` if its braces do not pair.
fn placeholders(url: &str) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut rest = url;
    while let Some(open) = rest.find(['{', '}']) {
        let after = rest.get(open..)?.strip_prefix('{')?;
        let (name, tail) = after.split_once('}')?;
        if name.is_empty() || name.contains('{') {
            return None;
        }
        names.push(name);
        rest = tail;
    }
    Some(names)
}

fn builtin(report: &mut Report<'_>, key: &str, name: &str, tool: &Tool) {
    let present = [
        ("method", tool.method.is_some()),
        ("url", tool.url.is_some()),
        ("schema", tool.schema.is_some()),
        ("schema_file", tool.schema_file.is_some()),
        ("idempotency", tool.idempotency.is_some()),
        ("headers", !tool.headers.is_empty()),
    ];
    foreign(report, key, &present, "builtin");
    let function = tool.builtin.as_deref().unwrap_or(name);
    if !BUILTINS.contains(&function) {
        let field = if tool.builtin.is_some() { format!("{key}.builtin") } else { key.to_owned() };
        report.say(
            &field,
            format!("there is no builtin `{function}`"),
            format!("set `builtin` to one of {}", crate::shape::listed(BUILTINS.iter().copied())),
        );
    }
    if tool.leaves() != Effect::Read {
        report.say(&format!("{key}.effect"), "the builtins only read", "leave it away");
    }
    match tool.root.as_deref() {
        None | Some("") => report.say(&format!("{key}.root"), "is missing", "name the folder that the tool may read, or `sample:`"),
        Some(root) => {
            if let Some(below) = root.strip_prefix(SAMPLE)
                && (below.starts_with('/') || below.split('/').any(|part| part == ".."))
            {
                report.say_value(&format!("{key}.root"), root, "leaves the sample", "write `sample:` or `sample:deploy`");
            }
        }
    }
}

fn mcp(report: &mut Report<'_>, key: &str, server: &Mcp) {
    match (&server.command, &server.url) {
        (None, None) => {
            report.say(&format!("{key}.command"), "is missing, and `url` too", "a server is a command (stdio) or a URL (streamable HTTP)")
        }
        (Some(_), Some(_)) => {
            report.say(&format!("{key}.url"), "`command` is there, too", "a server is a command (stdio) or a URL (streamable HTTP)")
        }
        (Some(command), None) => {
            if command.trim().is_empty() {
                report.say(&format!("{key}.command"), "is empty", "name a program");
            }
            if !server.headers.is_empty() {
                report.say(&format!("{key}.headers"), "has no meaning for a command", "leave it away");
            }
        }
        (None, Some(url)) => {
            if let Err(reason) = http_url(url) {
                report.say_value(&format!("{key}.url"), url, reason, "write `https://host/mcp`");
            }
            for (part, is_there) in [("args", !server.args.is_empty()), ("env", !server.env.is_empty())] {
                if is_there {
                    report.say(&format!("{key}.{part}"), "has no meaning for a URL", "leave it away");
                }
            }
        }
    }
    if server.allow.is_empty() {
        report.say(&format!("{key}.allow"), "allows no tool", "name the tools that agents may use, or `[\"*\"]` for all");
    }
    let all = server.allow.iter().any(|tool| tool == "*");
    for tool in server.tools.keys() {
        if !all && !server.allow.contains(tool) {
            report.say(&format!("{key}.tools.{tool}"), format!("`{tool}` is not in `allow`"), "allow it, or leave its policy away");
        }
    }
    for (tool, policy) in &server.tools {
        if policy.attempts > 1 && policy.effect != Some(Effect::Read) {
            report.say(
                &format!("{key}.tools.{tool}.attempts"),
                "more than one attempt is for reads only",
                "set `effect = \"read\"` if it is one",
            );
        }
    }
    for tool in &server.allow {
        if tool != "*" && !tool.bytes().all(|b| b.is_ascii_graphic()) || tool.is_empty() {
            report.say_value(&format!("{key}.allow"), tool, "is no name of a tool", "take the names that the server lists");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_in_pairs_only() {
        assert_eq!(placeholders("http://h/{a}/x?q={b}"), Some(vec!["a", "b"]));
        assert_eq!(placeholders("http://h/"), Some(vec![]));
        for broken in ["http://h/{a", "http://h/a}", "http://h/{}", "http://h/{a{b}}"] {
            assert_eq!(placeholders(broken), None, "{broken}");
        }
    }
}

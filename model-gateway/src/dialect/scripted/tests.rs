//! Tests of the scripted dialect: files of rules in, turns out.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::chat::{Conversation, RawCall, ToolDeclaration, Tools};

/// The demo as it is shipped.
const DEMO: &str = include_str!("../../../../config/profiles/demo_script.toml");
const RULES: &str = r#"
[[rule]]
contains = "HELLO"
reply = "hello yourself"

[[rule]]
match = 'add (?<a>\d+) and (\d+)'
calls = [{ tool = "add", arguments = { a = "{a}", b = "{2}", deep = [{ note = "{{{asked}}}" }, 1, true] } }]

[[rule]]
after = "add"
match = 'sum (\d+)'
asked = 'add (\d+)'
reply = "{1}, since you asked about {asked}"

[[rule]]
after = "*"
tools = "off"
reply = "so far: {results}"

[default]
reply = "what is `{last}`?"
"#;

fn tools(names: &[&str]) -> Tools {
    let declare = |name: &&str| ToolDeclaration { name: (*name).into(), description: "".into(), schema: Arc::new(json!({})) };
    Tools::new(names.iter().map(declare).collect())
}

fn said(script: &Script, conversation: &Conversation, tools: &Tools, tool_choice: ToolChoice) -> Said {
    let target = "t".into();
    script.say(&Ask { target: &target, model: "m", conversation, tools, tool_choice, notice: None, max_output: 1_000 })
}

fn call(conversation: &mut Conversation, tool: &str, result: &str) {
    let id = conversation.messages().len().to_string();
    conversation.push_assistant(None, vec![RawCall::new(id.as_str(), tool, "{}")], None);
    conversation.push_tool_result(id, tool, result);
}

#[test]
fn the_first_rule_that_fits_answers_and_the_default_does_otherwise() {
    let script = Script::parse("s", RULES).unwrap();
    let tools = tools(&["add"]);
    let check = |asked: &str, result: Option<&str>, choice, expected: Result<&str, Value>| {
        let mut c = Conversation::new("");
        c.push_user(asked);
        if let Some(result) = result {
            call(&mut c, "add", result);
        }
        let Said { text, calls } = said(&script, &c, &tools, choice);
        match expected {
            Ok(expected) => assert_eq!((text.as_str(), calls.len()), (expected, 0), "{asked}"),
            Err(arguments) => {
                assert_eq!((text.as_str(), calls.len(), &*calls[0].name), ("", 1, "add"), "{asked}");
                assert_eq!(serde_json::from_str::<Value>(&calls[0].arguments).unwrap(), arguments, "{asked}");
            }
        }
    };
    use ToolChoice::{Auto, None as Off};
    check("oh, hello there", None, Auto, Ok("hello yourself"));
    check("add 2 and 3", None, Auto, Err(json!({"a": "2", "b": "3", "deep": [{"note": "{add 2 and 3}"}, 1, true]})));
    check("add 2 and 3", None, Off, Ok("what is `add 2 and 3`?"));
    check("add 2 and 3", Some("sum 5"), Auto, Ok("5, since you asked about add 2 and 3"));
    check("add 2 and 3", Some("no idea"), Off, Ok("so far: - add: no idea"));
    check("else", None, Auto, Ok("what is `else`?"));
    let mut c = Conversation::new("");
    c.push_user("add 2 and 3");
    assert_eq!(
        said(&script, &c, &self::tools(&["other"]), Auto).text,
        "what is `add 2 and 3`?",
        "a tool that is not offered is not called"
    );
}

#[test]
fn an_error_names_the_line_and_what_would_be_right() {
    let check = |text: &str, line: usize, reason: &str, allowed: &str| {
        let error = Script::parse("demo.toml", text).unwrap_err();
        assert!(
            error.line == line && error.reason.contains(reason) && error.allowed.contains(allowed),
            "{text:?}: {error} (line {line}, {reason:?}, {allowed:?} expected)"
        );
        assert!(error.to_string().starts_with(&format!("demo.toml:{line}: ")), "{error}");
    };
    check("[default]\nreply = \"x\"\nrely = 1", 3, "unknown field `rely`", "`reply`");
    check("[[rule]]\nreply = \"x\"\n", 1, "missing field `default`", "`[default]`");
    check("x = [", 1, "invalid array", "expected `]`");
    let rule = |rule: &str| format!("[default]\nreply = \"x\"\n\n[[rule]]\n{rule}\n");
    check(&rule("match = '('\nreply = 'x'"), 5, "no regular expression", "regex");
    check(&rule("reply = 'x {nope} y'"), 5, "nothing fills in `{nope}`", "`{asked}`");
    check(&rule("match = '(a)'\nreply = '{1}{2}'"), 6, "nothing fills in `{2}`", "groups");
    check(&rule("reply = 'x {nope'"), 5, "not closed", "`{name}`");
    check(&rule("reply = 'x } y'"), 5, "closes nothing", "doubled");
    check(&rule("name = 'empty'"), 4, "says and calls nothing", "`reply`, `calls`");
    check(&rule("match = 'a'\ncontains = 'b'\nreply = 'x'"), 6, "both `match` and `contains`", "one of them");
    check(&rule("tools = 'maybe'\nreply = 'x'"), 5, "unknown variant `maybe`", "`on` or `off`");
    check(&rule("tools = 'off'\ncalls = [{ tool = 'a' }]"), 6, "tools switched off", "`reply`");
    check(&rule("calls = [{ tool = 'a', arguments = { b = '{c}' } }]"), 5, "`{c}`", "`{results}`");
    check(&rule("reply = 'x'\npick.p = { from = 'a', find = 'b', most = 101 }"), 6, "`most = 101`", "1 to 100");
    check("[pace]\nfirst = \"11s\"\n[default]\nreply = ''", 2, "no wait", "\"10s\"");
    check("[pace]\nfirst = \"5\"\n[default]\nreply = ''", 2, "no wait", "`ms` or `s`");
    check("[pace]\nchars = 0\n[default]\nreply = ''", 2, "chars = 0", "1 to 10000");
    assert!(Script::parse("s", "[pace]\nfirst = \"10s\"\nchars = 10000\n[default]\nreply = ''").is_ok());
}

#[test]
fn rules_and_files_are_bounded() {
    let rules = |n: usize| format!("{}[default]\nreply = 'x'\n", "[[rule]]\nreply = 'x'\n".repeat(n));
    assert!(Script::parse("s", &rules(256)).is_ok());
    assert!(Script::parse("s", &rules(257)).unwrap_err().reason.contains("257"));
    let file = |bytes: usize| {
        let text = "[default]\nreply = 'x'\n";
        text.to_owned() + &" ".repeat(bytes - text.len())
    };
    assert!(Script::parse("s", &file(1 << 20)).is_ok());
    assert!(Script::parse("s", &file((1 << 20) + 1)).is_err());
}

#[test]
fn pieces_are_cut_at_characters_and_make_up_the_whole() {
    assert_eq!(pieces("añb🙂c", 2).collect::<Vec<_>>(), ["añ", "b🙂", "c"]);
    assert_eq!(pieces("", 2).count(), 0);
}

const LISTING: &str = r#"{"entries":[{"path":"deploy/changes","kind":"folder","modified":"2026-01-01T00:00:00Z"},{"path":"deploy/changes/last-week.md","bytes":9,"modified":"2026-01-01T00:00:00Z"},{"path":"deploy/changes/week-before.md","bytes":9,"modified":"2026-01-01T00:00:00Z"}]}"#;
const CHANGES: &str = "# Last week\n\n## Monday\n- `search` 1.22.4 -> 1.22.5\n\n## Friday\n- Nothing.\n";
const HEALTH: &str = r#"{"service":"web","status":"healthy","version":"3.14.2"}"#;

/// Plays the demo over tools that answer as given: the names of the tools called, and the last words.
fn demo(asked: &str, results: &[(&str, &str)], choice: ToolChoice) -> (String, String) {
    let script = Script::parse("demo_script.toml", DEMO).unwrap();
    let tools = tools(&["list_files", "read_file", "service_health", "restart_service"]);
    let mut c = Conversation::new("");
    c.push_user(asked);
    let mut called = Vec::new();
    for turn in 0..8 {
        let Said { text, mut calls } = said(&script, &c, &tools, choice);
        if calls.is_empty() {
            return (called.join(" "), text);
        }
        c.settle_ids(&mut calls);
        c.push_assistant(None, calls.clone(), None);
        for call in calls {
            called.push(format!("{turn}:{}{}", call.name, call.arguments));
            let result = results.iter().find(|(tool, _)| **tool == *call.name).unwrap_or_else(|| panic!("{}", call.name)).1;
            c.push_tool_result(call.id, call.name, result);
        }
    }
    panic!("it does not come to an end: {called:?}");
}

#[test]
fn the_demo_answers_what_a_newcomer_asks_it() {
    let all =
        [("list_files", LISTING), ("read_file", CHANGES), ("service_health", HEALTH), ("restart_service", "{\"status\":\"restarting\"}")];
    let check = |asked: &str, calls: &str, words: &[&str]| {
        let (called, text) = demo(asked, &all, ToolChoice::Auto);
        assert_eq!(called, calls, "{asked}");
        for word in words {
            assert!(text.contains(word), "{asked}: {text:?} lacks {word:?}");
        }
    };
    check(
        "What changed in the deploy folder last week, and is the service healthy?",
        "0:list_files{\"path\":\"deploy\"} 0:service_health{\"service\":\"web\"} 1:read_file{\"path\":\"deploy/changes/last-week.md\"}",
        &["`deploy/changes/last-week.md`", "`search` 1.22.4 -> 1.22.5", "- Nothing.", "`web` is healthy (version 3.14.2)"],
    );
    check(
        "what was deployed?",
        "0:list_files{\"path\":\"deploy\"} 1:read_file{\"path\":\"deploy/changes/last-week.md\"}",
        &["`search` 1.22.4"],
    );
    check("restart the service", "0:restart_service{\"reason\":\"asked by the operator\",\"service\":\"web\"}", &["`web` was restarted"]);
    check("Please restart payments", "0:restart_service{\"reason\":\"asked by the operator\",\"service\":\"payments\"}", &["`payments`"]);
    check("is search healthy?", "0:service_health{\"service\":\"search\"}", &["`search` is healthy"]);
    check("was it restarted?", "", &["scripted demo model"]);
}

#[test]
fn the_demo_says_honestly_what_it_could_not_do() {
    let failed = r#"{"status":"error","code":"UPSTREAM_UNAVAILABLE","detail":"what the tool depends on is known to be down"}"#;
    let asked = "What changed in the deploy folder last week, and is the service healthy?";
    let (_, text) = demo(asked, &[("list_files", LISTING), ("read_file", CHANGES), ("service_health", failed)], ToolChoice::Auto);
    assert!(text.contains("`search` 1.22.4") && text.contains("its health could not be read"), "{text}");
    let (called, text) = demo(asked, &[("list_files", failed), ("service_health", HEALTH)], ToolChoice::Auto);
    assert!(!called.contains("read_file") && text.contains("healthy"), "{called} {text}");
    let (_, text) = demo("restart the service", &[("restart_service", failed)], ToolChoice::Auto);
    assert!(text.contains("did not go through") && text.contains("UPSTREAM_UNAVAILABLE"), "{text}");
    let (called, text) = demo(asked, &[], ToolChoice::None);
    assert!(called.is_empty() && text.contains("cannot use my tools"), "{text}");
}

//! HTTP tools against a server that misbehaves: every way to go wrong ends in one result with the right code.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::kit::*;
use ambit_core::signal::Signal;
use ambit_core::{Effect, Gate, ToolCode};
use ambit_tool_executor::*;

fn keyed(mut tool: ToolOptions) -> ToolOptions {
    if let ToolKind::Http(http) = &mut tool.kind {
        http.key_header = Some("Idempotency-Key".into());
    }
    tool
}

fn quick(mut tool: ToolOptions) -> ToolOptions {
    tool.policy.attempt = Duration::from_millis(800);
    tool.policy.timeout = Duration::from_millis(2_500);
    tool.policy.min_useful = Duration::from_millis(50);
    tool
}

/// One call of a tool against these acts: its code, the codes of its attempts, how often it asked to leave.
async fn check(acts: Vec<Act>, tool: impl Fn(&str) -> ToolOptions) -> (ToolCode, Vec<String>, u32) {
    let upstream = Upstream::start(acts).await;
    let (executor, seen) = executor(tool(&upstream.url("/x/{id}")));
    let door = Door::new(true);
    let outcome = run(&executor, "t", r#"{"id":"a","n":1}"#, &door).await;
    assert!(executor.is_quiescent());
    let finished = seen.0.lock().unwrap().iter().filter(|signal| matches!(signal, Signal::ToolCallFinished { .. })).count();
    assert_eq!(finished, 1);
    if outcome.code != ToolCode::Ok {
        let text: serde_json::Value = serde_json::from_str(&outcome.text).unwrap();
        assert_eq!((&text["status"], &text["code"]), (&"error".into(), &outcome.code.as_str().into()), "{}", outcome.text);
    }
    (outcome.code, codes(&outcome), door.asked())
}

fn read(url: &str) -> ToolOptions {
    quick(http_tool("GET", url, Effect::Read))
}

fn write(url: &str) -> ToolOptions {
    quick(http_tool("POST", url, Effect::Write))
}

fn keyed_write(url: &str) -> ToolOptions {
    keyed(write(url))
}

#[tokio::test]
async fn a_read_is_repeated_where_that_helps_and_its_end_is_named() {
    let fine = say(200, &[], "{}");
    for (acts, code, attempts) in [
        (vec![fine.clone()], ToolCode::Ok, &["ok"][..]),
        (vec![say(503, &[], ""), fine.clone()], ToolCode::Ok, &["http_503", "ok"]),
        (vec![say(500, &[], ""), fine.clone()], ToolCode::Ok, &["http_500", "ok"]),
        (vec![Act::Cut, fine.clone()], ToolCode::Ok, &["reset", "ok"]),
        (vec![Act::Cut], ToolCode::UpstreamUnavailable, &["reset", "reset"]),
        (vec![say(404, &[], "none")], ToolCode::UpstreamRejected, &["http_404"]),
        (vec![say(429, &[("retry-after", "120")], "")], ToolCode::UpstreamRejected, &["http_429"]),
        (vec![Act::Hang], ToolCode::UpstreamTimeout, &["timeout", "timeout"]),
        (vec![Act::Say("HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\nabc".into()), fine.clone()], ToolCode::Ok, &["cut", "ok"]),
        (vec![Act::Say("rubbish\r\n\r\n".into())], ToolCode::UpstreamUnavailable, &["reset", "reset"]),
    ] {
        assert_eq!(check(acts, read).await, (code, attempts.iter().map(ToString::to_string).collect(), 0));
    }
}

#[tokio::test]
async fn a_write_is_sent_once_and_an_unknown_end_is_called_unknown() {
    for (acts, code, attempts) in [
        (vec![say(201, &[], "")], ToolCode::Ok, "ok"),
        (vec![Act::Cut], ToolCode::OutcomeUnknown, "reset"),
        (vec![Act::Hang], ToolCode::OutcomeUnknown, "timeout"),
        (vec![say(500, &[], "")], ToolCode::OutcomeUnknown, "http_500"),
        (vec![say(503, &[], "")], ToolCode::UpstreamRejected, "http_503"),
        (vec![say(409, &[], "")], ToolCode::UpstreamRejected, "http_409"),
        (vec![Act::Say("HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\nabc".into())], ToolCode::OutcomeUnknown, "cut"),
        (vec![say(303, &[("location", "http://elsewhere.test/")], "")], ToolCode::OutcomeUnknown, "blocked_redirect"),
    ] {
        let (got, legs, asked) = check(acts, write).await;
        assert_eq!((got, asked), (code, 1));
        assert_eq!(legs, [attempts]);
    }
}

#[tokio::test]
async fn a_keyed_write_is_repeated_under_the_same_key() {
    let upstream = Upstream::start(vec![Act::Cut, say(200, &[], "done")]).await;
    let (executor, _) = executor(keyed_write(&upstream.url("/x/{id}")));
    let door = Door::new(true);
    let outcome = run(&executor, "t", r#"{"id":"a"}"#, &door).await;
    assert_eq!((outcome.code, outcome.text.as_str(), door.asked()), (ToolCode::Ok, "done", 1));
    let heard = upstream.heard();
    assert_eq!(heard.len(), 2);
    assert!(heard.iter().all(|request| request.contains("idempotency-key: key-1\r\n")), "{heard:?}");
    // A harmless failure afterwards does not hide that the first may have taken effect.
    assert_eq!(check(vec![Act::Cut, say(404, &[], "")], keyed_write).await.0, ToolCode::OutcomeUnknown);
    assert_eq!(check(vec![say(503, &[], ""), say(404, &[], "")], keyed_write).await.0, ToolCode::UpstreamRejected);
}

#[tokio::test]
async fn a_write_that_may_not_leave_is_not_sent() {
    let upstream = Upstream::start(vec![say(200, &[], "")]).await;
    let (executor, _) = executor(keyed_write(&upstream.url("/x/{id}")));
    let door = Door::new(false);
    let outcome = run(&executor, "t", r#"{"id":"a"}"#, &door).await;
    assert_eq!((outcome.code, codes(&outcome).len(), door.asked()), (ToolCode::NotAttempted, 0, 1));
    assert_eq!(upstream.heard().len(), 0);
}

#[tokio::test]
async fn what_never_arrived_is_unavailable_also_for_a_write() {
    let port = Upstream::start(vec![Act::Cut]).await.port;
    for tool in [read, write] {
        let (executor, _) = executor(tool(&format!("http://127.0.0.1:{port}/x")));
        let outcome = run(&executor, "t", "{}", &Door::new(true)).await;
        assert_eq!(outcome.code, ToolCode::UpstreamUnavailable);
        assert!(codes(&outcome).iter().all(|code| code == "unreachable"), "{:?}", codes(&outcome));
    }
}

#[tokio::test]
async fn the_request_is_what_the_arguments_say() {
    let upstream = Upstream::start(vec![say(200, &[], "{}")]).await;
    let (executor, _) = executor(http_tool("GET", &upstream.url("/v/{id}/w?a=b"), Effect::Read));
    run(&executor, "t", r#"{"id":"x/../y","n":12345678901234567890123}"#, &Door::new(true)).await;
    let heard = upstream.heard().remove(0);
    assert!(heard.starts_with("GET /v/x%2F..%2Fy/w?a=b&n=12345678901234567890123 HTTP/1.1\r\n"), "{heard}");
    let header = |name: &str| heard.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned)).unwrap();
    assert_eq!(header("accept-encoding"), "identity");
    let left: u64 = header("x-request-timeout-ms").parse().unwrap();
    assert!((10_000..=11_850).contains(&left), "{left}");
    let at = header("x-request-deadline");
    assert!(at.len() == "2026-11-30T23:45:09.123Z".len() && at.ends_with('Z') && at.starts_with("20"), "{at}");
}

#[tokio::test]
async fn the_body_is_what_fills_no_placeholder() {
    let upstream = Upstream::start(vec![say(200, &[], "{}")]).await;
    let mut tool = http_tool("POST", &upstream.url("/v/{id}"), Effect::Write);
    if let ToolKind::Http(http) = &mut tool.kind {
        http.headers = vec![("authorization".into(), "Bearer s".into())];
    }
    let (executor, _) = executor(tool);
    run(&executor, "t", r#"{"n":12345678901234567890123,"id":"a","b":[1.0]}"#, &Door::new(true)).await;
    let heard = upstream.heard().remove(0);
    assert!(heard.contains("content-type: application/json\r\n") && heard.contains("authorization: Bearer s\r\n"), "{heard}");
    assert!(heard.ends_with("\r\n\r\n{\"n\":12345678901234567890123,\"b\":[1.0]}"), "{heard}");
}

#[tokio::test]
async fn redirects_are_followed_within_the_allow_list_and_five_times() {
    let other = Upstream::start(vec![say(200, &[], "there")]).await;
    let to_other = say(302, &[("location", &other.url("/y"))], "");
    let upstream = Upstream::start(vec![to_other]).await;
    let mut tool = http_tool("GET", &upstream.url("/x"), Effect::Read);
    if let ToolKind::Http(http) = &mut tool.kind {
        http.headers = vec![("x-secret".into(), "s".into())];
    }
    let (executor, _) = executor(tool);
    assert_eq!(run(&executor, "t", "{}", &Door::new(true)).await.text, "there");
    assert!(upstream.heard()[0].contains("x-secret: s"));
    // Another port is another origin: it is not trusted with the header.
    assert!(!other.heard()[0].contains("x-secret"));

    for (location, code) in [
        ("http://elsewhere.test/", ToolCode::Blocked),
        ("http://169.254.169.254/latest", ToolCode::Blocked),
        ("file:///etc/passwd", ToolCode::Blocked),
    ] {
        let (got, legs, _) = check(vec![say(302, &[("location", location)], "")], read).await;
        assert_eq!((got, legs), (code, vec!["blocked_redirect".to_owned()]), "{location}");
    }
    let hop = say(302, &[("location", "/again")], "");
    let five: Vec<_> = std::iter::repeat_n(hop.clone(), 5).chain([say(200, &[], "")]).collect();
    assert_eq!(check(five, read).await.0, ToolCode::Ok);
    assert_eq!(check(vec![hop], read).await.0, ToolCode::UpstreamRejected);
}

#[tokio::test]
async fn addresses_that_are_not_public_are_blocked_unless_allowed() {
    let upstream = Upstream::start(vec![say(200, &[], "in")]).await;
    let mapped = |treat| HostMapping { address: format!("127.0.0.1:{}", upstream.port).parse().unwrap(), treat };
    let of = |host: &str, hosts: &[(&str, HostMapping)], allow: &[&str]| {
        let http = HttpOptions {
            allow: allow.iter().map(|rule| rule.parse().unwrap()).collect(),
            hosts: hosts.iter().map(|(name, mapping)| ((*name).to_owned(), *mapping)).collect(),
            ..http_options()
        };
        let tool = http_tool("GET", &format!("http://{host}:{}/", upstream.port), Effect::Read);
        executor_of(ExecutorOptions { http, tools: BTreeMap::from([("t".into(), tool)]), ..options() }).0
    };
    for (executor, code) in [
        (of("localhost", &[], &[]), ToolCode::Blocked),
        (of("localhost", &[], &["127.0.0.1", "::1"]), ToolCode::Ok),
        (of("pay.test", &[("pay.test", mapped(Treat::Public))], &[]), ToolCode::Ok),
        (of("pay.test", &[("pay.test", mapped(Treat::AsIs))], &[]), ToolCode::Blocked),
    ] {
        let outcome = run(&executor, "t", "{}", &Door::new(true)).await;
        assert_eq!(outcome.code, code, "{}", outcome.text);
        assert_eq!(codes(&outcome).len(), usize::from(code == ToolCode::Ok));
    }
    // A host that is an address is refused at load already.
    let http = HttpOptions { allow: vec![], ..http_options() };
    let tools = BTreeMap::from([("t".into(), http_tool("GET", "http://10.0.0.1/", Effect::Read))]);
    let refused = Executor::new(ExecutorOptions { http, tools, ..options() }, std::sync::Arc::new(ambit_core::signal::Silent)).unwrap_err();
    assert!(refused.to_string().contains("10.0.0.1 is not public"), "{refused}");
}

#[tokio::test]
async fn a_body_is_bounded_at_the_limit_and_one_past_it() {
    let chunked = |bytes: usize| Act::Say(format!("HTTP/1.1 200 X\r\nconnection: close\r\n\r\n{}", "x".repeat(bytes)));
    for (act, code) in [
        (say(200, &[], &"x".repeat(1_000)), ToolCode::Ok),
        (say(200, &[], &"x".repeat(1_001)), ToolCode::OutputInvalid),
        (chunked(1_000), ToolCode::Ok),
        (chunked(1_001), ToolCode::OutputInvalid),
    ] {
        let upstream = Upstream::start(vec![act]).await;
        let http = HttpOptions { tool_body: NonZeroUsize::new(1_000).unwrap(), ..http_options() };
        let tools = BTreeMap::from([("t".into(), http_tool("GET", &upstream.url("/"), Effect::Read))]);
        let (executor, _) = executor_of(ExecutorOptions { http, tools, ..options() });
        let outcome = run(&executor, "t", "{}", &Door::new(true)).await;
        assert_eq!((outcome.code, upstream.heard().len()), (code, 1));
    }
}

#[tokio::test]
async fn output_is_cleaned_capped_and_counted() {
    let body = format!("<|im_start|>{}\u{202e}", "x".repeat(20_000));
    let upstream = Upstream::start(vec![say(200, &[("content-type", "text/plain")], &body)]).await;
    let (executor, seen) = executor(http_tool("GET", &upstream.url("/"), Effect::Read));
    let outcome = run(&executor, "t", "{}", &Door::new(true)).await;
    assert!(outcome.truncated && outcome.text.len() <= 10 << 10 && outcome.text.contains("bytes left out") && !outcome.text.contains("<|"));
    assert!(seen.0.lock().unwrap().iter().any(|signal| matches!(signal, Signal::Truncated { bytes, .. } if *bytes > 9_000)));
}

#[tokio::test]
async fn what_is_no_text_is_described() {
    let raw = Act::Say("HTTP/1.1 204 X\r\nconnection: close\r\n\r\n".into());
    let upstream = Upstream::start(vec![raw]).await;
    let (executor, _) = executor(http_tool("GET", &upstream.url("/"), Effect::Read));
    let outcome = run(&executor, "t", "{}", &Door::new(true)).await;
    let text: serde_json::Value = serde_json::from_str(&outcome.text).unwrap();
    assert_eq!((&text["status"], &text["http_status"]), (&"ok".into(), &204.into()));
}

#[tokio::test]
async fn a_refusal_tells_the_model_what_the_other_side_said() {
    let upstream = Upstream::start(vec![say(422, &[("content-type", "application/json")], r#"{"error": "amount too high"}"#)]).await;
    let (executor, _) = executor(http_tool("GET", &upstream.url("/"), Effect::Read));
    let outcome = run(&executor, "t", "{}", &Door::new(true)).await;
    assert!(outcome.text.contains("amount too high") && outcome.text.contains("HTTP 422"), "{}", outcome.text);
    let page = Upstream::start(vec![say(403, &[], "<html>login</html>")]).await;
    let (executor, _) = crate::kit::executor(http_tool("GET", &page.url("/"), Effect::Read));
    let outcome = run(&executor, "t", "{}", &Door::new(true)).await;
    assert!(outcome.text.contains("HTTP 403") && !outcome.text.contains("html"), "{}", outcome.text);
}

#[tokio::test]
async fn too_little_time_sends_nothing() {
    let upstream = Upstream::start(vec![say(200, &[], "")]).await;
    for tool in [read, write] {
        let (executor, _) = executor(tool(&upstream.url("/x")));
        let outcome = run_for(&executor, "t", "{}", &Door::new(true), Duration::from_millis(20)).await;
        assert_eq!((outcome.code, codes(&outcome).len()), (ToolCode::DeadlineExceeded, 0));
    }
    assert_eq!(upstream.heard().len(), 0);
}

#[tokio::test]
async fn a_read_ends_with_the_deadline_and_a_write_with_its_own_time() {
    let left = Duration::from_millis(400);
    for (tool, code) in [(read as fn(&str) -> ToolOptions, ToolCode::DeadlineExceeded), (write, ToolCode::OutcomeUnknown)] {
        let upstream = Upstream::start(vec![Act::Hang]).await;
        let mut tool = tool(&upstream.url("/x"));
        tool.policy.attempt = Duration::from_millis(900);
        let (executor, _) = executor(tool);
        let started = tokio::time::Instant::now();
        let outcome = run_for(&executor, "t", "{}", &Door::new(true), left).await;
        assert_eq!(outcome.code, code);
        assert_eq!(started.elapsed() > Duration::from_millis(850), code == ToolCode::OutcomeUnknown);
    }
}

#[tokio::test]
async fn permits_are_refused_not_leaked() {
    let upstream = Upstream::start(vec![Act::Hang]).await;
    let mut tool = read(&upstream.url("/x"));
    tool.policy.permits = 1.try_into().unwrap();
    tool.policy.queue = 0;
    let (executor, _) = executor(tool);
    let door = Door::new(true);
    {
        let first = run(&executor, "t", "{}", &door);
        tokio::pin!(first);
        let second = async {
            while executor.in_use() == 0 {
                tokio::task::yield_now().await;
            }
            run(&executor, "t", "{}", &door).await
        };
        tokio::select! {
            _ = &mut first => panic!("the first hangs"),
            second = second => assert_eq!(second.code, ToolCode::Saturated),
        }
        assert_eq!(executor.in_use(), 1);
    }
    // Dropped while it hung.
    assert!(executor.is_quiescent());
}

#[test]
fn preparation_resolves_authorises_validates_and_binds() {
    let mut tool = http_tool("GET", "https://h.test/{id}", Effect::Read);
    tool.bind = BTreeMap::from([("tenant".into(), Binding::PrincipalTenant)]);
    if let ToolKind::Http(http) = &mut tool.kind {
        http.schema["properties"]["tenant"] = serde_json::json!({"type": "string"});
        http.schema["additionalProperties"] = false.into();
    }
    let mut closed = http_tool("GET", "https://h.test/", Effect::Read);
    closed.policy.roles = vec!["admin".into()];
    let tools = BTreeMap::from([("look_up".into(), tool), ("closed".into(), closed)]);
    let (executor, _) = executor_of(ExecutorOptions { tools, ..options() });
    let offer = executor.offer(&["look_up".into(), "closed".into(), "none".into()], principal());
    let declared: Vec<_> = offer.declarations().collect();
    assert_eq!(declared.len(), 1);
    assert!(!declared[0].schema.to_string().contains("tenant"));

    let check = |name: &str, arguments: &str| {
        let prepared = offer.prepare(name, arguments);
        match prepared.gate {
            Gate::Go => format!("go {} {}", prepared.tool, prepared.arguments),
            Gate::Ask => "ask".into(),
            Gate::Refuse(code) => format!("{} {}", code.as_str(), prepared.refusal.unwrap()),
        }
    };
    let fine = r#"go look_up {"id":"x","tenant":"acme"}"#;
    for name in ["look_up", "functions.look_up", " look_up ", "look_up<|channel|>commentary", "functions.look_up<|constrain|>json"] {
        assert_eq!(check(name, r#"{"id": "x"}"#), fine, "{name}");
    }
    for (name, arguments, expected) in [
        ("lookup", "{}", "UNKNOWN_TOOL"),
        ("lookup", "{}", r#""nearest":["look_up"]"#),
        ("zzz", "{}", "no tool `zzz` is offered"),
        ("closed", "{}", "NOT_PERMITTED"),
        ("look_up", "", r#""detail":"schema""#),
        ("look_up", "{\"id\":", r#""detail":"json""#),
        ("look_up", r#"{"id":7}"#, r#""pointer":"/id""#),
        ("look_up", r#"{"id":"x","tenant":"evil"}"#, r#""pointer":"/tenant","reason":"is filled in by the system"#),
        ("look_up", r#"{"id":".."}"#, r#""pointer":"/id","reason":"would lead to another folder"#),
        ("look_up", r#"{"id":"x","y":1}"#, "INVALID_ARGUMENTS"),
    ] {
        let got = check(name, arguments);
        assert!(got.contains(expected), "{name} {arguments}: {got}");
    }
    let canonical = |arguments: &str| offer.prepare("look_up", arguments).canonical;
    assert_eq!(canonical(r#"{"id":"x","n":1}"#), canonical(r#"{"n":1.0,"id":"x"}"#));
    assert_ne!(canonical(r#"{"id":"x"}"#), canonical(r#"{"id":"y"}"#));
}

#[test]
fn a_tool_that_cannot_be_used_is_refused_at_load_with_all_others() {
    let mut bad = BTreeMap::new();
    let mut add = |name: &str, change: &dyn Fn(&mut HttpToolOptions)| {
        let mut tool = http_tool("GET", "https://h.test/{id}", Effect::Read);
        if let ToolKind::Http(http) = &mut tool.kind {
            change(http);
        }
        bad.insert(name.into(), tool);
    };
    add("a method", &|http| http.method = "BREW".into());
    add("brew", &|http| http.method = "BREW".into());
    add("schema", &|http| http.schema["type"] = "objekt".into());
    add("loose", &|http| http.schema["properties"]["id"] = serde_json::json!({"type": "string"}));
    add("unanchored", &|http| http.schema["properties"]["id"] = serde_json::json!({"pattern": "x"}));
    add("optional", &|http| http.schema["required"] = serde_json::json!([]));
    add("missing", &|http| http.url = "https://h.test/{other}".into());
    add("header", &|http| http.headers = vec![("a b".into(), "x".into())]);
    add("array", &|http| http.schema = serde_json::json!({"type": "array"}));
    let refused = Executor::new(ExecutorOptions { tools: bad, ..options() }, std::sync::Arc::new(ambit_core::signal::Silent)).unwrap_err();
    assert_eq!(refused.kind(), ambit_core::ErrorKind::Invalid);
    let text = refused.to_string();
    for expected in [
        "tool `a method`: its name is not",
        "tool `brew`: its method `BREW`",
        "tool `schema`: its schema does not describe an object",
        "tool `loose`: its url has the placeholder `{id}`, whose schema has neither format nor pattern",
        "tool `unanchored`: its url has the placeholder `{id}`, whose schema has a pattern that is not anchored",
        "tool `optional`: its url has the placeholder `{id}`, which its schema does not require",
        "tool `missing`: its url has the placeholder `{other}`, which its schema does not describe",
        "tool `header`: `a b` is no name of a header",
        "tool `array`: its schema does not describe an object",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

//! MCP servers that are stuck, noisy, dying or silent: every call ends in one result, and no process is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ambit_core::signal::Signal;
use ambit_core::{Effect, Gate, ToolCode};
use ambit_tool_executor::*;

use crate::kit::*;

/// A server started from `server.py`, and the file into which it writes its number.
struct Rig {
    executor: Executor,
    seen: Arc<Seen>,
    folder: tempfile::TempDir,
}

fn rig(modes: &[&str], change: impl Fn(&mut McpOptions)) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/executor/server.py");
    let mut args = vec![script.to_str().unwrap().to_owned()];
    args.extend(modes.iter().map(ToString::to_string));
    let mut policy = policy(Effect::Write);
    policy.attempt = Duration::from_millis(500);
    policy.timeout = Duration::from_secs(10);
    policy.min_useful = Duration::from_millis(50);
    let read = |name: &str| (name.into(), PolicyOverride { effect: Some(Effect::Read), ..PolicyOverride::default() });
    let mut server = McpOptions {
        endpoint: McpEndpoint::Stdio {
            command: "python3".into(),
            args,
            env: vec![("PIDS".into(), folder.path().join("pids").to_str().unwrap().into())],
            path: "/usr/local/bin:/usr/bin:/bin".into(),
            folder: None,
        },
        allow: McpAllow::All,
        policy,
        overrides: ["block", "silent", "late", "noise", "delete", "die"].into_iter().map(read).collect(),
        start_timeout: Duration::from_secs(10),
        idle: Duration::from_secs(60),
    };
    // A call of it may have to start a process on a busy machine.
    let patient = PolicyOverride { effect: Some(Effect::Read), attempt: Some(Duration::from_secs(8)), ..PolicyOverride::default() };
    server.overrides.insert("echo".into(), patient);
    change(&mut server);
    let (executor, seen) = executor_of(ExecutorOptions { mcp: BTreeMap::from([("srv".into(), server)]), ..options() });
    Rig { executor, seen, folder }
}

impl Rig {
    /// The numbers of all processes that were started, in order.
    fn started(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.folder.path().join("pids")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    async fn run(&self, tool: &str, arguments: &str) -> ToolOutcome {
        run(&self.executor, &format!("srv__{tool}"), arguments, &Door::new(true)).await
    }

    async fn ready(&self) -> Vec<(Arc<str>, String)> {
        self.executor.ready(&["srv".into()]).await
    }

    fn degradations(&self) -> Vec<String> {
        self.seen
            .0
            .lock()
            .unwrap()
            .iter()
            .filter_map(|signal| if let Signal::Degraded { reason, .. } = signal { Some((*reason).to_owned()) } else { None })
            .collect()
    }
}

/// True while a process of this group is there and not a zombie.
fn group_is_alive(leader: u32) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        matches!(fields.as_slice(), [state, _, group, ..] if *state != "Z" && *group == leader.to_string())
    })
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn tools_are_listed_over_pages_and_classified() {
    let rig = rig(&[], |_| {});
    assert_eq!(rig.ready().await, []);
    let offer = rig.executor.offer(&["srv".into()], principal());
    let declared: BTreeMap<String, _> = offer.declarations().map(|d| (d.name.to_string(), d.class)).collect();
    assert_eq!(declared.len(), 12, "{:?}", declared.keys());
    assert!(!declared.contains_key("srv__bad"));
    assert!(declared.keys().any(|name| name.starts_with("srv__strange_name__")));
    for (tool, effect, attempts) in
        [("srv__echo", Effect::Read, 2), ("srv__env", Effect::Write, 1), ("srv__delete", Effect::Irreversible, 1)]
    {
        assert_eq!((declared[tool].effect, declared[tool].attempts, declared[tool].keyed), (effect, attempts, false), "{tool}");
    }
    // A bare name is enough where it is the only one, and a name maps back to the server's own.
    let prepared = offer.prepare("echo", r#"{"text":"x"}"#);
    assert_eq!((&*prepared.tool, prepared.gate), ("srv__echo", Gate::Go));
    let strange = offer.prepare("strange name!", r#"{"text":"mapped back"}"#);
    assert_eq!(run(&rig.executor, &strange.tool, &strange.arguments, &Door::new(true)).await.text, "mapped back");
    assert!(offer.prepare("echo", r#"{"n":12345678901234567890123}"#).refusal.unwrap().contains("past 64 bits"));
    rig.executor.close().await;
}

#[tokio::test]
async fn only_allowed_tools_are_offered() {
    let rig = rig(&[], |server| server.allow = McpAllow::Only(vec!["echo".into()]));
    rig.ready().await;
    let offer = rig.executor.offer(&["srv".into()], principal());
    assert_eq!(offer.declarations().map(|d| d.name.to_string()).collect::<Vec<_>>(), ["srv__echo"]);
    rig.executor.close().await;
}

#[tokio::test]
async fn calls_end_in_the_result_that_fits() {
    let rig = rig(&[], |_| {});
    for (tool, arguments, code, text) in [
        ("echo", r#"{"text":"hello"}"#, ToolCode::Ok, "hello"),
        ("fail", "{}", ToolCode::ToolError, "it did not work"),
        ("refuse", "{}", ToolCode::UpstreamRejected, "no such thing"),
        ("noise", "{}", ToolCode::Ok, "after the noise"),
        ("structured", "{}", ToolCode::OutputInvalid, "output schema"),
        ("delete", "{}", ToolCode::Ok, "deleted"),
        ("nothing", "{}", ToolCode::UnknownTool, "no tool"),
    ] {
        // The first also starts the server: nothing was made ready before.
        let outcome = rig.run(tool, arguments).await;
        assert_eq!(outcome.code, code, "{tool}: {}", outcome.text);
        assert!(outcome.text.contains(text), "{tool}: {}", outcome.text);
    }
    assert_eq!(rig.started().len(), 1);
    rig.executor.close().await;
}

#[tokio::test]
async fn the_environment_is_empty_but_for_what_is_said() {
    let rig = rig(&[], |_| {});
    let outcome = rig.run("env", "{}").await;
    let environment: BTreeMap<String, String> = serde_json::from_str(&outcome.text).unwrap();
    // Python sets one itself where none is set.
    let names: Vec<_> = environment.keys().filter(|name| *name != "LC_CTYPE").collect();
    assert_eq!(names, ["PATH", "PIDS"]);
    rig.executor.close().await;
}

#[tokio::test]
async fn many_calls_share_one_process() {
    let rig = rig(&[], |_| {});
    let calls = (0..4).map(|i| {
        let rig = &rig;
        async move { rig.run("echo", &format!("{{\"text\":\"{i}\"}}")).await.text }
    });
    assert_eq!(futures_util::future::join_all(calls).await, ["0", "1", "2", "3"]);
    assert_eq!(rig.started().len(), 1);
    rig.executor.close().await;
}

#[tokio::test]
async fn a_stuck_server_is_replaced_and_dies_with_its_group() {
    let rig = rig(&[], |server| server.policy.attempts = 1.try_into().unwrap());
    let outcome = rig.run("block", "{}").await;
    assert_eq!((outcome.code, codes(&outcome)), (ToolCode::UpstreamTimeout, vec!["timeout".to_owned()]), "{}", outcome.text);
    until("replaced", || rig.degradations().contains(&"ignored_cancellation".to_owned())).await;
    assert_eq!(rig.run("echo", r#"{"text":"fresh"}"#).await.text, "fresh");
    let started = rig.started();
    assert_eq!(started.len(), 2);
    until("the old group is dead", || !group_is_alive(started[0])).await;
    assert!(group_is_alive(started[1]));
    rig.executor.close().await;
    assert!(!group_is_alive(started[1]));
    assert_eq!((rig.executor.tasks(), rig.executor.is_quiescent()), (0, true));
}

#[tokio::test]
async fn a_retiring_server_finishes_the_calls_that_it_has() {
    let rig = rig(&[], |server| {
        server.policy.attempts = 1.try_into().unwrap();
        server.overrides.insert(
            "late".into(),
            PolicyOverride { effect: Some(Effect::Read), attempt: Some(Duration::from_secs(3)), ..PolicyOverride::default() },
        );
        server.overrides.insert(
            "silent".into(),
            PolicyOverride { effect: Some(Effect::Read), attempt: Some(Duration::from_millis(60)), ..PolicyOverride::default() },
        );
    });
    rig.ready().await;
    let silent = async {
        let outcome = rig.run("silent", "{}").await;
        assert_eq!(outcome.code, ToolCode::UpstreamTimeout);
        until("replaced", || rig.degradations().contains(&"ignored_cancellation".to_owned())).await;
        rig.run("echo", r#"{"text":"from the fresh one"}"#).await.text
    };
    // Begun while the first is being watched, answered by the old process when it is retired already.
    let late = async {
        until("the first is watched", || rig.executor.tasks() == 3).await;
        rig.run("late", r#"{"n": 1.5}"#).await
    };
    let (fresh, late) = tokio::join!(silent, late);
    assert_eq!((fresh.as_str(), late.text.as_str()), ("from the fresh one", "late"));
    let started = rig.started();
    assert_eq!(started.len(), 2);
    until("the old group is dead", || !group_is_alive(started[0])).await;
    rig.executor.close().await;
}

#[tokio::test]
async fn processes_on_their_way_out_are_bounded() {
    let rig = rig(&[], |server| {
        server.policy.attempts = 1.try_into().unwrap();
        let within =
            |ms| PolicyOverride { effect: Some(Effect::Read), attempt: Some(Duration::from_millis(ms)), ..PolicyOverride::default() };
        server.policy.timeout = Duration::from_secs(60);
        server.policy.permits = 16.try_into().unwrap();
        server.overrides.insert("late".into(), within(60_000));
        server.overrides.insert("silent".into(), within(60));
    });
    rig.ready().await;
    // Four processes, each kept by a call that goes on, and each replaced: the fifth is not started until one is gone.
    let mut kept: Vec<std::pin::Pin<Box<dyn Future<Output = ToolOutcome> + '_>>> = Vec::new();
    for n in 1..=4 {
        let mut late = Box::pin(run(&rig.executor, "srv__late", r#"{"n": 60}"#, ALWAYS.get_or_init(|| Door::new(true))));
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut late).await.is_err());
        kept.push(late);
        assert_eq!(rig.run("silent", "{}").await.code, ToolCode::UpstreamTimeout);
        until("replaced", || rig.degradations().len() == n).await;
        let outcome = rig.run("echo", r#"{"text":"x"}"#).await;
        assert_eq!(outcome.code, if n < 4 { ToolCode::Ok } else { ToolCode::UpstreamUnavailable }, "{n}: {}", outcome.text);
    }
    assert_eq!(rig.started().len(), 4);
    drop(kept);
    until("all are gone", || rig.started().iter().all(|leader| !group_is_alive(*leader))).await;
    assert_eq!(rig.run("echo", r#"{"text":"x"}"#).await.code, ToolCode::Ok);
    rig.executor.close().await;
}

/// A door that outlives the calls which are kept.
static ALWAYS: std::sync::OnceLock<Door> = std::sync::OnceLock::new();

#[tokio::test]
async fn a_server_that_reacts_to_cancellation_stays() {
    let rig = rig(&[], |server| server.policy.attempts = 1.try_into().unwrap());
    // It answers 100 ms after it was told: late, and a sign of life.
    assert_eq!(rig.run("late", "{}").await.code, ToolCode::UpstreamTimeout);
    // A caller who lost interest is no reason either, as long as the server goes on.
    {
        let dropped = rig.run("silent", "{}");
        assert!(tokio::time::timeout(Duration::from_millis(100), dropped).await.is_err());
    }
    until("both were watched", || rig.executor.tasks() == 2).await;
    assert_eq!(rig.degradations(), Vec::<String>::new());
    assert_eq!(rig.run("echo", r#"{"text":"same"}"#).await.text, "same");
    assert_eq!(rig.started().len(), 1);
    rig.executor.close().await;
}

#[tokio::test]
async fn a_server_that_dies_is_started_again_after_a_while() {
    let rig = rig(&[], |_| {});
    rig.ready().await;
    let started = tokio::time::Instant::now();
    let outcome = rig.run("echo", r#"{"text":"alive"}"#).await;
    assert_eq!(outcome.code, ToolCode::Ok);
    // A read may be repeated: the retry waits for the restart as long as it was told to, and kills the next one too.
    let outcome = rig.run("die", "{}").await;
    assert_eq!(outcome.code, ToolCode::UpstreamUnavailable, "{}", outcome.text);
    assert_eq!(codes(&outcome)[0], "reset");
    let outcome = run(&rig.executor, "srv__env", "{}", &Door::new(true)).await;
    assert_eq!((outcome.code, codes(&outcome)), (ToolCode::UpstreamUnavailable, vec!["mcp_down".to_owned()]), "{}", outcome.text);
    assert!(outcome.text.contains("retry_after_s"), "{}", outcome.text);
    // Each of these calls waits as long as it is told and has time for, so a few are enough.
    let mut again = rig.run("echo", r#"{"text":"again"}"#).await;
    for _ in 0..5 {
        if again.code == ToolCode::UpstreamUnavailable {
            again = rig.run("echo", r#"{"text":"again"}"#).await;
        }
    }
    assert_eq!(again.text, "again");
    assert!(started.elapsed() > Duration::from_secs(1));
    assert!(rig.degradations().contains(&"died".to_owned()));
    rig.executor.close().await;
}

#[tokio::test]
async fn a_write_on_a_dying_server_is_of_unknown_outcome() {
    let rig = rig(&[], |server| {
        server.overrides.remove("die");
    });
    let outcome = rig.run("die", "{}").await;
    assert_eq!((outcome.code, codes(&outcome)), (ToolCode::OutcomeUnknown, vec!["reset".to_owned()]));
    rig.executor.close().await;
}

#[tokio::test]
async fn a_server_that_does_not_start_costs_its_start_timeout_once() {
    for (modes, change, reason) in [
        (
            &["no-start"][..],
            (|server: &mut McpOptions| server.start_timeout = Duration::from_millis(300)) as fn(&mut McpOptions),
            "not ready within 300 ms",
        ),
        (&["exit"], |_| {}, "no handshake"),
        (
            &[],
            |server| {
                server.endpoint =
                    McpEndpoint::Stdio { command: "/no/such/program".into(), args: vec![], env: vec![], path: String::new(), folder: None }
            },
            "cannot be started",
        ),
        (&[], |server| server.endpoint = McpEndpoint::Http { url: "http://127.0.0.1:1/mcp".into(), headers: vec![] }, "no handshake"),
        (
            &[],
            |server| server.endpoint = McpEndpoint::Http { url: "http://10.0.0.1/mcp".into(), headers: vec![] },
            "10.0.0.1 is not public",
        ),
    ] {
        let rig = rig(modes, change);
        let failed = rig.ready().await;
        assert!(failed.len() == 1 && failed[0].1.contains(reason), "{failed:?}");
        let again = rig.ready().await;
        assert!(again[0].1.contains("left alone"), "{again:?}");
        assert!(rig.executor.offer(&["srv".into()], principal()).is_empty());
        assert_eq!(rig.degradations(), ["start_failed"]);
        rig.executor.close().await;
        assert_eq!(rig.ready().await[0].1, "it is closed");
    }
}

#[tokio::test]
async fn an_endless_listing_ends() {
    let rig = rig(&["endless"], |_| {});
    assert_eq!(rig.ready().await, []);
    // The same tool on every page is one tool.
    assert_eq!(rig.executor.offer(&["srv".into()], principal()).declarations().count(), 1);
    rig.executor.close().await;
}

#[tokio::test]
async fn an_idle_server_is_ended_and_started_again_when_needed() {
    let rig = rig(&[], |server| server.idle = Duration::from_millis(200));
    assert_eq!(rig.run("echo", r#"{"text":"one"}"#).await.text, "one");
    let first = rig.started()[0];
    until("ended", || !group_is_alive(first)).await;
    assert_eq!(rig.run("echo", r#"{"text":"two"}"#).await.text, "two");
    assert_eq!(rig.started().len(), 2);
    assert_eq!(rig.degradations(), Vec::<String>::new());
    rig.executor.close().await;
}

#[tokio::test]
async fn dropping_the_executor_leaves_no_process() {
    let rig = rig(&[], |_| {});
    rig.ready().await;
    let leader = rig.started()[0];
    assert!(group_is_alive(leader) && Path::new(&format!("/proc/{leader}")).exists());
    let Rig { executor, folder: _folder, .. } = rig;
    drop(executor);
    until("dead", || !group_is_alive(leader)).await;
}

/// A server over HTTP whose session ends whenever a call says so, and which counts the calls it ran.
async fn over_http(answer_to_call: impl Fn(&str, usize) -> Act + Send + 'static) -> Upstream {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    Upstream::serve(move |_, request| {
        let json = |session: &str, result: &str| {
            let id = request.split("\"id\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).unwrap_or("0");
            let headers = [("content-type", "application/json"), ("mcp-session-id", session)];
            say(200, &headers, &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"))
        };
        if request.contains("\"initialize\"") {
            let version = request.split("\"protocolVersion\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).unwrap_or("\"\"");
            return json("s1", &format!("{{\"protocolVersion\":{version},\"capabilities\":{{\"tools\":{{}}}},\"serverInfo\":{{\"name\":\"t\",\"version\":\"1\"}}}}"));
        }
        if request.contains("tools/list") {
            return json("s1", r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#);
        }
        if request.contains("tools/call") {
            let n = calls.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            return match answer_to_call(request, n) {
                Act::Say(text) if text.is_empty() => json("s1", r#"{"content":[{"type":"text","text":"over http"}]}"#),
                act @ (Act::Say(_) | Act::Cut | Act::Hang) => act,
            };
        }
        if request.starts_with("POST") { say(202, &[], "") } else { say(405, &[], "") }
    })
    .await
}

fn http_rig(upstream: &Upstream) -> Rig {
    let url = upstream.url("/mcp");
    rig(&[], move |server| {
        server.endpoint = McpEndpoint::Http { url: url.clone(), headers: vec![("x-token".into(), "secret".into())] };
    })
}

#[tokio::test]
async fn a_server_over_http_is_asked_with_its_headers() {
    let upstream = over_http(|_, _| Act::Say(String::new())).await;
    let rig = http_rig(&upstream);
    assert_eq!(rig.run("echo", "{}").await.text, "over http");
    assert!(upstream.heard().iter().all(|request| request.contains("x-token: secret")));
    rig.executor.close().await;
}

#[tokio::test]
async fn calls_over_http_end_in_the_result_that_fits() {
    for (act, read, write) in [
        (Act::Cut, ToolCode::UpstreamUnavailable, ToolCode::OutcomeUnknown),
        (Act::Hang, ToolCode::UpstreamTimeout, ToolCode::OutcomeUnknown),
        (say(500, &[], "oops"), ToolCode::UpstreamUnavailable, ToolCode::OutcomeUnknown),
        (say(503, &[], ""), ToolCode::UpstreamUnavailable, ToolCode::UpstreamRejected),
        (say(429, &[("retry-after", "99")], ""), ToolCode::UpstreamRejected, ToolCode::UpstreamRejected),
        (say(401, &[("www-authenticate", "Bearer")], ""), ToolCode::UpstreamRejected, ToolCode::UpstreamRejected),
        (say(200, &[("content-type", "text/html")], "<html>"), ToolCode::UpstreamUnavailable, ToolCode::OutcomeUnknown),
    ] {
        for (effect, code) in [(Effect::Read, read), (Effect::Write, write)] {
            let shown = if let Act::Say(text) = &act { text.clone() } else { "cut or hang".into() };
            let told = act.clone();
            let upstream = over_http(move |_, _| told.clone()).await;
            let url = upstream.url("/mcp");
            let rig = rig(&[], move |server| {
                server.endpoint = McpEndpoint::Http { url: url.clone(), headers: vec![] };
                server.overrides.insert("echo".into(), PolicyOverride { effect: Some(effect), ..PolicyOverride::default() });
            });
            let outcome = rig.run("echo", "{}").await;
            assert_eq!(outcome.code, code, "{effect:?} {shown} {}", outcome.text);
            rig.executor.close().await;
            assert!(rig.executor.is_quiescent());
        }
    }
}

#[tokio::test]
async fn an_expired_session_is_renewed_once_and_the_call_repeated_once() {
    // Also a write: the call never ran.
    let upstream = over_http(|_, n| if n == 0 { say(404, &[], "") } else { Act::Say(String::new()) }).await;
    let url = upstream.url("/mcp");
    let rig = rig(&[], move |server| {
        server.endpoint = McpEndpoint::Http { url: url.clone(), headers: vec![] };
        server.overrides.clear();
    });
    let outcome = rig.run("echo", "{}").await;
    assert_eq!((outcome.code, outcome.text.as_str()), (ToolCode::Ok, "over http"));
    let count = |what: &str| upstream.heard().iter().filter(|request| request.contains(what)).count();
    assert_eq!((count("\"initialize\""), count("tools/call")), (2, 2));
    rig.executor.close().await;
}

//! Traces: what a real receiver gets over both protocols, what goes out to models and tools, and what a dead collector costs.

use std::time::Duration;

use ambit_tests::client::Api;
use ambit_tests::otlp::{Receiver, Span};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Call, Script, Upstream};
use ambit_tests::within;
use serde_json::{Value, json};

use crate::house::{House, Setup, assert_end, assert_unhurt};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

/// A house whose process has these variables besides.
async fn with_env(setup: Setup, env: &[(&str, &str)]) -> House {
    let (mut launch, provider, tools) = setup.furnish().await;
    for (name, value) in env {
        launch = launch.env(name, value);
    }
    let ambit = launch.serve().await;
    let api = Api::of(&ambit);
    House { launch, provider, tools, ambit, api }
}

/// A session whose first request fails, with two tools, one of which writes under a key.
fn busy() -> Setup {
    let call = |tool: &str, id: &str| Call::new(tool, &json!({"id": id})).id(id);
    let chat = Script::new([Act::error(500), Act::calls([call("look", "r1"), call("put", "w1")]), Act::text("done").usage(Some((31, 7)))]);
    let done = || Act::json(json!({"done": true}));
    Setup::new(chat).read("look", Script::new([Act::error(503), done()])).keyed("put", done())
}

const BUSY: &str = "
SERVER POST /v1/sessions
  INTERNAL invoke_agent clerk
    INTERNAL ambit.model_call default [retry_scheduled]
      CLIENT chat m !http_500
      CLIENT chat m
    INTERNAL execute_tool look [retry_scheduled]
      CLIENT GET !http_503
      CLIENT GET
    INTERNAL execute_tool put
      CLIENT POST
    INTERNAL ambit.model_call default
      CLIENT chat m
";

fn named<'a>(spans: &'a [Span], trace: &str, name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.trace == trace && span.name == name).collect()
}

fn said<'a>(span: &'a Span, key: &str) -> &'a str {
    span.attributes.get(key).map_or("", String::as_str)
}

/// Runs the busy session, a failed one and a streamed one, and looks at what arrives.
async fn all_three(receiver: &Receiver, protocol: &str, endpoint: &str) {
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=r%26d"),
    ];
    let house = with_env(busy(), &env).await;
    let request = house.api.session(&House::request("hi")).header("traceparent", traceparent("01"));
    let answer = house.api.send(request).await;
    let session = answer.assert_status(200).json();
    assert_end(&session, "completed", "answered");
    assert_eq!(session["trace_id"], TRACE);
    let spans = receiver.draws(TRACE, BUSY).await;
    let server = named(&spans, TRACE, "POST /v1/sessions")[0];
    assert_eq!(server.parent, CALLER);
    assert_eq!(answer.header("traceparent"), Some(format!("00-{TRACE}-{}-01", server.id).as_str()));
    assert_eq!((said(server, "http.response.status_code"), server.status.as_str()), ("200", "UNSET"));
    assert_eq!((server.resource["service.name"].as_str(), server.resource["team"].as_str()), ("shop", "r&d"));
    assert_of_the_session(&spans, &session);
    assert_of_the_attempts(&spans, &house);

    // A failed one, in a trace of its own.
    house.provider.play("chat", Script::new([Act::error(401)]));
    let answer = house.answer("hi").await;
    let id = answer.header("traceparent").unwrap()[3..35].to_owned();
    answer.assert_problem(503, "MODEL_UNAVAILABLE");
    assert_ne!(id, TRACE);
    let failed = "
SERVER POST /v1/sessions !503
  INTERNAL invoke_agent clerk !model_unavailable
    INTERNAL ambit.model_call default !http_401 [retry_refused]
      CLIENT chat m !http_401
";
    let spans = receiver.draws(&id, failed).await;
    assert!(spans.iter().filter(|span| span.trace == id).all(|span| span.status == "ERROR"));

    // A streamed one: its request is over when the stream is.
    house.provider.play("chat", Script::new([Act::text("one two three")]));
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    let events = stream.to_verdict().await;
    let id = events.last().unwrap().json()["session_id"].as_str().unwrap().to_owned();
    let id = house.verdict(&id).await["trace_id"].as_str().unwrap().to_owned();
    let streamed = "
SERVER POST /v1/sessions
  INTERNAL invoke_agent clerk
    INTERNAL ambit.model_call default
      CLIENT chat m
";
    let spans = receiver.draws(&id, streamed).await;
    let end = |name: &str| named(&spans, &id, name)[0].time.1;
    assert!(end("POST /v1/sessions") >= end("invoke_agent clerk"));
    let metrics = house.api.metrics().await;
    assert!(metrics.count("ambit_telemetry_spans_exported_total", &[]) >= 13);
    assert_eq!(metrics.count("ambit_telemetry_spans_dropped_total", &[]), 0);
    house.close().await;
}

fn assert_of_the_session(spans: &[Span], session: &Value) {
    let of = |name| named(spans, TRACE, name)[0];
    let agent = of("invoke_agent clerk");
    let id = session["id"].as_str().unwrap();
    assert_eq!((said(agent, "gen_ai.operation.name"), said(agent, "gen_ai.agent.name")), ("invoke_agent", "clerk"));
    assert_eq!((said(agent, "gen_ai.conversation.id"), said(agent, "ambit.session.id")), (id, id));
    assert_eq!((said(agent, "ambit.status"), said(agent, "ambit.reason")), ("completed", "answered"));
    assert_eq!((said(agent, "ambit.spent.model_calls"), said(agent, "ambit.limit.model_calls")), ("2", "8"));
    assert_eq!((said(agent, "ambit.spent.tool_attempts"), said(agent, "ambit.limit.cost_usd")), ("3", "1"));
    let (look, put) = (of("execute_tool look"), of("execute_tool put"));
    assert_eq!((said(look, "gen_ai.tool.name"), said(look, "gen_ai.tool.call.id"), said(look, "ambit.effect")), ("look", "r1", "read"));
    assert_eq!((said(put, "gen_ai.tool.call.id"), said(put, "ambit.effect")), ("w1", "write"));
    assert!(said(put, "ambit.idempotency").len() == 16 && said(look, "ambit.idempotency").is_empty());
}

fn assert_of_the_attempts(spans: &[Span], house: &House) {
    let port = house.provider.address().port().to_string();
    let mut chats = named(spans, TRACE, "chat m");
    chats.sort_by_key(|span| span.time);
    assert_eq!(chats.len(), 3, "{chats:#?}");
    let (failed, retried, last) = (chats[0], chats[1], chats[2]);
    assert_eq!((said(failed, "ambit.attempt"), said(failed, "ambit.attempt.kind")), ("1", "first"));
    assert_eq!((said(failed, "http.response.status_code"), said(failed, "gen_ai.usage.input_tokens")), ("500", ""));
    assert_eq!((said(retried, "ambit.attempt"), said(retried, "ambit.attempt.kind")), ("2", "retry"));
    assert_eq!((said(last, "gen_ai.operation.name"), said(last, "gen_ai.provider.name")), ("chat", "openai"));
    assert_eq!((said(last, "gen_ai.request.model"), said(last, "server.port")), ("m", port.as_str()));
    assert_eq!((said(last, "gen_ai.usage.input_tokens"), said(last, "gen_ai.usage.output_tokens")), ("31", "7"));
    let get = named(spans, TRACE, "GET")[0];
    assert_eq!((said(get, "url.template"), said(get, "server.address")), ("/tools/look/{id}", "127.0.0.1"));
    // What went out names the span that was then exported.
    for (upstream, name) in [(&house.provider, "chat m"), (&house.tools, "GET")] {
        for span in named(spans, TRACE, name) {
            let header = format!("00-{TRACE}-{}-01", span.id);
            assert!(upstream.arrivals().iter().any(|arrival| arrival.header("traceparent") == Some(header.as_str())), "{span:#?}");
        }
    }
    // No span of the process holds what anybody said.
    let content = ["hi", "Answer.", "done", "key-of-the-provider"];
    let spoken = |value: &String| content.contains(&value.as_str());
    assert!(!spans.iter().any(|span| span.attributes.values().any(spoken)));
}

#[tokio::test]
async fn over_http_a_receiver_gets_the_whole_tree() {
    let receiver = Receiver::start().await;
    all_three(&receiver, "http/protobuf", &receiver.http()).await;
}

#[tokio::test]
async fn over_grpc_a_receiver_gets_the_whole_tree() {
    let receiver = Receiver::start().await;
    all_three(&receiver, "grpc", &receiver.grpc()).await;
}

#[tokio::test]
async fn one_session_of_the_command_line_is_a_tree_of_its_own() {
    let receiver = Receiver::start().await;
    let (launch, _provider, _tools) = Setup::new("ok").furnish().await;
    let launch = launch.env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.http());
    let end = launch.run(&["run", "clerk", "hi", "--json"]).await;
    let session: Value = serde_json::from_str(&end.assert_code(0).stdout).unwrap();
    let tree = "INTERNAL invoke_agent clerk\n  INTERNAL ambit.model_call default\n    CLIENT chat m";
    let spans = receiver.draws(session["trace_id"].as_str().unwrap(), tree).await;
    assert!(spans.iter().any(|span| span.parent.is_empty()));
}

#[tokio::test]
async fn a_session_that_is_taken_up_goes_on_in_its_trace() {
    let receiver = Receiver::start().await;
    let call = Call::new("look", &json!({"id": "r1"})).id("r1");
    let chat = Script::new([Act::calls([call]), Act::text("done")]).by_turn();
    let setup = Setup::new(chat).read("look", Act::json(json!(1)).held());
    let house = with_env(setup, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.http()), ("OTEL_BSP_SCHEDULE_DELAY", "50")]).await;
    let request = house.api.session(&House::request("hi")).header("prefer", "respond-async").header("traceparent", traceparent("01"));
    let id = house.api.send(request).await.assert_status(202).json()["id"].as_str().unwrap().to_owned();
    house.tools.wait_for("the tool to be asked", |seen| seen.in_flight == 1).await;
    receiver.wait_for("what was over before", |spans| named(spans, TRACE, "ambit.model_call default").len() == 1).await;
    let House { launch, provider, tools, ambit, .. } = house;
    assert_unhurt(&ambit.crash().await.stderr);
    tools.release();
    let ambit = launch.serve().await;
    let house = House { launch, provider, tools, api: Api::of(&ambit), ambit };
    within("the session to be taken over", async {
        while house.verdict(&id).await["verdict_at"].is_null() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    // The tool call of before died with its process; the one of after has the same place in the tree.
    let tree = "
SERVER POST /v1/sessions
  INTERNAL invoke_agent clerk [resumed]
    INTERNAL ambit.model_call default
      CLIENT chat m
    INTERNAL execute_tool look
      CLIENT GET
    INTERNAL ambit.model_call default
      CLIENT chat m
";
    let spans = receiver.draws(TRACE, tree).await;
    let (before, all) = (named(&spans, TRACE, "ambit.model_call default"), named(&spans, TRACE, "invoke_agent clerk")[0]);
    assert!(before.iter().all(|call| all.time.0 <= call.time.0 + 1_000_000), "the session's span begins where the session did");
    house.close().await;
}

#[tokio::test]
async fn without_an_endpoint_the_callers_trace_is_passed_on_and_baggage_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (play, seen) = (folder.path().join("play.json"), folder.path().join("seen.jsonl"));
    let server = json!({
        "server": "depot",
        "tools": [{"name": "level", "description": "How full it is.", "inputSchema": {"type": "object"}}],
        "on_call": {"level": {"content": [{"type": "text", "text": "41 crates"}]}},
        "record": seen,
    });
    std::fs::write(&play, server.to_string()).unwrap();
    let config = format!(
        "[default.mcp.depot]\ncommand = {:?}\nargs = [{:?}]\nallow = [\"*\"]\n[default.mcp.depot.tools.level]\neffect = \"read\"\n",
        env!("CARGO_BIN_EXE_ambit-fake-mcp"),
        play.display().to_string(),
    );
    let calls = [Call::new("look", &json!({"id": "r1"})).id("r1"), Call::new("*level", &json!({})).id("r2")];
    let setup = Setup::new(Script::new([Act::calls(calls), Act::text("done")]).by_turn());
    let house = setup.read("look", Act::json(json!(1))).offer("depot", &config).set("telemetry.log.level", "debug").serve().await;
    for flags in ["01", "00"] {
        let request = house.api.session(&House::request("hi")).header("traceparent", traceparent(flags));
        let request = request.header("tracestate", "rojo=1, congo=t61").header("baggage", "user=ada");
        let answer = house.api.send(request).await;
        assert_end(&answer.assert_status(200).json(), "completed", "answered");
        let expected = traceparent(flags);
        assert_eq!(answer.header("traceparent"), Some(expected.as_str()));
        let (model, tool) = (house.provider.arrivals(), house.tools.arrivals());
        for arrival in [model.last().unwrap(), tool.last().unwrap()] {
            assert_eq!(arrival.header("traceparent"), Some(expected.as_str()), "{}", arrival.target);
            assert_eq!(arrival.header("tracestate"), Some("rojo=1, congo=t61"), "{}", arrival.target);
            assert_eq!(arrival.header("baggage"), None, "{}", arrival.target);
        }
        let told = std::fs::read_to_string(&seen).unwrap();
        let call = told.lines().rev().find(|line| line.contains("tools/call")).unwrap();
        let meta = serde_json::from_str::<Value>(call).unwrap()["params"]["_meta"].clone();
        assert_eq!((&meta["traceparent"], &meta["tracestate"]), (&json!(expected), &json!("rojo=1, congo=t61")), "{call}");
        assert!(!told.contains("ada"), "baggage goes to nobody");
    }
    let log = house.ambit.stderr();
    let of_the_trace = log.lines().filter(|line| line.contains(&format!("\"trace_id\":\"{TRACE}\""))).count();
    assert!(of_the_trace >= 4, "the log names the trace:\n{log}");
    assert!(!house.api.metrics().await.names().is_empty());
    assert_eq!(house.api.metrics().await.count("ambit_telemetry_spans_exported_total", &[]), 0);
    house.close().await;
}

#[tokio::test]
async fn what_is_malformed_is_as_if_it_were_not_there() {
    let house = Setup::new(Script::new([Act::text("ok"), Act::text("ok"), Act::text("ok")])).serve().await;
    let mut traces = Vec::new();
    for wrong in [None, Some("00-xyz-01"), Some("00-00000000000000000000000000000000-00f067aa0ba902b7-01")] {
        let mut request = house.api.session(&House::request("hi")).header("tracestate", "rojo=1");
        if let Some(wrong) = wrong {
            request = request.header("traceparent", wrong);
        }
        let answer = house.api.send(request).await;
        let trace = answer.assert_status(200).json()["trace_id"].as_str().unwrap().to_owned();
        let arrival = house.provider.arrivals().pop().unwrap();
        assert_eq!(&arrival.header("traceparent").unwrap()[3..35], trace);
        assert_eq!(arrival.header("tracestate"), None, "a state without a parent is nobody's");
        assert_eq!(&answer.header("traceparent").unwrap()[3..35], trace);
        traces.push(trace);
    }
    traces.dedup();
    assert_eq!(traces.len(), 3);
    // Every answer says where it stands, also a refusal.
    assert!(house.api.get("/v1/nothing").await.header("traceparent").is_some());
    assert!(house.api.get_admin("/livez").await.header("traceparent").is_some());
    house.close().await;
}

#[tokio::test]
async fn the_callers_decision_is_respected_where_the_sampler_says_so() {
    let receiver = Receiver::start().await;
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.http()), ("OTEL_BSP_SCHEDULE_DELAY", "50".into())];
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let house = with_env(Setup::new(Script::new([Act::text("ok"), Act::text("ok")])), &env).await;
    let request = house.api.session(&House::request("hi")).header("traceparent", traceparent("00"));
    let answer = house.api.send(request).await;
    assert_eq!(answer.assert_status(200).header("traceparent"), Some(traceparent("00").as_str()));
    assert_eq!(house.provider.arrivals()[0].header("traceparent"), Some(traceparent("00").as_str()), "no span of ours is named");
    // One that is recorded comes through, so that the other would have.
    let other = house.answer("hi").await.json()["trace_id"].as_str().unwrap().to_owned();
    let spans = receiver.wait_for("the other", |spans| !named(spans, &other, "invoke_agent clerk").is_empty()).await;
    assert!(named(&spans, TRACE, "invoke_agent clerk").is_empty());
    house.close().await;
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_a_counter() {
    let refused = Upstream::refused();
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", refused.url("")), ("OTEL_BSP_SCHEDULE_DELAY", "20".into())];
    let mut env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    env.push(("OTEL_EXPORTER_OTLP_TIMEOUT", "200"));
    let house = with_env(Setup::new("ok"), &env).await;
    assert_end(&house.session("hi").await, "completed", "answered");
    within("the drops to be counted", async {
        while house.api.metrics().await.count("ambit_telemetry_spans_dropped_total", &[("reason", "export_failed")]) < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_quiet(&house.api).await;
    let warned = house.ambit.stderr().matches("spans cannot be exported").count();
    assert_eq!(warned, 1, "told once, not with every export");
    house.close().await;
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_up_neither_work_nor_end() {
    let silent = Upstream::builder().route("traces", "/v1/traces", Act::silent()).start().await;
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", silent.url("")), ("OTEL_BSP_SCHEDULE_DELAY", "20".into())];
    let mut env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    env.extend([("OTEL_BSP_MAX_QUEUE_SIZE", "4"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")]);
    let house = with_env(Setup::new("ok"), &env).await;
    silent.wait_for("nothing", |seen| seen.calls == 0).await;
    assert_end(&house.session("hi").await, "completed", "answered");
    silent.wait_for("the first export", |seen| seen.calls >= 1).await;
    for _ in 0..4 {
        assert_end(&house.session("hi").await, "completed", "answered");
    }
    let full = house.api.metrics().await.count("ambit_telemetry_spans_dropped_total", &[("reason", "queue_full")]);
    assert!(full >= 8, "one batch is out, one waits, the rest is dropped: {full}");
    assert_quiet(&house.api).await;
    let end = house.ambit.terminate().await;
    end.assert_code(0).assert_stderr("before its last spans were exported");
    assert_unhurt(&end.stderr);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_at_the_start() {
    let (launch, _provider, _tools) = Setup::new("ok").furnish().await;
    let launch = launch.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318").env("OTEL_TRACES_SAMPLER", "xray");
    let end = launch.run(&["serve"]).await;
    // Both at once.
    end.assert_code(78).assert_stderr("OTEL_EXPORTER_OTLP_ENDPOINT").assert_stderr("OTEL_TRACES_SAMPLER").assert_stderr("always_on");
}

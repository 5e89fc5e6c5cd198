//! The client's readers, against answers that are right and answers that are subtly wrong.

use ambit_tests::client::{Api, Event, Metrics, Parser, spelled};
use ambit_tests::quiet;
use ambit_tests::upstream::{Act, Upstream};
use serde_json::{Value, json};

fn events(pieces: &[&str]) -> Vec<Event> {
    let mut parser = Parser::default();
    pieces.iter().flat_map(|piece| parser.feed(piece.as_bytes())).collect()
}

#[test]
fn events_are_read_whatever_the_line_ends_and_the_cuts() {
    let event = |id: Option<&str>, kind: Option<&str>, data: &str| Event {
        id: id.map(str::to_owned),
        kind: kind.map(str::to_owned),
        data: data.to_owned(),
    };
    let two = || vec![event(Some("1"), Some("a"), "x\ny"), event(None, None, "z")];
    let text = "id: 1\nevent: a\ndata: x\ndata: y\n\ndata:z\n\n";
    assert_eq!(events(&[text]), two());
    assert_eq!(events(&[&text.replace('\n', "\r\n")]), two());
    assert_eq!(events(&[&(text.replace('\n', "\r") + ":")]), two());
    let crlf = text.replace('\n', "\r\n");
    let single: Vec<String> = crlf.chars().map(String::from).collect();
    assert_eq!(events(&single.iter().map(String::as_str).collect::<Vec<_>>()), two());
    assert_eq!(events(&[": ka\ndata: z\n\nretry: 5\n\n"]), vec![event(None, None, "z")]);
}

#[test]
#[should_panic(expected = "a comment is followed by a blank line")]
fn a_keep_alive_that_breaks_clients_is_refused() {
    events(&["id: 1\ndata: x\n\n: ka\n\n"]);
}

fn session_stream(tail: &str) -> Act {
    let delta = |id: u8, text: &str| {
        format!("id: {id}\nevent: output_text.delta\ndata: {}\n\n", json!({"type": "output_text.delta", "data": {"delta": text}}))
    };
    Act::sse([delta(1, "hel"), ": ka\n".to_owned(), delta(2, "lo"), tail.to_owned()])
        .header("cache-control", "no-cache, no-transform")
        .header("x-accel-buffering", "no")
}

#[tokio::test]
async fn streams_are_read_to_their_one_terminal_event() {
    let fake = Upstream::builder().route("s", "/v1/sessions", session_stream("event: session.completed\ndata: {}\n\n")).start().await;
    let api = Api::at(&fake.url(""), &fake.url(""));
    let mut stream = api.stream(api.session(&json!({}))).await.events().await;
    let events = stream.to_verdict().await;
    assert_eq!(spelled(&events), "hello");
    assert_eq!((events.len(), stream.comments()), (3, 1));
    assert!(stream.raw().ends_with(b"data: {}\n\n"));
}

#[tokio::test]
#[should_panic(expected = "exactly one terminal event")]
async fn a_stream_without_a_terminal_event_fails() {
    let fake = Upstream::builder().route("s", "/v1/sessions", session_stream("")).start().await;
    let api = Api::at(&fake.url(""), &fake.url(""));
    api.stream(api.session(&json!({}))).await.events().await.to_verdict().await;
}

fn problem() -> (Act, Value) {
    let body = json!({"type": "https://x/problems/bulkhead-full", "title": "t", "status": 503, "detail": "d", "code": "BULKHEAD_FULL",
        "retryable": true, "retry_after_ms": 1500, "request_id": "r", "error": {"message": "m"}});
    let act = Act::json(body.clone())
        .status(503)
        .header("content-type", "application/problem+json")
        .header("x-should-retry", "true")
        .header("x-request-id", "r")
        .header("retry-after", "2");
    (act, body)
}

async fn assert_problem(act: Act) -> Value {
    let fake = Upstream::builder().route("p", "/p", act).start().await;
    Api::at(&fake.url(""), "").get("/p").await.assert_problem(503, "BULKHEAD_FULL")
}

#[tokio::test]
async fn a_problem_in_good_form_passes() {
    let (act, body) = problem();
    assert_eq!(assert_problem(act).await, body);
}

#[tokio::test]
#[should_panic(expected = "x-should-retry")]
async fn a_problem_that_contradicts_its_headers_fails() {
    let (act, _) = problem();
    assert_problem(act.header("x-should-retry", "false")).await;
}

#[tokio::test]
#[should_panic(expected = "Retry-After")]
async fn a_problem_that_rounds_retry_after_down_fails() {
    let (act, _) = problem();
    assert_problem(act.header("retry-after", "1")).await;
}

const QUIET: &str = r#"# HELP ambit_sessions_in_flight x
# TYPE ambit_sessions_in_flight gauge
ambit_sessions_in_flight{agent="a"} 0
ambit_bulkhead_permits{pool="m",state="limit"} 8
ambit_bulkhead_permits{pool="m",state="in_use"} 0
ambit_bulkhead_permits{pool="m",state="sleeping"} 0
ambit_bulkhead_queue_length{pool="m"} 0
"#;

#[test]
fn metrics_are_read_and_summed() {
    let metrics = Metrics::parse(&format!("{QUIET}x_total{{a=\"q\\\"\\\\\\n\",b=\"\"}} 2\nx_total{{a=\"r\"}} 1.5e0\ny +Inf\n"));
    assert_eq!(metrics.sum("x_total", &[]), Some(3.5));
    assert_eq!(metrics.sum("x_total", &[("a", "q\"\\\n"), ("b", "")]), Some(2.0));
    assert_eq!(metrics.sum("x_total", &[("a", "z")]), None);
    assert_eq!(metrics.sum("y", &[]), Some(f64::INFINITY));
    assert_eq!(metrics.count("ambit_bulkhead_permits", &[("state", "limit")]), 8);
    assert_eq!(metrics.names().len(), 5);
}

#[test]
fn what_is_held_is_told_and_absence_is_no_evidence() {
    let held = |text: &str| quiet::held(&Metrics::parse(text)).len();
    assert_eq!(held(QUIET), 0);
    assert_eq!(held(&QUIET.replace("state=\"in_use\"} 0", "state=\"in_use\"} 1")), 1);
    assert_eq!(held(&QUIET.replace("queue_length{pool=\"m\"} 0", "queue_length{pool=\"m\"} 2")), 1);
    assert_eq!(held(""), 4);
}

#[tokio::test]
async fn the_leak_check_waits_for_quiet() {
    let busy = QUIET.replace("in_flight{agent=\"a\"} 0", "in_flight{agent=\"a\"} 1");
    let script = [Act::body(busy.clone()), Act::body(busy), Act::body(QUIET)];
    let fake = Upstream::builder().route("m", "/metrics", script).start().await;
    quiet::assert_quiet(&Api::at("", &fake.url(""))).await;
    assert_eq!(fake.calls(), 3);
}

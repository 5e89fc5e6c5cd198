//! What becomes of a session when its provider misbehaves, and that no more is asked of it than is allowed.

use ambit_tests::client::spelled;
use ambit_tests::upstream::{Act, Call, Halt, Point, Reply, Script, Upstream};
use serde_json::{Value, json};

use crate::house::{House, Setup, assert_end};

/// A script, then what the caller sees: the problem's status, code and cause, or the session's status and reason; and how often
/// the provider was asked.
async fn check(script: impl Into<Script>, expected: &str, calls: usize) {
    let script = script.into();
    let shown = format!("{script:?}");
    let house = Setup::new(script).set("models.primary.attempt", "2s").serve().await;
    let answer = house.answer("hi").await;
    let seen = if answer.status == 200 {
        let session = answer.json();
        format!("200 {}({})", session["status"].as_str().unwrap(), session["reason"].as_str().unwrap())
    } else {
        let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
        let problem = answer.assert_problem(answer.status, &code);
        let cause = problem["cause"].as_str().map(|cause| format!(" {cause}")).unwrap_or_default();
        format!("{} {code}{cause}", answer.status)
    };
    assert_eq!(seen, expected, "{shown}: {}", answer.text());
    assert_eq!(house.provider.calls(), calls, "{shown}");
    house.close().await;
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    const FINE: &str = "200 completed(answered)";
    check("500, ok", FINE, 2).await;
    check("503(ra-ms=20), ok", FINE, 2).await;
    check("429(ra-ms=20), ok", FINE, 2).await;
    check("rst0, ok", FINE, 2).await;
    check("rst1, ok", FINE, 2).await;
    check("garbage, ok", FINE, 2).await;
    check("html, ok", FINE, 2).await;
    check("null, ok", FINE, 2).await;
    check("error, ok", FINE, 2).await;
    check("sil, ok", FINE, 2).await;
    // Nobody reads along while a caller waits: nothing was passed on, so that a broken answer may be had again.
    check("cut, ok", FINE, 2).await;
    // What was said is kept where no whole answer could be had.
    check("cut", "200 incomplete(stream_interrupted)", 2).await;
}

#[tokio::test]
async fn what_does_not_pass_is_told_with_its_cause() {
    check("500", "503 MODEL_UNAVAILABLE unreachable", 2).await;
    check("503", "503 MODEL_UNAVAILABLE overloaded", 2).await;
    check("rst1", "503 MODEL_UNAVAILABLE unreachable", 2).await;
    check("sil", "503 MODEL_UNAVAILABLE unreachable", 2).await;
    check("garbage", "503 MODEL_UNAVAILABLE protocol", 2).await;
    check("html", "503 MODEL_UNAVAILABLE protocol", 2).await;
    check("null", "503 MODEL_UNAVAILABLE protocol", 2).await;
}

#[tokio::test]
async fn what_will_not_pass_is_not_tried_again() {
    check("401", "503 MODEL_UNAVAILABLE auth", 1).await;
    check("402", "503 MODEL_UNAVAILABLE quota", 1).await;
    check("404", "503 MODEL_UNAVAILABLE not_found", 1).await;
    check("400", "400 MODEL_REJECTED", 1).await;
}

#[tokio::test]
async fn a_provider_that_asks_for_an_hour_gets_its_hour() {
    let house = Setup::new("429(ra=3600)").serve().await;
    let answer = house.answer("hi").await;
    let problem = answer.assert_problem(503, "MODEL_UNAVAILABLE");
    assert_eq!((&problem["cause"], &problem["retry_after_ms"]), (&json!("rate_limited"), &json!(3_600_000)));
    assert_eq!((answer.header("retry-after"), answer.header("retry-after-ms")), (Some("60"), Some("3600000")));
    assert_eq!(house.provider.calls(), 1, "no waiting and no shortening");
    house.close().await;
}

#[tokio::test]
async fn a_provider_that_is_not_there() {
    let refused = Upstream::refused();
    let (launch, _provider, _tools) = Setup::new("ok").furnish().await;
    let launch = launch.env("AMBIT_MODELS__PRIMARY__BASE_URL", &refused.base_url());
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    let problem = api.run(&House::request("hi")).await.assert_problem(503, "MODEL_UNAVAILABLE");
    assert_eq!((&problem["cause"], &problem["retryable"]), (&json!("unreachable"), &json!(true)));
    ambit_tests::quiet::assert_quiet(&api).await;
}

#[tokio::test]
async fn the_request_is_what_a_provider_expects() {
    let house = Setup::new("ok").read("look", Act::json(json!(1))).serve().await;
    house.session("How are you?").await;
    let arrival = &house.provider.arrivals()[0];
    let body = arrival.body.as_ref().unwrap();
    assert_eq!(arrival.header("authorization"), Some("Bearer key-of-the-provider"));
    assert_eq!(body["model"], "m");
    assert_eq!((&body["messages"][0]["role"], &body["messages"][0]["content"]), (&json!("system"), &json!("Answer.")));
    assert_eq!((&body["messages"][1]["role"], &body["messages"][1]["content"]), (&json!("user"), &json!("How are you?")));
    assert_eq!(arrival.offered(), ["look"]);
    assert_eq!(body["tools"][0]["function"]["parameters"]["required"], json!(["id"]));
    house.close().await;
}

#[tokio::test]
async fn usage_is_turned_into_money() {
    let house = Setup::new(Act::ok().usage(Some((1_000, 500))))
        .set("models.primary.price.input", "2.0")
        .set("models.primary.price.output", "8.0")
        .serve()
        .await;
    let spent = house.session("hi").await["spent"].clone();
    assert_eq!((&spent["input_tokens"], &spent["output_tokens"], &spent["cost_is_at_least"]), (&json!(1_000), &json!(500), &json!(false)));
    assert!((spent["cost_usd"].as_f64().unwrap() - 0.006).abs() < 1e-9, "{spent}");
    house.close().await;
}

async fn streamed(script: impl Into<Script>) -> (String, Value, House) {
    let house = Setup::new(script).serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    let events = stream.to_verdict().await;
    (spelled(&events), events.last().unwrap().json(), house)
}

#[tokio::test]
async fn a_stream_that_breaks_off_keeps_what_was_said() {
    for halt in [Halt::Reset, Halt::Cut] {
        // The accident waits until the words have come through: a reset may overtake what was sent before it.
        let act = Act::reply(Reply::pieces(["some", "words"])).held_at(Point::Pieces(3)).halting(Point::Pieces(3), halt);
        let house = Setup::new(act).serve().await;
        let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
        let mut events = Vec::new();
        while spelled(&events) != "somewords" {
            events.push(stream.next().await.unwrap());
        }
        house.provider.release();
        events.extend(stream.to_verdict().await);
        let last = events.last().unwrap().json();
        assert_eq!((&last["type"], &last["data"]["reason"]), (&json!("session.incomplete"), &json!("stream_interrupted")), "{halt:?}");
        assert_eq!((spelled(&events).as_str(), &last["data"]["output_text"]), ("somewords", &json!("somewords")), "{halt:?}");
        assert_eq!(house.provider.calls(), 1, "after the first byte nothing is repeated: {halt:?}");
        house.close().await;
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_before_its_first_word_is_asked_again() {
    let broken = Act::ok().halting(Point::Head, Halt::Reset);
    let (text, last, house) = streamed([broken, Act::ok()]).await;
    assert_eq!((text.as_str(), &last["type"], house.provider.calls()), ("ok", &json!("session.completed"), 2));
    house.close().await;
}

#[tokio::test]
async fn streams_are_understood_however_they_are_cut() {
    use ambit_tests::upstream::LineEnd;
    let text = "Größe: ünïcödé 🙂 end";
    for act in [
        Act::text(text).shredded(1),
        Act::text(text).shredded(7).line_end(LineEnd::CrLf),
        Act::text(text).line_end(LineEnd::Cr).shredded(3),
        Act::text(text).without_done(),
        Act::text(text).halting(Point::Sent, Halt::Hang),
    ] {
        let shown = format!("{act:?}");
        let (said, last, house) = streamed(act).await;
        assert_eq!((said.as_str(), &last["type"]), (text, &json!("session.completed")), "{shown}");
        house.close().await;
    }
}

/// Whatever a model asks for, the limits hold, every call has one result, and the end is an answer and no exception.
#[tokio::test]
async fn a_model_that_never_stops_is_stopped() {
    let endless = || Script::from(Act::calls([Call::raw("look", r#"{"id": "x{{n}}"}"#)]));
    // One that does as it is told when its tools are switched off, and one that does not.
    for (script, status) in [(endless().when_tools_are_off(Act::text("in short")), "completed"), (endless(), "incomplete")] {
        let house = Setup::new(script).read("look", Act::json(json!(1))).serve().await;
        let session = house.session("hi").await;
        assert_end(&session, status, "model_calls");
        assert_eq!((&session["spent"]["model_calls"], &session["spent"]["tool_calls"]), (&json!(8), &json!(7)));
        assert_eq!((house.provider.calls(), house.tools.calls()), (8, 7));
        let last = house.provider.arrivals().pop().unwrap().body.unwrap();
        assert_eq!(last["tool_choice"], "none", "the last call is issued with tools switched off");
        assert_eq!(last["tools"].as_array().map(Vec::len), Some(1), "and tools stay declared");
        assert_eq!(house.api.metrics().await.count("ambit_session_limit_hits_total", &[("axis", "model_calls")]), 1);
        house.close().await;
    }
}

#[tokio::test]
async fn a_model_that_repeats_itself_is_told_so() {
    let script = Script::new([Act::call("look", &json!({"id": "same"}))]);
    let house = Setup::new(script).read("look", Act::json(json!("same"))).serve().await;
    let session = house.session("hi").await;
    assert_eq!(session["reason"], "loop", "{session:#}");
    assert_eq!(house.tools.calls(), 3, "the third runs, the fourth is refused");
    assert!(house.told().last().unwrap().1.contains("LOOP_DETECTED"), "{:?}", house.told());
    assert_eq!(house.provider.calls(), 5);
    house.close().await;
}

#[tokio::test]
async fn more_calls_at_once_than_are_left_are_refused_not_lost() {
    let call = |n: u32| Call::new("look", &json!({"id": format!("n{n}")})).id(&format!("c{n}"));
    let script = Script::new([Act::calls((0..14).map(call)), Act::text("end")]);
    let house = Setup::new(script).read("look", Act::json(json!(1))).serve().await;
    let session = house.session("hi").await;
    assert_eq!(house.tools.calls(), 10);
    assert!(house.tools.seen().max_in_flight <= 4, "limits.parallel_tools");
    let told = house.told();
    assert_eq!(told.len(), 14);
    assert_eq!(told.iter().filter(|(_, text)| text.contains("BUDGET_EXHAUSTED")).count(), 4, "{told:?}");
    assert_eq!(session["spent"]["tool_calls"], 10);
    house.close().await;
}

#[tokio::test]
async fn an_empty_answer_is_nudged_once() {
    let empty = || Act::reply(Reply::text(""));
    let house = Setup::new([empty(), Act::text("sorry, here")]).serve().await;
    assert_eq!(house.session("hi").await["output_text"], "sorry, here");
    assert_eq!(house.provider.calls(), 2);
    house.close().await;
    let house = Setup::new([empty(), empty()]).serve().await;
    assert_end(&house.session("hi").await, "incomplete", "empty_response");
    assert_eq!(house.provider.calls(), 2);
    house.close().await;
}

#[tokio::test]
async fn an_answer_cut_by_the_provider_is_incomplete_with_its_text() {
    for (finish, reason) in [("length", "output_truncated"), ("content_filter", "content_filtered")] {
        let house = Setup::new(Act::text("half an answ").finish(Some(finish))).serve().await;
        let session = house.session("hi").await;
        assert_end(&session, "incomplete", reason);
        assert_eq!(session["output_text"], "half an answ");
        house.close().await;
    }
}

#[tokio::test]
async fn a_finish_reason_nobody_knows_is_an_answer_all_the_same() {
    let house = Setup::new(Act::text("fine").finish(Some("eos_token_42"))).serve().await;
    let session = house.session("hi").await;
    assert_eq!((&session["status"], &session["output_text"]), (&json!("completed"), &json!("fine")), "{session:#}");
    house.close().await;
}

#[tokio::test]
async fn a_silent_provider_is_left_at_the_deadline() {
    let mut setup = Setup::new("sil").set("limits.deadline", "4s").set("limits.answer_reserve", "1s");
    for (key, value) in [("request", "2500ms"), ("attempt", "2s"), ("min_useful", "200ms"), ("attempts", "1")] {
        setup = setup.set(&format!("models.primary.{key}"), value);
    }
    // The shipped tools have to fit into the shorter time as well.
    for tool in ["list_files", "read_file", "service_health", "restart_service"] {
        setup = setup.set(&format!("tools.{tool}.timeout"), "2s").set(&format!("tools.{tool}.attempt"), "1s");
    }
    let house = setup.serve().await;
    let answer = house.answer("hi").await;
    assert!(matches!(answer.status, 503 | 504), "{}", answer.text());
    house.provider.wait_for("every call to be left", |seen| seen.in_flight == 0).await;
    assert_eq!(house.provider.aborted(), house.provider.calls());
    house.close().await;
}

#[tokio::test]
async fn an_answer_larger_than_allowed_is_not_read_to_its_end() {
    let house = Setup::new([Act::endless("x"), Act::endless("x")]).set("models.primary.response", "64KiB").serve().await;
    let problem = house.answer("hi").await.assert_problem(503, "MODEL_UNAVAILABLE");
    assert_eq!(problem["cause"], "protocol");
    house.provider.wait_for("every call to be left", |seen| seen.in_flight == 0).await;
    house.close().await;
}

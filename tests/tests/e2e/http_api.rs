//! The API as its contract has it: every way to run a session, every endpoint, every header.

use ambit_tests::client::{Api, Event, spelled};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Call, Reply, Script};
use ambit_tests::within;
use reqwest::Method;
use serde_json::{Value, json};

use crate::house::{AGENT, House, Setup, assert_end, assert_unhurt};

fn kinds(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.kind().to_owned()).collect()
}

#[tokio::test]
async fn a_session_is_answered_whole() {
    let house = Setup::new("ok(hello there)").serve().await;
    let answer = house.answer("hi").await;
    let session = answer.assert_status(200).json();
    assert_end(&session, "completed", "answered");
    assert_eq!(session["output_text"], "hello there");
    assert_eq!(session["output"][0]["content"][0]["text"], "hello there");
    assert_eq!((&session["object"], &session["agent"], &session["error"]), (&json!("session"), &json!(AGENT), &Value::Null));
    assert_eq!((&session["spent"]["model_calls"], &session["spent"]["model_attempts"]), (&json!(1), &json!(1)));
    assert_eq!((&session["spent"]["input_tokens"], &session["spent"]["output_tokens"]), (&json!(10), &json!(5)));
    assert_eq!((&session["settlement"], &session["cause"]), (&json!("none"), &Value::Null));
    let id = session["id"].as_str().unwrap();
    assert!(id.starts_with("ses_"), "{id}");
    assert_eq!(answer.header("ambit-session-id"), Some(id));
    assert_eq!(answer.header("ambit-attempts"), Some("1"));
    for name in ["x-request-id", "ambit-version", "server-timing"] {
        assert!(answer.header(name).is_some_and(|value| !value.is_empty()), "{name} is missing: {:?}", answer.headers);
    }
    let again = house.api.get(&format!("/v1/sessions/{id}")).await.assert_status(200).json();
    assert_eq!((&again["id"], &again["output_text"], &again["spent"]["model_calls"]), (&session["id"], &session["output_text"], &json!(1)));
    let as_response = house.api.get(&format!("/v1/sessions/{}", id.replace("ses_", "resp_"))).await;
    assert_eq!(as_response.assert_status(200).json()["id"], session["id"], "any id finds the session");
    house.close().await;
}

#[tokio::test]
async fn the_callers_request_id_is_kept() {
    let house = Setup::new("ok").serve().await;
    let answer = house.api.send(house.api.session(&House::request("hi")).header("x-request-id", "mine-7")).await;
    assert_eq!(answer.assert_status(200).header("x-request-id"), Some("mine-7"));
    house.close().await;
}

#[tokio::test]
async fn sessions_are_listed_youngest_first_in_pages() {
    let house = Setup::new("ok").serve().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, house.session("hi").await["id"].clone());
    }
    let first = house.api.get("/v1/sessions?limit=2").await.assert_status(200).json();
    let listed: Vec<Value> = first["data"].as_array().unwrap().iter().map(|session| session["id"].clone()).collect();
    assert_eq!((listed.as_slice(), &first["has_more"], &first["object"]), (&ids[..2], &json!(true), &json!("list")));
    let after = first["last_id"].as_str().unwrap();
    let second = house.api.get(&format!("/v1/sessions?limit=2&after={after}")).await.assert_status(200).json();
    assert_eq!((&second["data"][0]["id"], &second["has_more"]), (&ids[2], &json!(false)));
    let none = house.api.get("/v1/sessions?status=failed").await.assert_status(200).json();
    assert_eq!(none["data"], json!([]));
    house.api.get("/v1/sessions?limit=101").await.assert_problem(400, "INVALID_REQUEST");
    house.close().await;
}

#[tokio::test]
async fn a_background_session_is_accepted_and_found_again() {
    let house = Setup::new("held ok(done)").serve().await;
    let request = house.api.session(&House::request("hi")).header("prefer", "respond-async");
    let answer = house.api.send(request).await;
    let session = answer.assert_status(202).json();
    assert_eq!(session["status"], "running");
    assert_eq!(answer.header("preference-applied"), Some("respond-async"));
    let place = answer.header("location").unwrap().to_owned();
    assert_eq!(place, format!("/v1/sessions/{}", session["id"].as_str().unwrap()));
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    house.provider.release();
    let done = house.verdict(session["id"].as_str().unwrap()).await;
    assert_end(&done, "completed", "answered");
    house.close().await;
}

#[tokio::test]
async fn a_wait_that_runs_out_leaves_the_session_running() {
    let house = Setup::new("held ok").serve().await;
    let answer = house.api.send(house.api.session(&House::request("hi")).header("prefer", "wait=1")).await;
    let session = answer.assert_status(202).json();
    assert_eq!(answer.header("preference-applied"), Some("wait"));
    house.provider.release();
    let id = session["id"].as_str().unwrap();
    assert_end(&house.verdict(id).await, "completed", "answered");
    let looked = house.api.request(Method::GET, &format!("/v1/sessions/{id}")).header("prefer", "wait=1");
    assert_eq!(house.api.send(looked).await.assert_status(200).header("preference-applied"), Some("wait"));
    house.close().await;
}

#[tokio::test]
async fn a_stream_is_open_before_the_model_speaks_and_ends_once() {
    let house = Setup::new(Act::reply(Reply::pieces(["one ", "two"])).held()).serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    let first = stream.next().await.unwrap();
    assert_eq!(first.kind(), "session.started");
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    house.provider.release();
    let mut events = vec![first];
    events.extend(stream.to_verdict().await);
    assert_eq!(spelled(&events), "one two");
    let kinds = kinds(&events);
    let place = |kind: &str| kinds.iter().position(|known| known == kind).unwrap_or_else(|| panic!("no {kind} in {kinds:?}"));
    assert!(place("session.started") < place("model.started"));
    assert!(place("model.started") < place("output_text.delta"));
    assert!(place("output_text.delta") < place("model.finished"));
    assert_eq!(kinds.last().map(String::as_str), Some("session.completed"));
    let last = events.last().unwrap().json();
    assert_eq!((&last["type"], &last["data"]["output_text"]), (&json!("session.completed"), &json!("one two")));
    for event in &events {
        let payload = event.json();
        assert_eq!(payload["type"], event.kind());
        for member in ["seq", "session_id", "at", "remaining", "data"] {
            assert!(!payload[member].is_null(), "{member} is missing: {payload}");
        }
    }
    house.close().await;
}

#[tokio::test]
async fn a_stream_resumes_after_any_event() {
    let script = Script::new([Act::call("look", &json!({"id": "1"})), Act::text("a few words")]);
    let house = Setup::new(script).read("look", Act::json(json!({"n": 1}))).serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    let live = stream.to_verdict().await;
    let id = live[0].json()["session_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{id}/events");
    let replay = async |after: Option<&str>| {
        let mut request = house.api.request(Method::GET, &path);
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        house.api.stream(request).await.events().await.to_verdict().await
    };
    let whole = replay(None).await;
    assert_eq!(spelled(&whole), "a few words");
    assert!(kinds(&whole).contains(&"tool.started".to_owned()) && kinds(&whole).contains(&"tool.finished".to_owned()));
    let ids: Vec<&str> = whole.iter().map(|event| event.id.as_deref().unwrap()).collect();
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "every event has an id of its own: {ids:?}");
    for (at, id) in ids.iter().enumerate().take(ids.len() - 1) {
        assert_eq!(kinds(&replay(Some(id)).await), kinds(&whole[at + 1..]), "after {id}");
    }
    let query = house.api.request(Method::GET, &format!("{path}?starting_after={}", ids[0]));
    assert_eq!(house.api.stream(query).await.events().await.to_verdict().await.len(), whole.len() - 1);
    house.close().await;
}

#[tokio::test]
async fn text_is_shown_as_it_arrives_and_resumed_to_the_byte() {
    // Paced, so that live pieces are cut finer than what the journal keeps; no character is one byte.
    let pieces: Vec<String> = (0..24).map(|n| format!("ä{n}€ ")).collect();
    let whole: String = pieces.concat();
    let paced = Act::reply(Reply::pieces(pieces.iter().map(String::as_str))).every(std::time::Duration::from_millis(5));
    let house = Setup::new(Script::new([paced])).serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    let live = stream.to_verdict().await;
    assert_eq!(spelled(&live), whole);
    let deltas = live.iter().filter(|event| event.kind() == "output_text.delta").count();
    assert!(deltas > 2, "the journal's pieces are a quarter of a second long; these came in {deltas}");
    let id = live[0].json()["session_id"].as_str().unwrap().to_owned();
    let facts = |events: &[Event]| kinds(events).into_iter().filter(|kind| kind != "output_text.delta").collect::<Vec<_>>();
    for at in 0..live.len() - 1 {
        let (seen, place) = (&live[..=at], live[at].id.as_deref().unwrap());
        let request = house.api.request(Method::GET, &format!("/v1/sessions/{id}/events")).header("last-event-id", place);
        let rest = house.api.stream(request).await.events().await.to_verdict().await;
        assert_eq!(spelled(seen) + &spelled(&rest), whole, "after {place}");
        assert_eq!([facts(seen), facts(&rest)].concat(), facts(&live), "after {place}");
    }
    house.close().await;
}

#[tokio::test]
async fn two_readers_follow_one_running_session() {
    let house = Setup::new("held ok(shared)").serve().await;
    let started = house.api.send(house.api.session(&House::request("hi")).header("prefer", "respond-async")).await.json();
    let path = format!("/v1/sessions/{}/events", started["id"].as_str().unwrap());
    let mut first = house.api.stream(house.api.request(Method::GET, &path)).await.events().await;
    let mut second = house.api.stream(house.api.request(Method::GET, &path)).await.events().await;
    first.until("session.started").await;
    second.until("session.started").await;
    house.provider.release();
    assert_eq!(spelled(&first.to_verdict().await), "shared");
    assert_eq!(spelled(&second.to_verdict().await), "shared");
    house.close().await;
}

#[tokio::test]
async fn cancelling_stops_the_model_call_and_may_be_repeated() {
    let house = Setup::new("held ok").serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    let id = stream.next().await.unwrap().json()["session_id"].as_str().unwrap().to_owned();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    let path = format!("/v1/sessions/{id}/cancel");
    let cancelled = house.api.send(house.api.request(Method::POST, &path)).await.assert_status(200).json();
    assert_end(&cancelled, "cancelled", "cancelled");
    house.provider.wait_for("the end of the model call", |seen| seen.aborted == 1).await;
    assert_eq!(stream.to_verdict().await.last().unwrap().kind(), "session.cancelled");
    let again = house.api.send(house.api.request(Method::POST, &path)).await.assert_status(200).json();
    assert_eq!(again["status"], "cancelled");
    house.close().await;
}

#[tokio::test]
async fn a_caller_who_leaves_stops_reads_and_model_calls() {
    let house = Setup::new("held ok").serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    let id = stream.next().await.unwrap().json()["session_id"].as_str().unwrap().to_owned();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    drop(stream);
    house.provider.wait_for("the end of the model call", |seen| seen.aborted == 1).await;
    assert_eq!(house.verdict(&id).await["status"], "cancelled");
    house.close().await;
}

#[tokio::test]
async fn a_caller_who_leaves_a_waiting_request_stops_it_too() {
    let house = Setup::new("held ok").serve().await;
    let request = tokio::spawn(house.api.session(&House::request("hi")).send());
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    request.abort();
    house.provider.wait_for("the end of the model call", |seen| seen.aborted == 1).await;
    house.close().await;
}

#[tokio::test]
async fn a_caller_may_leave_a_session_that_is_to_continue() {
    let house = Setup::new("held ok(kept)").serve().await;
    let mut body = House::request("hi");
    body["on_disconnect"] = json!("continue");
    let mut stream = house.api.stream(house.api.session(&body)).await.events().await;
    let id = stream.next().await.unwrap().json()["session_id"].as_str().unwrap().to_owned();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    drop(stream);
    house.provider.release();
    let done = house.verdict(&id).await;
    assert_end(&done, "completed", "answered");
    assert_eq!(done["output_text"], "kept");
    house.close().await;
}

#[tokio::test]
async fn a_caller_may_leave_a_session_in_the_background_that_is_streamed() {
    for in_body in [true, false] {
        let house = Setup::new("held ok(kept)").serve().await;
        let mut body = House::request("hi");
        if in_body {
            body["background"] = json!(true);
        }
        let request = house.api.request(Method::POST, "/v1/sessions").header("accept", "text/event-stream").json(&body);
        let request = if in_body { request } else { request.header("prefer", "respond-async") };
        let mut stream = house.api.stream(request).await.events().await;
        let id = stream.next().await.unwrap().json()["session_id"].as_str().unwrap().to_owned();
        house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
        drop(stream);
        house.provider.release();
        assert_end(&house.verdict(&id).await, "completed", "answered");
        house.close().await;
    }
}

#[tokio::test]
async fn a_write_that_was_sent_is_awaited_although_the_caller_left() {
    let script = Script::new([Act::call("pay", &json!({"id": "1"})), Act::text("paid")]);
    let house = Setup::new(script).write("pay", Act::json(json!({"ok": true})).held()).serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("pay"))).await.events().await;
    let id = stream.next().await.unwrap().json()["session_id"].as_str().unwrap().to_owned();
    house.tools.wait_for("the write", |seen| seen.in_flight == 1).await;
    drop(stream);
    house.tools.release();
    house.tools.wait_for("its end", |seen| seen.finished == 1).await;
    let session = house.verdict(&id).await;
    assert_eq!((house.tools.aborted(), &session["effects"]["done"]), (0, &json!(1)), "{session:#}");
    house.close().await;
}

#[tokio::test]
async fn what_comes_after_the_verdict_can_be_followed() {
    let script = Script::new([Act::call("pay", &json!({"id": "1"})), Act::text("paid")]);
    let house = Setup::new(script).write("pay", Act::json(json!({"ok": true})).held()).serve().await;
    let started = house.api.send(house.api.session(&House::request("pay")).header("prefer", "respond-async")).await.json();
    let path = format!("/v1/sessions/{}", started["id"].as_str().unwrap());
    let follow = house.api.request(Method::GET, &format!("{path}/events?settlement=true"));
    let mut stream = house.api.stream(follow).await.events().await;
    house.tools.wait_for("the write", |seen| seen.in_flight == 1).await;
    let cancelled = house.api.send(house.api.request(Method::POST, &format!("{path}/cancel"))).await.assert_status(200).json();
    assert_end(&cancelled, "cancelled", "cancelled");
    assert_eq!((&cancelled["settlement"], &cancelled["effects"]["pending"]), (&json!("pending"), &json!(1)), "a write is never dropped");
    stream.until("session.cancelled").await;
    house.tools.release();
    let mut after = Vec::new();
    while let Some(event) = stream.next().await {
        after.push(event.kind().to_owned());
    }
    assert_eq!(after, ["tool.finished", "settlement.settled"]);
    let closed = house.api.get(&path).await.assert_status(200).json();
    assert_eq!((&closed["status"], &closed["settlement"]), (&json!("cancelled"), &json!("settled")), "the verdict never changes");
    assert_eq!(closed["effects"]["done"], 1);
    house.close().await;
}

#[tokio::test]
async fn a_session_is_cancelled_from_another_process() {
    let house = Setup::new("held ok").serve().await;
    let second = house.launch.serve().await;
    let elsewhere = Api::of(&second);
    let started = house.api.send(house.api.session(&House::request("hi")).header("prefer", "respond-async")).await.json();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    let path = format!("/v1/sessions/{}/cancel", started["id"].as_str().unwrap());
    elsewhere.send(elsewhere.request(Method::POST, &path)).await.assert_status(200);
    house.provider.wait_for("the end of the model call", |seen| seen.aborted == 1).await;
    assert_eq!(house.verdict(started["id"].as_str().unwrap()).await["status"], "cancelled");
    assert_quiet(&elsewhere).await;
    second.terminate().await.assert_code(0);
    house.close().await;
}

#[tokio::test]
async fn the_smallest_deadline_wins_and_is_passed_on() {
    let script = Script::new([Act::call("look", &json!({"id": "1"})), Act::ok()]);
    let house = Setup::new(script).read("look", Act::json(json!(1))).serve().await;
    let request = house.api.session(&House::request("hi")).header("x-request-timeout-ms", "25000").header("grpc-timeout", "20S");
    let answer = house.api.send(request).await;
    let session = answer.assert_status(200).json();
    assert_eq!(answer.header("ambit-deadline-source"), Some("grpc-timeout"));
    assert_eq!(session["limits"]["deadline_ms"], 20_000);
    for arrival in house.provider.arrivals().iter().chain(&house.tools.arrivals()) {
        let left: u64 = arrival.header("x-request-timeout-ms").unwrap().parse().unwrap();
        assert!(left < 20_000, "{left} ms is more than the caller gave");
        assert!(arrival.header("x-request-deadline").is_some());
    }
    house.close().await;
}

#[tokio::test]
async fn deadlines_that_are_past_or_unreadable() {
    let house = Setup::new("ok").serve().await;
    for (name, value, status, code) in [
        ("x-request-timeout-ms", "0", 504, "DEADLINE_EXCEEDED"),
        ("x-request-timeout-ms", "-5", 504, "DEADLINE_EXCEEDED"),
        ("x-request-deadline", "2020-01-01T00:00:00Z", 504, "DEADLINE_EXCEEDED"),
        ("x-request-deadline", "soon", 400, "INVALID_REQUEST"),
        ("x-request-timeout-ms", "unlimited", 400, "INVALID_REQUEST"),
        ("grpc-timeout", "5", 400, "INVALID_REQUEST"),
    ] {
        let answer = house.api.send(house.api.session(&House::request("hi")).header(name, value)).await;
        answer.assert_problem(status, code);
    }
    assert_eq!(house.provider.calls(), 0, "nothing was sent for any of them");
    house.close().await;
}

#[tokio::test]
async fn saturation_is_answered_at_once_and_says_whose_limit() {
    let house = Setup::new("held ok").set("models.primary.bulkhead.permits", "1").serve().await;
    let first = tokio::spawn({
        let api = house.api.clone();
        async move { api.run(&House::request("first")).await }
    });
    house.provider.wait_for("the first model call", |seen| seen.in_flight == 1).await;
    let refused = house.answer("second").await;
    let problem = refused.assert_problem(503, "SATURATED");
    assert!(problem["retry_after_ms"].as_u64().is_some() && problem["detail"].as_str().unwrap().contains('1'), "{problem}");
    house.provider.release();
    assert_eq!(within("the first answer", first).await.unwrap().status, 200);
    assert_end(&house.session("third").await, "completed", "answered");
    assert_eq!((house.provider.calls(), house.provider.seen().max_in_flight), (2, 1));
    assert!(house.api.metrics().await.count("ambit_resilience_saturated_total", &[]) >= 1);
    house.close().await;
}

#[tokio::test]
async fn more_sessions_than_may_run_are_shed() {
    let house = Setup::new("held ok").set("server.max_in_flight", "1").serve().await;
    let started = house.api.send(house.api.session(&House::request("hi")).header("prefer", "respond-async")).await.json();
    house.answer("second").await.assert_problem(503, "OVERLOADED");
    assert_eq!(house.api.get("/livez").await.status, 200, "health is never shed");
    house.provider.release();
    house.verdict(started["id"].as_str().unwrap()).await;
    house.close().await;
}

#[tokio::test]
async fn what_is_configured_can_be_seen_without_secrets() {
    let house = Setup::new("ok").read("look", Act::json(json!(1))).serve().await;
    let agents = house.api.get("/v1/agents").await.assert_status(200).text();
    assert!(agents.contains(AGENT), "{agents}");
    let agent = house.api.get(&format!("/v1/agents/{AGENT}")).await.assert_status(200).json();
    assert!(agent.to_string().contains("look"), "{agent}");
    house.api.get("/v1/agents/nobody").await.assert_problem(404, "AGENT_NOT_FOUND");
    assert!(house.api.get("/v1/tools").await.assert_status(200).text().contains("look"));
    let profiles = house.api.get("/v1/profiles").await.assert_status(200).text();
    assert!(profiles.contains("default"), "{profiles}");
    for path in ["/v1/agents", "/v1/tools", "/v1/profiles", "/version"] {
        let text = house.api.get(path).await.text();
        assert!(!text.contains("key-of-the-provider"), "{path} shows the key");
    }
    assert!(house.api.get("/version").await.assert_status(200).json()["version"].is_string());
    house.close().await;
}

#[tokio::test]
async fn every_endpoint_is_described_and_lives_where_it_belongs() {
    let house = Setup::new("ok").serve().await;
    let document = house.api.get("/openapi.json").await.assert_status(200).json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for (path, method) in [
        ("/v1/sessions", "post"),
        ("/v1/sessions", "get"),
        ("/v1/sessions/{id}", "get"),
        ("/v1/sessions/{id}/events", "get"),
        ("/v1/sessions/{id}/cancel", "post"),
        ("/v1/agents", "get"),
        ("/v1/agents/{name}", "get"),
        ("/v1/tools", "get"),
        ("/v1/profiles", "get"),
        ("/livez", "get"),
        ("/readyz", "get"),
        ("/version", "get"),
    ] {
        assert!(document["paths"][path][method].is_object(), "{method} {path} is not in /openapi.json");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(house.api.get(path).await.status, 200);
        assert_eq!(house.api.get_admin(path).await.status, 200);
    }
    assert_eq!(house.api.get("/metrics").await.status, 404, "metrics are on the admin listener only");
    assert_eq!(house.api.get_admin("/v1/sessions").await.status, 404, "sessions are on the API listener only");
    house.close().await;
}

/// A web page in somebody's browser must not reach a server that asks nobody for a key.
#[tokio::test]
async fn only_a_loopback_name_and_no_foreign_origin_pass() {
    let house = Setup::new("ok").serve().await;
    let origin = house.ambit.url().to_owned();
    for (name, value, status) in [
        ("host", "evil.example", 403),
        ("host", "localhost.evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("host", "localhost", 200),
        ("origin", origin.as_str(), 200),
    ] {
        let answer = house.api.send(house.api.session(&House::request("hi")).header(name, value)).await;
        if status == 200 {
            answer.assert_status(200);
        } else {
            answer.assert_problem(403, "FORBIDDEN");
        }
    }
    assert_eq!(house.provider.calls(), 2);
    house.close().await;
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_finishes_what_it_began() {
    let mut house = Setup::new("held ok(finished)").serve().await;
    let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
    stream.next().await.unwrap();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    house.ambit.process().terminate();
    let mut ready = 200;
    within("readiness to go first", async {
        while ready == 200 {
            ready = house.api.get("/readyz").await.status;
        }
    })
    .await;
    assert_eq!((ready, house.api.get("/livez").await.status), (503, 200));
    house.answer("late").await.assert_problem(503, "SHUTTING_DOWN");
    house.provider.release();
    let events = stream.to_verdict().await;
    assert_eq!((spelled(&events).as_str(), events.last().unwrap().kind()), ("finished", "session.completed"));
    let end = house.ambit.terminate().await;
    end.assert_code(0);
    assert_unhurt(&end.stderr);
}

/// What people, models and tools say is theirs: no log line above DEBUG, no metric and no error of ours repeats it.
#[tokio::test]
async fn nothing_that_was_said_is_logged_or_counted() {
    const SAID: [&str; 5] = ["said-by-the-caller", "said-by-the-model", "said-to-the-tool", "said-by-the-tool", "key-of-the-provider"];
    let ask = || Act::call("look", &json!({"id": SAID[2]}));
    for (script, tool) in [
        (Script::new([ask(), Act::text(SAID[1])]), Act::json(json!({"found": SAID[3]}))),
        (Script::new([ask(), Act::body(SAID[1])]), Act::error(500).header("x-hint", SAID[3])),
        (Script::new([Act::calls([Call::raw("look", &format!("{{{}", SAID[2]))]), Act::text(SAID[1])]), Act::garbage()),
        (Script::new([Act::json(json!({"error": {"message": SAID[1]}})).status(400)]), Act::ok()),
    ] {
        let house = Setup::new(script).read("look", tool).serve().await;
        house.answer(SAID[0]).await;
        assert_quiet(&house.api).await;
        let metrics = house.api.get_admin("/metrics").await.text();
        let House { ambit, .. } = house;
        let log = ambit.terminate().await.stderr;
        assert!(log.contains("session ended"), "the log says something at all: {log}");
        for said in SAID {
            assert!(!log.contains(said) && !metrics.contains(said), "`{said}` is in log or metrics:\n{log}");
        }
    }
}

/// What an operator's dashboards will stand on.
#[tokio::test]
async fn every_metric_of_a_session_is_there() {
    let script = Script::new([Act::call("look", &json!({"id": "1"})), Act::error(500), Act::text("end")]);
    let house = Setup::new(script).read("look", Act::json(json!(1))).serve().await;
    house.session("hi").await;
    let metrics = house.api.metrics().await;
    for name in [
        "ambit_build_info",
        "ambit_sessions_total",
        "ambit_session_duration_seconds_count",
        "ambit_sessions_in_flight",
        "ambit_session_overhead_seconds_count",
        "ambit_session_model_calls_count",
        "ambit_session_tool_calls_count",
        "ambit_session_limit_hits_total",
        "ambit_session_limit_remaining_ratio_count",
        "ambit_session_deadline_overrun_seconds_count",
        "ambit_resilience_retries_total",
        "ambit_resilience_saturated_total",
        "ambit_model_bulkhead_wait_seconds_count",
        "ambit_bulkhead_permits",
        "ambit_bulkhead_queue_length",
        "ambit_model_calls_total",
        "ambit_model_attempts_total",
        "ambit_model_call_duration_seconds_count",
        "ambit_model_time_to_first_token_seconds_count",
        "ambit_model_tokens_total",
        "ambit_tool_calls_total",
        "ambit_tool_call_duration_seconds_count",
        "ambit_http_requests_total",
        "ambit_store_op_seconds_count",
    ] {
        assert!(metrics.sum(name, &[]).is_some(), "{name} is not in /metrics: {:#?}", metrics.names());
    }
    assert_eq!(metrics.count("ambit_model_calls_total", &[]), 2);
    assert_eq!(metrics.count("ambit_model_attempts_total", &[]), 3);
    assert_eq!(metrics.count("ambit_model_attempts_total", &[("kind", "retry")]), 1);
    assert_eq!(metrics.count("ambit_resilience_retries_total", &[]), 1);
    for sample in &metrics.samples {
        for label in sample.labels.keys() {
            assert!(!matches!(label.as_str(), "session" | "session_id" | "user" | "principal"), "{sample:?} would grow without bound");
        }
    }
    house.close().await;
}

#[tokio::test]
async fn many_sessions_at_once_leave_nothing_behind() {
    let script = Script::new([Act::call("look", &json!({"id": "1"})), Act::text("end")]).by_turn();
    let house = Setup::new(script).read("look", Act::json(json!(1))).set("models.primary.bulkhead.permits", "32").serve().await;
    let one = |api: Api| tokio::spawn(async move { api.run(&House::request("hi")).await.assert_status(200).json() });
    let all: Vec<_> = (0..32).map(|_| one(house.api.clone())).collect();
    for task in all {
        assert_end(&within("an answer", task).await.unwrap(), "completed", "answered");
    }
    assert_eq!((house.provider.calls(), house.tools.calls()), (64, 32));
    let metrics = house.api.metrics().await;
    assert_eq!(metrics.count("ambit_sessions_total", &[("agent", AGENT), ("status", "completed"), ("reason", "answered")]), 32);
    assert_eq!(metrics.count("ambit_model_calls_total", &[]), 64);
    assert_eq!(metrics.count("ambit_tool_calls_total", &[("tool", "look")]), 32);
    house.close().await;
}

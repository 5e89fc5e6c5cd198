//! Asking again, and going on: what is kept of a request and of a session, over repetitions, crashes and restarts.

use std::collections::BTreeSet;

use ambit_tests::client::{Answer, Api, Event, spelled};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Call, Reply, Script};
use ambit_tests::within;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::house::{AGENT, House, Setup, assert_end, assert_unhurt};

/// Requests of the test that asks many times at once.
const MANY: usize = 50;

fn keyed(api: &Api, key: &str, input: &str) -> RequestBuilder {
    api.session(&House::request(input)).header("idempotency-key", key)
}

fn next(input: &str, previous: &Value) -> Value {
    json!({"agent": AGENT, "input": input, "previous_session_id": previous["id"]})
}

async fn sessions(api: &Api) -> Vec<Value> {
    api.get("/v1/sessions?limit=100").await.assert_status(200).json()["data"].as_array().unwrap().clone()
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

/// What the model was sent last: each message as its role and text.
fn heard(house: &House) -> Vec<(String, String)> {
    let arrivals = house.provider.arrivals();
    let messages = arrivals.last().unwrap().body.as_ref().unwrap()["messages"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).filter(|(role, _)| role != "system").collect()
}

fn said(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn a_request_that_is_asked_again_is_answered_again() {
    let house = Setup::new(["first", "second"].map(Act::text)).serve().await;
    let first = house.api.send(keyed(&house.api, "k1", "hi")).await;
    let session = first.assert_status(200).json();
    assert!(!replayed(&first));
    // Quoted or bare, members in any order, whatever the headers say of time: the same request.
    let body = format!("{{ \"input\": \"h\\u0069\", \"agent\": {AGENT:?} }}");
    let request = house.api.request(Method::POST, "/v1/sessions").header("content-type", "application/json").body(body);
    for again in [keyed(&house.api, "k1", "hi"), request.header("idempotency-key", "\"k1\"").header("x-request-timeout-ms", "20000")] {
        let answer = house.api.send(again).await;
        assert_eq!(answer.assert_status(200).json(), session);
        assert!(replayed(&answer));
        assert_eq!(answer.header("ambit-session-id"), session["id"].as_str());
    }
    assert_eq!((house.provider.calls(), sessions(&house.api).await.len()), (1, 1));
    house.api.send(keyed(&house.api, "k1", "ho")).await.assert_problem(422, "IDEMPOTENCY_KEY_REUSED");
    let other = house.api.send(keyed(&house.api, "k2", "hi")).await;
    assert_eq!(other.assert_status(200).json()["output_text"], "second");
    let metrics = house.api.metrics().await;
    for (outcome, times) in [("acquired", 2.0), ("replay", 2.0), ("conflict", 1.0), ("in_flight", 0.0)] {
        assert_eq!(metrics.sum("ambit_idempotency_total", &[("outcome", outcome)]), Some(times), "{outcome}");
    }
    house.close().await;
}

#[tokio::test]
async fn what_is_no_key_is_refused() {
    let house = Setup::new("ok").serve().await;
    let twice = house.api.session(&House::request("hi")).header("idempotency-key", "a").header("idempotency-key", "a");
    let long = keyed(&house.api, &"x".repeat(256), "hi");
    let open = keyed(&house.api, "\"open", "hi");
    for request in [twice, long, open] {
        let problem = house.api.send(request).await.assert_problem(400, "INVALID_REQUEST");
        assert_eq!(problem["errors"][0]["pointer"], "idempotency-key", "{problem:#}");
    }
    assert_eq!(house.provider.calls(), 0);
    house.close().await;
}

#[tokio::test]
async fn of_many_equal_requests_at_once_one_runs() {
    let house = Setup::new("held ok(once)").serve().await;
    let mut asked = JoinSet::new();
    for _ in 0..MANY {
        let api = house.api.clone();
        asked.spawn(async move { api.send(keyed(&api, "k", "hi")).await });
    }
    // All but the one that runs are answered while the model is held back.
    for _ in 1..MANY {
        let answer = within("a refusal", asked.join_next()).await.unwrap().unwrap();
        let problem = answer.assert_problem(409, "IDEMPOTENCY_IN_PROGRESS");
        let left = problem["retry_after_ms"].as_u64().unwrap();
        assert!((1..=30_000).contains(&left), "what remains of the session: {problem:#}");
        assert_eq!(answer.header("x-should-retry"), Some("true"));
    }
    house.provider.release();
    let answer = within("the answer", asked.join_next()).await.unwrap().unwrap();
    assert_end(&answer.assert_status(200).json(), "completed", "answered");
    assert_eq!((house.provider.calls(), sessions(&house.api).await.len()), (1, 1));
    house.close().await;
}

#[tokio::test]
async fn two_servers_on_one_file_agree_on_who_is_first() {
    let house = Setup::new("held ok(once)").serve().await;
    let second = house.launch.serve().await;
    let others = Api::of(&second);
    let mut asked = JoinSet::new();
    for nth in 0..10 {
        let api = if nth % 2 == 0 { house.api.clone() } else { others.clone() };
        asked.spawn(async move { api.send(keyed(&api, "k", "hi")).await });
    }
    for _ in 1..10 {
        within("a refusal", asked.join_next()).await.unwrap().unwrap().assert_problem(409, "IDEMPOTENCY_IN_PROGRESS");
    }
    // A session that runs at the other server is followed through the journal.
    let waits = [house.api.clone(), others.clone()]
        .map(|api| tokio::spawn(async move { api.send(keyed(&api, "k", "hi").header("prefer", "wait=25")).await }));
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    house.provider.release();
    let session = within("the answer", asked.join_next()).await.unwrap().unwrap().assert_status(200).json();
    for wait in waits {
        let answer = within("the answer again", wait).await.unwrap();
        assert_eq!(answer.assert_status(200).json()["id"], session["id"]);
        assert!(replayed(&answer));
    }
    assert_eq!(house.provider.calls(), 1);
    assert_quiet(&others).await;
    assert_unhurt(&second.terminate().await.stderr);
    house.close().await;
}

#[tokio::test]
async fn a_stream_that_broke_off_is_taken_up_again() {
    let house = Setup::new(Act::reply(Reply::pieces(["one ", "two"])).held()).serve().await;
    let mut stream = house.api.stream(keyed(&house.api, "k", "hi")).await.events().await;
    let first = stream.next().await.unwrap();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    // The reader goes away; the session goes on, since its reader holds a key.
    drop(stream);
    let again = house.api.stream(keyed(&house.api, "k", "hi")).await;
    assert!(again.headers.get("idempotent-replayed").is_some());
    let mut whole = again.events().await;
    let behind = house.api.stream(keyed(&house.api, "k", "hi").header("last-event-id", first.id.clone().unwrap())).await;
    let mut behind = behind.events().await;
    assert_eq!(whole.next().await.unwrap(), first, "from its beginning");
    house.provider.release();
    let (whole, behind) = (whole.to_verdict().await, behind.to_verdict().await);
    assert_eq!((spelled(&whole).as_str(), spelled(&behind).as_str()), ("one two", "one two"));
    assert_eq!(ids(&whole), ids(&behind), "and from behind the event that was known");
    // And once more, after its end.
    let over = house.api.stream(keyed(&house.api, "k", "hi")).await.events().await.to_verdict().await;
    assert_eq!((ids(&over)[1..].to_vec(), spelled(&over).as_str()), (ids(&whole), "one two"));
    let broken = keyed(&house.api, "k", "hi").header("last-event-id", "what").header("accept", "text/event-stream");
    house.api.send(broken).await.assert_problem(400, "INVALID_REQUEST");
    assert_eq!((house.provider.calls(), sessions(&house.api).await.len()), (1, 1));
    house.close().await;
}

/// Where each event but the pieces of text stands: those are cut as they arrive.
fn ids(events: &[Event]) -> Vec<Option<String>> {
    events.iter().filter(|event| event.kind() != "output_text.delta").map(|event| event.id.clone()).collect()
}

#[tokio::test]
async fn a_background_request_gets_the_same_202_again() {
    let house = Setup::new("held ok").serve().await;
    let ask = || keyed(&house.api, "k", "hi").header("prefer", "respond-async");
    let first = house.api.send(ask()).await;
    let id = first.assert_status(202).json()["id"].clone();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    let again = house.api.send(ask()).await;
    assert_eq!((again.assert_status(202).json()["id"].clone(), again.header("location")), (id.clone(), first.header("location")));
    house.provider.release();
    assert_end(&house.verdict(id.as_str().unwrap()).await, "completed", "answered");
    let over = house.api.send(ask()).await;
    assert_eq!((&over.assert_status(202).json()["id"], replayed(&over)), (&id, true));
    // The same key waited for, without a preference: the answer.
    assert_end(&house.api.send(keyed(&house.api, "k", "hi")).await.assert_status(200).json(), "completed", "answered");
    house.close().await;
}

#[tokio::test]
async fn who_asks_again_needs_no_place() {
    let house = Setup::new([Act::text("done"), Act::text("late").held()]).set("server.max_in_flight", "1").serve().await;
    let first = house.api.send(keyed(&house.api, "k", "hi")).await.assert_status(200).json();
    let request = house.api.session(&House::request("ho")).header("prefer", "respond-async");
    let other = house.api.send(request).await.assert_status(202).json();
    house.provider.wait_for("the other session", |seen| seen.in_flight == 1).await;
    let again = house.api.send(keyed(&house.api, "k", "hi")).await;
    assert_eq!(again.assert_status(200).json(), first);
    house.api.send(keyed(&house.api, "new", "hi")).await.assert_problem(503, "OVERLOADED");
    house.provider.release();
    house.verdict(other["id"].as_str().unwrap()).await;
    house.close().await;
}

/// With a key a session outlives its caller, unless the caller says otherwise.
#[tokio::test]
async fn a_caller_who_wants_its_session_cancelled_is_heard_also_with_a_key() {
    let house = Setup::new([Act::text("never").held(), Act::text("now")]).serve().await;
    let ask = || {
        let body = json!({"agent": AGENT, "input": "hi", "on_disconnect": "cancel"});
        house.api.session(&body).header("idempotency-key", "k")
    };
    let stream = house.api.stream(ask()).await.events().await;
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    drop(stream);
    house.provider.wait_for("the end of the model call", |seen| seen.in_flight == 0).await;
    // Nothing was done: once that is in the journal, the retry runs.
    let answer = within("the retry", async {
        loop {
            let answer = house.api.send(ask()).await;
            if answer.status != 409 {
                return answer;
            }
        }
    })
    .await;
    assert_eq!((answer.assert_status(200).json()["output_text"].clone(), replayed(&answer)), (json!("now"), false));
    house.close().await;
}

#[tokio::test]
async fn where_nothing_was_done_the_retry_runs() {
    let house = Setup::new([Act::error(400), Act::text("now")]).serve().await;
    house.api.send(keyed(&house.api, "k", "hi")).await.assert_problem(400, "MODEL_REJECTED");
    let answer = house.api.send(keyed(&house.api, "k", "hi")).await;
    assert_eq!(answer.assert_status(200).json()["output_text"], "now");
    assert!(!replayed(&answer));
    assert!(replayed(&house.api.send(keyed(&house.api, "k", "hi")).await), "and what was done is not done again");
    assert_eq!((house.provider.calls(), sessions(&house.api).await.len()), (2, 2));
    // Refused before anything began: the key was never taken.
    let too_much = json!({"agent": AGENT, "input": "hi", "limits": {"model_calls": 1_000}});
    for _ in 0..2 {
        let request = house.api.session(&too_much).header("idempotency-key", "k3");
        house.api.send(request).await.assert_problem(400, "LIMITS_TOO_HIGH");
    }
    house.close().await;
}

#[tokio::test]
async fn whoever_asks_again_after_a_crash_finds_the_one_session() {
    let call = Call::new("bare", &json!({"id": "w"})).id("w");
    let chat = Script::new([Act::calls([call]), Act::text("written").held()]).by_turn();
    let house = Setup::new(chat).write("bare", Act::json(json!("done"))).serve().await;
    // The caller's connection dies with the process; its retry comes before anybody has taken the session over.
    let started = tokio::spawn(keyed(&house.api, "k", "write it").send());
    house.provider.wait_for("the second turn", |seen| seen.calls == 2 && seen.in_flight == 1).await;
    let House { launch, provider, tools, ambit, .. } = house;
    assert_unhurt(&ambit.crash().await.stderr);
    assert!(started.await.unwrap().is_err());
    provider.release();
    let ambit = launch.serve().await;
    let house = House { api: Api::of(&ambit), launch, provider, tools, ambit };
    let waiting = keyed(&house.api, "k", "write it").header("prefer", "wait=25");
    let answer = house.api.send(waiting).await;
    let session = answer.assert_status(200).json();
    assert!(replayed(&answer));
    assert_end(&session, "completed", "answered");
    assert_eq!((house.tools.calls(), sessions(&house.api).await.len()), (1, 1), "the write left once");
    let again = house.api.send(keyed(&house.api, "k", "write it")).await;
    assert_eq!(again.assert_status(200).json()["id"], session["id"]);
    assert_quiet(&house.api).await;
    assert_unhurt(&house.ambit.terminate().await.stderr);
}

/// The process dies as soon as the session can be there, many times: there is never a second one, nor a key without one.
#[tokio::test]
async fn a_start_that_is_cut_off_leaves_both_or_neither() {
    let house = Setup::new("held ok").set("models.primary.bulkhead.permits", "32").serve().await;
    let mut asked = JoinSet::new();
    for nth in 0..20 {
        asked.spawn(keyed(&house.api, &format!("k{nth}"), "hi").header("prefer", "respond-async").send());
    }
    // Some were acknowledged by now, some are on their way.
    let mut known = BTreeSet::new();
    for _ in 0..4 {
        let answer = asked.join_next().await.unwrap().unwrap().unwrap();
        if answer.status() == 202 {
            let session: Value = answer.json().await.unwrap();
            known.insert(session["id"].as_str().unwrap().to_owned());
        }
    }
    assert!(!known.is_empty());
    let House { launch, provider, tools, ambit, .. } = house;
    assert_unhurt(&ambit.crash().await.stderr);
    asked.shutdown().await;
    provider.release();
    let ambit = launch.serve().await;
    let house = House { api: Api::of(&ambit), launch, provider, tools, ambit };
    let before = sessions(&house.api).await;
    let before: BTreeSet<String> = before.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect();
    assert!(known.is_subset(&before), "what was acknowledged is there");
    let mut told = BTreeSet::new();
    for nth in 0..20 {
        let request = keyed(&house.api, &format!("k{nth}"), "hi").header("prefer", "respond-async");
        let answer = house.api.send(request).await;
        answer.assert_status(202);
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(replayed(&answer), before.contains(&id), "{id}");
        told.insert(id);
    }
    assert_eq!(told.len(), 20, "each key has a session of its own");
    assert_eq!(sessions(&house.api).await.len(), 20, "and there is no other");
    for id in &told {
        house.verdict(id).await;
    }
    assert_quiet(&house.api).await;
    assert_unhurt(&house.ambit.terminate().await.stderr);
}

#[tokio::test]
async fn a_session_goes_on_from_another_one() {
    let acts = ["one", "two", "three"].map(Act::text);
    let house = Setup::new(acts).serve().await;
    let first = house.session("a").await;
    assert_eq!(first["previous_session_id"], Value::Null);
    let second = house.api.run(&next("b", &first)).await.assert_status(200).json();
    assert_eq!(second["previous_session_id"], first["id"]);
    assert_eq!(heard(&house), said(&[("user", "a"), ("assistant", "one"), ("user", "b")]));
    // Also behind a restart, and by the id that OpenAI's clients use.
    let House { launch, provider, tools, ambit, .. } = house;
    assert_unhurt(&ambit.terminate().await.stderr);
    let ambit = launch.serve().await;
    let house = House { api: Api::of(&ambit), launch, provider, tools, ambit };
    let mut third = next("c", &second);
    third["previous_session_id"] = json!(second["id"].as_str().unwrap().replace("ses_", "resp_"));
    let third = house.api.run(&third).await.assert_status(200).json();
    assert_eq!(third["degraded"], json!([]));
    let all = [("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c")];
    assert_eq!(heard(&house), said(&all));
    let shown = house.api.get(&format!("/v1/sessions/{}?include=transcript", third["id"].as_str().unwrap())).await.json();
    assert_eq!(shown["previous_session_id"], second["id"]);
    assert_eq!(shown["transcript"].as_array().unwrap().len(), 6, "{shown:#}");
    house.close().await;
}

#[tokio::test]
async fn a_session_that_goes_on_survives_a_crash() {
    let house = Setup::new([Act::text("one"), Act::text("two").held()]).serve().await;
    let first = house.session("a").await;
    let request = house.api.session(&next("b", &first)).header("prefer", "respond-async");
    let id = house.api.send(request).await.assert_status(202).json()["id"].as_str().unwrap().to_owned();
    house.provider.wait_for("the second session", |seen| seen.in_flight == 1).await;
    let House { launch, provider, tools, ambit, .. } = house;
    assert_unhurt(&ambit.crash().await.stderr);
    provider.release();
    let ambit = launch.serve().await;
    let house = House { api: Api::of(&ambit), launch, provider, tools, ambit };
    let session = within("the verdict", async {
        loop {
            let session = house.verdict(&id).await;
            if !session["verdict_at"].is_null() {
                return session;
            }
        }
    })
    .await;
    assert_end(&session, "completed", "answered");
    assert_eq!(heard(&house), said(&[("user", "a"), ("assistant", "one"), ("user", "b")]));
    assert_quiet(&house.api).await;
    assert_unhurt(&house.ambit.terminate().await.stderr);
}

#[tokio::test]
async fn twenty_links_are_kept_and_the_oldest_is_left_out() {
    let house = Setup::new("ok(yes)").serve().await;
    let mut last = house.session("question 0").await;
    for nth in 1..=20 {
        last = house.api.run(&next(&format!("question {nth}"), &last)).await.assert_status(200).json();
        assert_eq!(last["degraded"], json!([]), "{nth}");
    }
    assert_eq!(heard(&house).len(), 41);
    let stream = house.api.stream(house.api.session(&next("question 21", &last))).await;
    let events = stream.events().await.to_verdict().await;
    let words = heard(&house);
    assert_eq!((words.len(), words[0].1.as_str()), (41, "question 1"));
    let degraded = events.iter().find(|event| event.kind() == "session.degraded").unwrap().json();
    assert_eq!((&degraded["data"]["capability"], &degraded["data"]["mode"]), (&json!("context"), &json!("shortened")));
    let session = &events.last().unwrap().json()["data"];
    assert_eq!((&session["degraded"][0]["capability"], &session["degraded"][0]["mode"]), (&json!("context"), &json!("shortened")));
    assert_eq!(house.api.metrics().await.sum("ambit_degraded_sessions_total", &[("mode", "shortened")]), Some(1.0));
    house.close().await;
}

#[tokio::test]
async fn earlier_words_have_a_size_and_make_room_for_the_window() {
    let house = Setup::new("ok(yes)").set("models.primary.context_window", "4000").serve().await;
    // 4,000 tokens less one answer leave 5,856 characters: one of these pairs, and not two.
    let first = house.session(&"a".repeat(2_500)).await;
    let second = house.api.run(&next(&"b".repeat(2_500), &first)).await.assert_status(200).json();
    assert_eq!((heard(&house).len(), &second["degraded"]), (3, &json!([])));
    let third = house.api.run(&next("c", &second)).await.assert_status(200).json();
    assert_eq!((heard(&house).len(), &third["degraded"]), (5, &json!([])));
    let third = house.api.run(&next(&"c".repeat(2_500), &second)).await.assert_status(200).json();
    let words = heard(&house);
    assert_eq!((words.len(), &words[0].1[..1], &third["degraded"][0]["mode"]), (3, "b", &json!("shortened")));
    assert_end(&third, "completed", "answered");
    house.close().await;
}

#[tokio::test]
async fn what_cannot_be_continued_says_so() {
    let house = Setup::new("held ok").serve().await;
    let unknown = json!({"id": "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T"});
    let problem = house.api.run(&next("b", &unknown)).await.assert_problem(404, "SESSION_NOT_FOUND");
    assert_eq!(problem["errors"][0]["pointer"], "/previous_session_id", "{problem:#}");
    let request = house.api.session(&House::request("a")).header("prefer", "respond-async");
    let running = house.api.send(request).await.assert_status(202).json();
    let problem = house.api.run(&next("b", &running)).await.assert_problem(400, "INVALID_REQUEST");
    assert_eq!(problem["errors"][0]["pointer"], "/previous_session_id", "{problem:#}");
    assert!(problem["detail"].as_str().unwrap().contains("still running"), "{problem:#}");
    house.provider.release();
    house.verdict(running["id"].as_str().unwrap()).await;
    house.api.run(&next("b", &running)).await.assert_status(200);
    house.close().await;
}

#[tokio::test]
async fn taint_is_inherited() {
    let read = Act::calls([Call::new("look", &json!({"id": "r"})).id("r")]);
    let write = || Act::calls([Call::new("bare", &json!({"id": "w"})).id("w")]);
    let chat = [read, Act::text("read it"), write(), Act::text("tried"), Act::text("clean"), write(), Act::text("wrote")];
    let house = Setup::new(Script::new(chat))
        .read("look", Act::json(json!("from outside")))
        .write("bare", Act::json(json!("done")))
        .set("tools.look.trust", "untrusted")
        .set("agents.clerk.taint", "refuse")
        .serve()
        .await;
    let tainted = house.session("look at it").await;
    house.api.run(&next("write it", &tainted)).await.assert_status(200);
    assert!(house.told().last().unwrap().1.contains("TAINTED"), "{:?}", house.told());
    assert_eq!(house.tools.seen_on("bare").calls, 0);
    let clean = house.session("hello").await;
    house.api.run(&next("write it", &clean)).await.assert_status(200);
    assert_eq!(house.tools.seen_on("bare").calls, 1, "{:?}", house.told());
    house.close().await;
}

#[tokio::test]
async fn too_little_time_is_refused_before_anything_is_kept() {
    let house = Setup::new("ok").serve().await;
    // A model call needs 500 ms, and the answer 250 ms to leave.
    let ask = |ms: &str| house.api.session(&House::request("hi")).header("x-request-timeout-ms", ms);
    let problem = house.api.send(ask("700")).await.assert_problem(504, "DEADLINE_EXCEEDED");
    assert!(problem["detail"].as_str().unwrap().contains("750 ms"), "{problem:#}");
    house.api.send(ask("+5000")).await.assert_problem(400, "INVALID_REQUEST");
    assert_eq!((house.provider.calls(), sessions(&house.api).await.len()), (0, 0));
    house.close().await;
}

#[tokio::test]
async fn a_key_that_stands_twice_in_a_body_is_refused() {
    let house = Setup::new("ok").serve().await;
    let body = format!("{{\"agent\": {AGENT:?}, \"input\": \"a\", \"limits\": {{\"tool_calls\": 0, \"tool_calls\": 9}}}}");
    let request = house.api.request(Method::POST, "/v1/sessions").header("content-type", "application/json").body(body);
    let problem = house.api.send(request).await.assert_problem(400, "INVALID_REQUEST");
    assert_eq!(problem["errors"][0]["pointer"], "/limits/tool_calls", "{problem:#}");
    house.api.run(&House::request(" \n")).await.assert_problem(400, "INVALID_REQUEST");
    house.close().await;
}

#[tokio::test]
async fn a_session_says_what_served_it() {
    let house = Setup::new("ok").serve().await;
    let session = house.session("hi").await;
    let served = json!({"model": "m", "target": "primary", "position": 0, "source": "model", "age_s": null});
    assert_eq!(session["served_by"], served, "{session:#}");
    assert_eq!((&session["flags"], &session["required_actions"]), (&json!([]), &json!([])));
    assert!(session["config_revision"].as_str().is_some_and(|revision| !revision.is_empty()));
    house.close().await;
}

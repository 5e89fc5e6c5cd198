//! SIGKILL at every position of a session: no acknowledged fact is lost, no completed step is repeated, limits hold.
//!
//! The session has two reads and two writes, one of them with a key. Its positions are found by running it once and counting:
//! the requests that leave (the process dies while one is being answered) and the events of its journal (the process dies as
//! soon as one can be seen). All positions run at the same time, each in a folder of its own, since each waits for a lease to
//! run out.

use std::collections::BTreeMap;

use ambit_tests::client::{Api, Event, spelled};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Arrival, Call, Script};
use ambit_tests::within;
use reqwest::Method;
use serde_json::{Value, json};

use crate::house::{House, Setup, assert_unhurt};

/// Most positions that run at the same time: each is a process of its own, and some machines have two cores.
const AT_ONCE: usize = 6;

fn setup() -> Setup {
    let call = |tool: &str, id: &str| Call::new(tool, &json!({"id": id})).id(id);
    let chat = Script::new([
        Act::calls([call("look", "r1"), call("look", "r2")]),
        Act::calls([call("keyed", "w1")]),
        Act::calls([call("bare", "w2")]),
        Act::text("all done"),
    ]);
    let done = || Act::json(json!({"done": true}));
    Setup::new(chat.by_turn()).read("look", done()).keyed("keyed", done()).write("bare", done())
}

fn background(api: &Api) -> reqwest::RequestBuilder {
    api.session(&House::request("do all four")).header("prefer", "respond-async")
}

/// Starts the session, kills the process when `moment` says so, starts it again and waits for the end.
async fn survive(house: House, moment: impl AsyncFnOnce(&House, &str)) -> (Value, House) {
    let started = house.api.send(background(&house.api)).await.assert_status(202).json();
    let id = started["id"].as_str().unwrap().to_owned();
    moment(&house, &id).await;
    let House { launch, provider, tools, ambit, .. } = house;
    let dead = ambit.crash().await;
    assert_unhurt(&dead.stderr);
    provider.release();
    tools.release();
    let ambit = launch.serve().await;
    let api = Api::of(&ambit);
    let house = House { launch, provider, tools, ambit, api };
    let session = within("the session to be taken over", async {
        loop {
            // What was acknowledged is there from the first moment on.
            let session = house.api.get(&format!("/v1/sessions/{id}")).await.assert_status(200).json();
            if !session["verdict_at"].is_null() && session["settlement"] != "pending" {
                return session;
            }
            house.verdict(&id).await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    (session, house)
}

/// What must hold wherever the process died.
fn assert_sound(session: &Value, house: &House, position: &str) {
    let shown = || format!("at {position}: {session:#}");
    assert!(matches!(session["status"].as_str(), Some("completed" | "incomplete")), "{}", shown());
    house.provider.assert_history();
    let arrivals = house.tools.arrivals();
    let times = |path: &str| arrivals.iter().filter(|arrival| arrival.target.starts_with(path)).count();
    // Without a key a write leaves once, whatever happens.
    assert!(times("/tools/bare/w2") <= 1, "{}", shown());
    // With a key it may leave again, under the same key.
    let keys: std::collections::BTreeSet<&str> = keyed(&arrivals).filter_map(|arrival| arrival.header("idempotency-key")).collect();
    assert!(keys.len() <= 1 && keyed(&arrivals).all(|arrival| arrival.header("idempotency-key").is_some()), "{keys:?} {}", shown());
    assert!(times("/tools/keyed/w1") <= 2, "{}", shown());
    assert!(house.provider.calls() <= 16 && house.tools.calls() <= 20, "limits hold on the wire: {}", shown());
    // A write without a key whose result was not recorded is unknown, and said so; never a silent success.
    let effects = &session["effects"];
    let writes = effects["done"].as_u64().unwrap() + effects["unknown"].as_u64().unwrap() + effects["needs_attention"].as_u64().unwrap();
    assert!(writes as usize >= usize::from(times("/tools/bare/w2") == 1), "{}", shown());
}

fn keyed(arrivals: &[Arrival]) -> impl Iterator<Item = &Arrival> {
    arrivals.iter().filter(|arrival| &*arrival.route == "keyed")
}

/// Results that were told to the model before the crash are told in the same words after it.
fn assert_nothing_retold(house: &House, position: &str) {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for arrival in house.provider.arrivals() {
        for (id, text) in arrival.tool_results() {
            let first = known.entry(id.clone()).or_insert_with(|| text.clone());
            assert_eq!(*first, text, "the result of {id} changed at {position}");
        }
    }
}

async fn check(position: String, house: House, moment: impl AsyncFnOnce(&House, &str)) {
    let (session, house) = survive(house, moment).await;
    assert_sound(&session, &house, &position);
    assert_nothing_retold(&house, &position);
    assert_quiet(&house.api).await;
    assert_unhurt(&house.ambit.terminate().await.stderr);
}

/// One undisturbed run: how many requests leave, and how many events its stream has.
async fn count() -> (usize, usize, usize) {
    let house = setup().serve().await;
    let session = house.session("do all four").await;
    assert_eq!((&session["status"], &session["effects"]["done"]), (&json!("completed"), &json!(2)), "{session:#}");
    let path = format!("/v1/sessions/{}/events", session["id"].as_str().unwrap());
    let events = house.api.stream(house.api.request(Method::GET, &path)).await.events().await.to_verdict().await;
    let counted = (house.provider.calls(), house.tools.calls(), events.len());
    house.close().await;
    counted
}

async fn in_groups<F: Future<Output = ()> + Send + 'static>(all: Vec<F>) {
    let mut waiting = all.into_iter();
    let mut running = tokio::task::JoinSet::new();
    for position in waiting.by_ref().take(AT_ONCE) {
        running.spawn(position);
    }
    while let Some(ended) = running.join_next().await {
        if let Err(failed) = ended {
            std::panic::resume_unwind(failed.into_panic());
        }
        if let Some(position) = waiting.next() {
            running.spawn(position);
        }
    }
}

#[tokio::test]
async fn killed_while_a_request_is_out() {
    let (model_calls, tool_calls, _) = count().await;
    assert_eq!((model_calls, tool_calls), (4, 4));
    let mut positions = Vec::new();
    for nth in 1..=model_calls + tool_calls {
        positions.push(async move {
            let house = setup().serve().await;
            let moment = async |house: &House, _: &str| {
                // The n-th request of provider and tools together, whichever sees it.
                let (provider, tools) = (&house.provider, &house.tools);
                tokio::select! {
                    _ = provider.wait_for("the request", |seen| seen.calls + tools.calls() >= nth) => {}
                    _ = tools.wait_for("the request", |seen| seen.calls + provider.calls() >= nth) => {}
                }
            };
            check(format!("request {nth}"), house, moment).await;
        });
    }
    in_groups(positions).await;
}

#[tokio::test]
async fn killed_at_every_event_of_the_journal() {
    let (_, _, events) = count().await;
    let mut positions = Vec::new();
    for nth in 1..events {
        positions.push(async move {
            let house = setup().serve().await;
            let moment = async |house: &House, id: &str| {
                let path = format!("/v1/sessions/{id}/events");
                let mut stream = house.api.stream(house.api.request(Method::GET, &path)).await.events().await;
                for _ in 0..nth {
                    if stream.next().await.is_none() {
                        break;
                    }
                }
            };
            check(format!("event {nth}"), house, moment).await;
        });
    }
    in_groups(positions).await;
}

/// A write without a key that was sent and never answered: nobody may guess, nobody may repeat it.
#[tokio::test]
async fn a_write_that_was_out_is_unknown_and_never_repeated() {
    let call = Call::new("bare", &json!({"id": "w"})).id("w");
    let chat = Script::new([Act::calls([call]), Act::text("told")]).by_turn();
    let house = Setup::new(chat).write("bare", Act::json(json!(1)).held()).serve().await;
    let moment = async |house: &House, _: &str| {
        house.tools.wait_for("the write", |seen| seen.in_flight == 1).await;
    };
    let (session, house) = survive(house, moment).await;
    assert_eq!(house.tools.calls(), 1);
    assert!(house.told()[0].1.contains("OUTCOME_UNKNOWN"), "{:?}", house.told());
    assert_eq!(session["effects"]["done"], 0, "{session:#}");
    assert_quiet(&house.api).await;
}

/// A write with a key that was sent and never answered is asked again under the same key.
#[tokio::test]
async fn a_keyed_write_that_was_out_is_asked_again() {
    let call = Call::new("keyed", &json!({"id": "w"})).id("w");
    let chat = Script::new([Act::calls([call]), Act::text("told")]).by_turn();
    let house = Setup::new(chat).keyed("keyed", Act::json(json!("stored")).held()).serve().await;
    let moment = async |house: &House, _: &str| {
        house.tools.wait_for("the write", |seen| seen.in_flight == 1).await;
    };
    let (session, house) = survive(house, moment).await;
    let keys: Vec<String> = house.tools.arrivals().iter().map(|a| a.header("idempotency-key").unwrap().to_owned()).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    assert!(house.told()[0].1.contains("stored"), "{:?}", house.told());
    assert_eq!(session["effects"]["done"], 1, "{session:#}");
    assert_quiet(&house.api).await;
}

/// Whoever follows a session goes on where it was, over a crash and from another process.
#[tokio::test]
async fn a_stream_resumes_over_a_crash_at_another_server() {
    let call = Call::new("look", &json!({"id": "r"})).id("r");
    let chat = Script::new([Act::calls([call]), Act::text("found it")]).by_turn();
    let house = Setup::new(chat).read("look", Act::json(json!(41)).held()).serve().await;
    let second = house.launch.serve().await;
    let started = house.api.send(background(&house.api)).await.assert_status(202).json();
    let path = format!("/v1/sessions/{}/events", started["id"].as_str().unwrap());
    let mut stream = house.api.stream(house.api.request(Method::GET, &path)).await.events().await;
    let before = stream.until("tool.started").await;
    house.tools.wait_for("the read", |seen| seen.in_flight == 1).await;
    let House { provider, tools, ambit, .. } = house;
    assert_unhurt(&ambit.crash().await.stderr);
    drop(stream);
    tools.release();
    let api = Api::of(&second);
    let last = before.last().and_then(|event| event.id.clone()).unwrap();
    let request = api.request(Method::GET, &path).header("last-event-id", &last);
    let after = api.stream(request).await.events().await.to_verdict().await;
    assert_eq!((spelled(&after).as_str(), after.last().map(Event::kind)), ("found it", Some("session.completed")));
    let known: Vec<Option<&str>> = before.iter().map(|event| event.id.as_deref()).collect();
    assert!(after.iter().all(|event| !known.contains(&event.id.as_deref())), "nothing is said twice");
    let whole = api.stream(api.request(Method::GET, &path)).await.events().await.to_verdict().await;
    assert_eq!(whole.len(), before.len() + after.len(), "and nothing is left out");
    provider.assert_history();
    assert_quiet(&api).await;
    assert_unhurt(&second.terminate().await.stderr);
}

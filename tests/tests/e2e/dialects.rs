//! The dialects beside chat completions: whole sessions over each, plain and streamed, and what becomes of them when the provider
//! misbehaves. What is the same for all dialects stands in [`crate::provider`].

use ambit_tests::client::spelled;
use ambit_tests::process::Launch;
use ambit_tests::upstream::{Act, Arrival, Call, Halt, Point, Reply, Script, Shape, Upstream};
use serde_json::{Value, json};

use crate::house::{House, Setup, assert_end};

/// The dialects that are tried here.
const SHAPES: [Shape; 2] = [Shape::Messages, Shape::Responses];

fn setup(shape: Shape, script: impl Into<Script>) -> Setup {
    Setup::new(script).set("models.primary.dialect", shape.dialect())
}

/// A house whose provider speaks this, with a tool to look things up.
async fn house(shape: Shape, script: impl Into<Script>) -> House {
    setup(shape, script).read("look", Act::json(json!({"units": 41}))).serve().await
}

fn look(id: &str) -> Call {
    Call::new("look", &json!({"id": id})).id(id)
}

fn body(arrival: &Arrival) -> &Value {
    arrival.body.as_ref().unwrap()
}

/// The key as each dialect sends it.
fn assert_key(shape: Shape, arrival: &Arrival) {
    match shape {
        Shape::Chat | Shape::Responses => assert_eq!(arrival.header("authorization"), Some("Bearer key-of-the-provider")),
        Shape::Messages => {
            assert_eq!(arrival.header("x-api-key"), Some("key-of-the-provider"));
            assert_eq!(arrival.header("anthropic-version"), Some("2023-06-01"));
        }
    }
}

#[tokio::test]
async fn a_session_with_two_calls_plain_and_streamed() {
    for shape in SHAPES {
        for stream in ["always", "when_heard"] {
            let script = Script::new([
                Act::reply(Reply::calls([look("c1"), look("c2")]).saying("Let me look.")).usage(Some((100, 20))),
                Act::text("There are 41 units.").usage(Some((200, 10))),
            ]);
            let house = setup(shape, script)
                .read("look", Act::json(json!({"units": 41})))
                .set("models.primary.stream", stream)
                .set("models.primary.price.input", "2.0")
                .set("models.primary.price.output", "10.0")
                .serve()
                .await;
            let session = house.session("How many?").await;
            assert_end(&session, "completed", "answered");
            assert_eq!(session["output_text"], "There are 41 units.");
            let spent = &session["spent"];
            assert_eq!((&spent["model_calls"], &spent["tool_calls"]), (&json!(2), &json!(2)));
            assert_eq!((&spent["input_tokens"], &spent["output_tokens"]), (&json!(300), &json!(30)), "{shape:?} {stream}");
            assert_eq!(spent["cost_is_at_least"], json!(false));
            assert!((spent["cost_usd"].as_f64().unwrap() - 0.0009).abs() < 1e-9, "{spent}");

            let told = house.told();
            assert_eq!(told.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["c1", "c2"]);
            assert!(told.iter().all(|(_, text)| text.contains("41")), "{told:?}");
            let arrivals = house.provider.arrivals();
            for arrival in &arrivals {
                assert_eq!((arrival.shape(), body(arrival)["stream"] == true), (Some(shape), stream == "always"));
                assert_eq!(arrival.offered(), ["look"]);
                assert_key(shape, arrival);
            }
            house.close().await;
        }
    }
}

#[tokio::test]
async fn a_stream_shows_the_answer_as_it_comes() {
    for shape in SHAPES {
        let house = house(shape, [Act::calls([look("c1")]), Act::text("There are 41 units.")]).await;
        let mut stream = house.api.stream(house.api.session(&House::request("How many?"))).await.events().await;
        let events = stream.to_verdict().await;
        assert_eq!(spelled(&events), "There are 41 units.", "{shape:?}");
        assert_eq!(events.last().unwrap().json()["type"], "session.completed");
        house.close().await;
    }
}

#[tokio::test]
async fn the_last_call_is_made_with_tools_declared_and_switched_off() {
    for shape in SHAPES {
        let endless = Script::from(Act::calls([Call::raw("look", r#"{"id": "x{{n}}"}"#)])).when_tools_are_off(Act::text("in short"));
        let house = setup(shape, endless).read("look", Act::json(json!(1))).set("limits.model_calls", "3").serve().await;
        let session = house.session("hi").await;
        assert_end(&session, "completed", "model_calls");
        assert_eq!((session["output_text"].as_str(), house.provider.calls()), (Some("in short"), 3));

        let arrivals = house.provider.arrivals();
        let (first, last) = (&arrivals[0], &arrivals[2]);
        let off = match shape {
            Shape::Chat | Shape::Responses => json!("none"),
            Shape::Messages => json!({"type": "none"}),
        };
        assert_eq!((body(first).get("tool_choice"), body(last).get("tool_choice")), (None, Some(&off)), "{shape:?}");
        assert_eq!(body(first)["tools"], body(last)["tools"], "tools stay declared");
        // The reason is told inside of the last result, and nowhere else.
        let told = last.tool_results();
        let before = arrivals[1].tool_results();
        assert_eq!((told.len(), before.len()), (2, 1));
        assert!(told[1].1.len() > before[0].1.len() && told[0] == before[0], "{told:?}");
        house.close().await;
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_keeps_what_was_said() {
    for (shape, before) in [(Shape::Messages, 3), (Shape::Responses, 2)] {
        for halt in [Halt::Reset, Halt::Cut] {
            // The accident waits until the words have come through: a reset may overtake what was sent before it.
            let at = Point::Pieces(before + 2);
            let act = Act::reply(Reply::pieces(["some", "words"])).held_at(at).halting(at, halt);
            let house = setup(shape, act).serve().await;
            let mut stream = house.api.stream(house.api.session(&House::request("hi"))).await.events().await;
            let mut events = Vec::new();
            while spelled(&events) != "somewords" {
                events.push(stream.next().await.unwrap());
            }
            house.provider.release();
            events.extend(stream.to_verdict().await);
            let last = events.last().unwrap().json();
            assert_eq!(
                (&last["type"], &last["data"]["reason"]),
                (&json!("session.incomplete"), &json!("stream_interrupted")),
                "{shape:?} {halt:?}"
            );
            assert_eq!((spelled(&events).as_str(), &last["data"]["output_text"]), ("somewords", &json!("somewords")));
            assert_eq!(house.provider.calls(), 1, "after the first byte nothing is repeated: {shape:?} {halt:?}");
            house.close().await;
        }
    }
}

/// A script, then what the caller sees and how often the provider was asked, over each dialect.
async fn check(script: impl Into<Script>, expected: &str, calls: usize) {
    let script = script.into();
    for shape in SHAPES {
        let house = setup(shape, script.clone()).set("models.primary.attempt", "2s").serve().await;
        let answer = house.answer("hi").await;
        let object = answer.json();
        let seen = match object["code"].as_str() {
            Some(code) => format!("{} {code} {}", answer.status, object["cause"].as_str().unwrap_or_default()),
            None => format!("{} {}({})", answer.status, object["status"].as_str().unwrap(), object["reason"].as_str().unwrap()),
        };
        assert_eq!((seen.trim(), house.provider.calls()), (expected, calls), "{shape:?} {script:?}: {object:#}");
        house.close().await;
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_tried_again_and_told_with_its_cause() {
    let fine = "200 completed(answered)";
    let broken = |status| Act::breaking("some words", status);
    check([broken(503), Act::ok()], fine, 2).await;
    // What was said is kept where no whole answer could be had.
    check(broken(500), "200 incomplete(stream_interrupted)", 2).await;
    check(Act::breaking("", 503), "503 MODEL_UNAVAILABLE overloaded", 2).await;
    check(Act::breaking("", 429), "503 MODEL_UNAVAILABLE rate_limited", 2).await;
    check(Act::breaking("", 401), "503 MODEL_UNAVAILABLE auth", 1).await;
}

#[tokio::test]
async fn statuses_and_nonsense_are_told_apart() {
    let fine = "200 completed(answered)";
    check("429(ra-ms=20), ok", fine, 2).await;
    check("cut, ok", fine, 2).await;
    check("529", "503 MODEL_UNAVAILABLE overloaded", 2).await;
    check("garbage", "503 MODEL_UNAVAILABLE protocol", 2).await;
    check("error, ok", fine, 2).await;
    check("401", "503 MODEL_UNAVAILABLE auth", 1).await;
    check("402", "503 MODEL_UNAVAILABLE quota", 1).await;
    check("404", "503 MODEL_UNAVAILABLE not_found", 1).await;
    check("400", "400 MODEL_REJECTED", 1).await;
}

#[tokio::test]
async fn the_doctor_asks_for_the_models_with_the_key_where_it_belongs() {
    for shape in Shape::ALL {
        let page = Act::json(json!({"data": [{"id": "m1"}], "has_more": true}));
        let list = Act::json(json!({"data": [{"id": "m1"}, {"id": "m"}], "has_more": false}));
        for (act, says) in [(list, "lists `m`"), (page, "has no list of models")] {
            let provider = Upstream::builder().route("models", "/v1/models", act).start().await;
            let launch = Launch::bare()
                .env("AMBIT_MODELS__PRIMARY__DIALECT", shape.dialect())
                .env("AMBIT_MODELS__PRIMARY__BASE_URL", &provider.base_url())
                .env("AMBIT_MODELS__PRIMARY__MODEL", "m")
                .env("AMBIT_MODELS__PRIMARY__API_KEY", "key-of-the-provider");
            let end = launch.run(&["doctor", "--online", "--json"]).await;
            assert!(end.assert_code(0).stdout.contains(says), "{shape:?} {end:?}");
            assert_key(shape, &provider.arrivals()[0]);
        }
    }
}

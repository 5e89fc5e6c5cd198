//! Tool calls over HTTP: what leaves, what never leaves, what the model is told.

use ambit_tests::upstream::{Act, Call, Script};
use serde_json::{Value, json};

use crate::house::{House, Setup, assert_end};

/// A turn that asks for these calls, then an answer.
fn turn(calls: impl IntoIterator<Item = Call>) -> Script {
    Script::new([Act::calls(calls), Act::text("end")])
}

fn call(tool: &str, id: &str) -> Call {
    Call::new(tool, &json!({"id": id})).id("c1")
}

/// Runs the house's one call and returns what the model was told of it.
async fn told(house: &House) -> String {
    assert_end(&house.session("hi").await, "completed", "answered");
    let told = house.told();
    assert_eq!((told.len(), told[0].0.as_str()), (1, "c1"), "{told:?}");
    told[0].1.clone()
}

#[tokio::test]
async fn arguments_stay_in_their_place() {
    let calls = [("plain", "plain"), ("a b/../c?d#e", "a%20b%2F..%2Fc%3Fd%23e"), ("ä%2e", "%C3%A4%252e")];
    for (id, encoded) in calls {
        let house = Setup::new(turn([Call::new("look", &json!({"id": id, "q": "x y&z"})).id("c1")]));
        let house = house.read("look", Act::json(json!({"found": 1}))).serve().await;
        assert!(told(&house).await.contains("found"));
        let target = house.tools.arrivals()[0].target.clone();
        let (path, query) = target.split_once('?').unwrap();
        assert_eq!(path.to_lowercase(), format!("/tools/look/{encoded}").to_lowercase());
        assert!(query.starts_with("q=x") && query.contains("%26z"), "{query}");
        house.close().await;
    }
}

#[tokio::test]
async fn a_write_sends_json_and_its_key() {
    let arguments = json!({"id": "7", "amount": 12_345_678_901_234_567_890_u64, "note": "ü"});
    let house = Setup::new(turn([Call::new("pay", &arguments).id("c1")])).keyed("pay", Act::json(json!({"ok": true}))).serve().await;
    told(&house).await;
    let arrival = &house.tools.arrivals()[0];
    assert_eq!((arrival.method.as_str(), arrival.target.as_str()), ("POST", "/tools/pay/7"));
    assert!(arrival.header("content-type").unwrap().starts_with("application/json"));
    let body = arrival.body.clone().unwrap();
    assert_eq!((&body["amount"], &body["note"]), (&arguments["amount"], &json!("ü")), "big integers keep their digits");
    assert!(arrival.header("idempotency-key").is_some_and(|key| !key.is_empty()));
    house.close().await;
}

#[tokio::test]
async fn each_step_has_a_key_of_its_own() {
    let calls = [call("pay", "1"), call("pay", "2").id("c2")];
    let house = Setup::new(turn(calls)).keyed("pay", Act::json(json!({"ok": true}))).serve().await;
    house.session("hi").await;
    let keys: Vec<String> = house.tools.arrivals().iter().map(|a| a.header("idempotency-key").unwrap().to_owned()).collect();
    assert!(keys.len() == 2 && keys[0] != keys[1], "{keys:?}");
    house.close().await;
}

/// Calls that must never leave, and what the model reads instead.
#[tokio::test]
async fn calls_that_are_refused_before_they_leave() {
    for (call, code) in [
        (Call::raw("look", "{\"id\": \"7\", \"why\": \"cust"), "INVALID_ARGUMENTS"),
        (Call::raw("look", "[1]"), "INVALID_ARGUMENTS"),
        (Call::new("look", &json!({})), "INVALID_ARGUMENTS"),
        (Call::new("look", &json!({"id": 7})), "INVALID_ARGUMENTS"),
        (Call::new("look", &json!({"id": ""})), "INVALID_ARGUMENTS"),
        (Call::new("loook", &json!({"id": "7"})), "UNKNOWN_TOOL"),
    ] {
        let shown = format!("{call:?}");
        let house = Setup::new(turn([call.id("c1")])).read("look", Act::json(json!(1))).serve().await;
        let said = told(&house).await;
        assert!(said.contains(code), "{shown}: {said}");
        assert_eq!(house.tools.calls(), 0, "{shown}");
        house.close().await;
    }
}

/// Lossless repairs are made, and nothing else.
#[tokio::test]
async fn calls_that_are_repaired() {
    for call in [
        Call::raw("functions.look", r#"{"id": "7"}"#),
        Call::raw("look", "```json\n{\"id\": \"7\"}\n```"),
        Call::raw("look", r#""{\"id\": \"7\"}""#),
    ] {
        let shown = format!("{call:?}");
        let house = Setup::new(turn([call.id("c1")])).read("look", Act::json(json!("found"))).serve().await;
        assert!(told(&house).await.contains("found"), "{shown}");
        assert_eq!(house.tools.arrivals()[0].target, "/tools/look/7", "{shown}");
        house.close().await;
    }
}

#[tokio::test]
async fn a_read_is_tried_again_a_write_is_not() {
    let house = Setup::new(turn([call("look", "7")])).read("look", "500, rst1, body(found)").serve().await;
    assert!(told(&house).await.contains("found"));
    assert_eq!(house.tools.calls(), 3);
    house.close().await;

    for (script, code) in
        [("rst1", "OUTCOME_UNKNOWN"), ("500", "OUTCOME_UNKNOWN"), ("sil", "OUTCOME_UNKNOWN"), ("400", "UPSTREAM_REJECTED")]
    {
        let house = Setup::new(turn([call("pay", "7")])).write("pay", script);
        let house = house.set("tools.pay.attempt", "1s").set("tools.pay.timeout", "2s").serve().await;
        let said = told(&house).await;
        assert!(said.contains(code), "{script}: {said}");
        assert_eq!(house.tools.calls(), 1, "{script}: never repeated in silence");
        house.close().await;
    }
}

#[tokio::test]
async fn a_keyed_write_is_repeated_under_its_key() {
    let house = Setup::new(turn([call("pay", "7")]))
        .keyed("pay", "rst1, body(paid)")
        .set("tools.pay.attempts", "2")
        .set("tools.pay.attempt", "3s")
        .serve()
        .await;
    assert!(told(&house).await.contains("paid"));
    let keys: Vec<String> = house.tools.arrivals().iter().map(|a| a.header("idempotency-key").unwrap().to_owned()).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    house.close().await;
}

#[tokio::test]
async fn a_tool_that_fails_is_reported_to_the_model() {
    for (script, code, calls) in [
        ("404", "UPSTREAM_REJECTED", 1),
        ("500", "UPSTREAM_UNAVAILABLE", 3),
        ("rst1", "UPSTREAM_UNAVAILABLE", 3),
        ("sil", "UPSTREAM_TIMEOUT", 2),
    ] {
        let house = Setup::new(turn([call("look", "7")])).read("look", script);
        let house = house.set("tools.look.attempt", "1s").set("tools.look.timeout", "3s").set("tools.look.attempts", &calls.to_string());
        let house = house.serve().await;
        let said = told(&house).await;
        assert!(said.contains(code), "{script}: {said}");
        assert_eq!(house.tools.calls(), calls, "{script}");
        house.close().await;
    }
}

#[tokio::test]
async fn output_is_capped_and_says_so() {
    let house = Setup::new(turn([call("look", "7")])).read("look", Act::huge(100_000)).serve().await;
    let said = told(&house).await;
    assert!(said.len() <= 12 * 1024 && said.contains("xxx"), "{} bytes", said.len());
    assert!(house.api.metrics().await.count("ambit_tool_output_truncated_total", &[("tool", "look")]) == 1);
    house.close().await;
}

#[tokio::test]
async fn a_body_without_end_is_left() {
    let house = Setup::new(turn([call("look", "7")])).read("look", Act::endless("x")).set("tools.look.attempts", "1").serve().await;
    told(&house).await;
    house.tools.wait_for("the body to be left", |seen| seen.in_flight == 0).await;
    assert_eq!(house.tools.aborted(), 1);
    house.close().await;
}

#[tokio::test]
async fn a_host_that_is_not_allowed_is_never_reached() {
    let setup = Setup::new(turn([call("look", "7")])).read("look", Act::json(json!(1)));
    let (launch, provider, tools) = setup.furnish().await;
    let config = std::fs::read_to_string(launch.folder().join("ambit.toml")).unwrap();
    let closed = config.replace("allow = [\"127.0.0.1\"]", "allow = []");
    // An address is refused when it is read, a name when it is connected to.
    launch.write("ambit.toml", &closed);
    let end = launch.run(&["serve"]).await;
    assert!(end.code() != Some(0) && end.stderr.contains("http.allow"), "{end:?}");
    launch.write("ambit.toml", &closed.replace("http://127.0.0.1:", "http://localhost:"));
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    let house = House { launch, provider, tools, ambit, api };
    let said = told(&house).await;
    assert!(said.contains("BLOCKED"), "{said}");
    assert_eq!(house.tools.calls(), 0);
    house.close().await;
}

#[tokio::test]
async fn a_redirect_to_a_foreign_host_is_not_followed() {
    let away = Act::body("").status(302).header("location", "http://169.254.169.254/latest/meta-data/");
    let house = Setup::new(turn([call("look", "7")])).read("look", away).serve().await;
    let said = told(&house).await;
    assert!(said.contains("BLOCKED") || said.contains("UPSTREAM_REJECTED"), "{said}");
    assert_eq!(house.tools.calls(), 1);
    house.close().await;
}

#[tokio::test]
async fn irreversible_calls_run_alone_and_last() {
    let calls = [call("fire", "1"), call("pay", "2").id("c2"), call("look", "3").id("c3")];
    let setup = || Setup::new(turn(calls.clone())).irreversible("fire", Act::json(json!("fired"))).read("look", Act::json(json!("seen")));
    let house = setup().write("pay", Act::json(json!("paid"))).serve().await;
    house.session("hi").await;
    assert_eq!(&*house.tools.arrivals().last().unwrap().route, "fire");
    let order: Vec<String> = house.told().into_iter().map(|(id, _)| id).collect();
    assert_eq!(order, ["c1", "c2", "c3"], "results stand in the order asked, whatever ran first");
    house.close().await;

    let house = setup().write("pay", "400").serve().await;
    house.session("hi").await;
    assert_eq!(house.tools.seen_on("fire").calls, 0, "another write of the turn failed");
    assert!(house.told()[0].1.contains("NOT_ATTEMPTED"), "{:?}", house.told());
    house.close().await;
}

#[tokio::test]
async fn a_caller_can_only_offer_fewer_tools() {
    let house = Setup::new("ok").read("look", Act::json(json!(1))).write("pay", Act::json(json!(1))).serve().await;
    let mut request = House::request("hi");
    request["tools"] = json!({"deny": ["pay"]});
    house.api.run(&request).await.assert_status(200);
    assert_eq!(house.provider.arrivals()[0].offered(), ["look"]);
    request["tools"] = json!({"allow": ["other"]});
    house.api.run(&request).await.assert_problem(400, "INVALID_REQUEST");
    house.close().await;
}

#[tokio::test]
async fn a_tighter_limit_of_the_request_is_kept() {
    let script = Script::new([Act::calls([Call::raw("look", r#"{"id": "x{{n}}"}"#)])]);
    let house = Setup::new(script).read("look", Act::json(json!(1))).serve().await;
    let mut request = House::request("hi");
    request["limits"] = json!({"model_calls": 3, "tool_calls": 1});
    let session = house.api.run(&request).await.assert_status(200).json();
    assert_eq!(session["limits"]["model_calls"], 3);
    assert!(house.provider.calls() <= 3 && house.tools.calls() == 1, "{session:#}");
    request["limits"] = json!({"model_calls": 2});
    request["on_limit"] = json!("stop");
    let session: Value = house.api.run(&request).await.assert_status(200).json();
    assert_eq!(session["status"], "incomplete", "{session:#}");
    house.close().await;
}

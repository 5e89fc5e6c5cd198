//! What is no turn: refusals, breaks, silence, nonsense; and what is done about each.

use ambit_core::Cause::*;
use ambit_core::session::ModelFault::{self, *};

use super::upstream::*;
use super::*;
use ambit_core::Allowance;

/// Plays one script for every request of each dialect: the fault, the codes of the attempts, and words that people must see.
async fn check_each(acts: Vec<Act>, fault: ModelFault, expected: &[&str], words: &str) {
    for build in [Build::chat, Build::responses, Build::anthropic] {
        check_of(build, acts.clone(), fault, expected, words).await;
    }
}

/// The same for chat completions.
async fn check(acts: Vec<Act>, fault: ModelFault, expected: &[&str], words: &str) {
    check_of(Build::chat, acts, fault, expected, words).await;
}

/// The same for one dialect.
pub(super) async fn check_of(build: fn(Vec<String>) -> Build, acts: Vec<Act>, fault: ModelFault, expected: &[&str], words: &str) {
    let upstream = Upstream::answers(acts.clone()).await;
    let kit = build(vec![upstream.url()]).kit().with_tools();
    let outcome = kit.run(kit.heard_call()).await;
    assert_eq!(codes(&outcome), expected.join(" "), "{acts:?}");
    let failure = outcome.result.unwrap_err();
    // What was said before it broke off is kept, although it was held back while another attempt could be made.
    let said = words_sent(&acts).then_some("41 ");
    assert_eq!((failure.fault, failure.partial.as_deref()), (fault, said), "{acts:?} {failure:?}");
    assert!(failure.detail.contains(words), "{acts:?}: {:?} lacks {words:?}", failure.detail);
    assert_eq!(upstream.requests().len(), expected.len());
    assert_eq!(kit.heard.text(), "");
    for pair in upstream.requests().windows(2) {
        assert_eq!(pair[0].body, pair[1].body, "a repeated request is the same request");
    }
}

/// True if a script sends text before it fails.
fn words_sent(acts: &[Act]) -> bool {
    acts.iter().any(|act| matches!(act, Act::Send(bytes) if bytes.windows(3).any(|bytes| bytes == b"41 ")))
}

#[tokio::test]
async fn a_status_means_what_the_table_says() {
    let error = |status, body: &str| response(status, "content-type: application/json", body);
    let plain = |status| error(status, r#"{"error":{"message":"no luck"}}"#);
    check_each(plain(400), Rejected, &["http_400"], "no luck").await;
    check_each(plain(422), Rejected, &["http_422"], "no luck").await;
    check_each(plain(401), Unavailable(Auth), &["http_401"], "no luck").await;
    check_each(plain(403), Unavailable(Auth), &["http_403"], "no luck").await;
    check_each(plain(404), Unavailable(NotFound), &["http_404"], "base_url").await;
    check_each(error(404, r#"{"error":"model 'm' not found"}"#), Unavailable(NotFound), &["http_404"], "model 'm' not found").await;
    check_each(plain(408), Unavailable(Overloaded), &["http_408", "http_408"], "no luck").await;
    check_each(plain(429), Unavailable(RateLimited), &["http_429", "http_429"], "no luck").await;
    check_each(plain(500), Unavailable(Unreachable), &["http_500", "http_500"], "no luck").await;
    check_each(plain(503), Unavailable(Overloaded), &["http_503", "http_503"], "no luck").await;
    check_each(plain(529), Unavailable(Overloaded), &["http_529", "http_529"], "no luck").await;
    check_each(error(502, "<html><h1>Bad Gateway</h1>"), Unavailable(Unreachable), &["http_502", "http_502"], "Bad Gateway").await;
    check_each(error(402, r#"{"error":"Balance too low","status":402}"#), Unavailable(Quota), &["http_402"], "Balance too low").await;
    check_each(
        error(429, r#"{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}"#),
        Unavailable(Quota),
        &["out_of_quota"],
        "current quota",
    )
    .await;
    check_each(
        error(400, r#"{"error":{"code":400,"message":"request (9120 tokens) exceeds the available context size","type":"exceed_context_size_error"}}"#),
        Context,
        &["context_length"],
        "9120 tokens",
    )
    .await;
    check_each(
        error(400, r#"{"error":{"message":"Failed to call a function.","code":"tool_use_failed"}}"#),
        Mistake,
        &["model_mistake"],
        "Failed to call",
    )
    .await;
    check_each(error(400, r#"{"error":{"message":"filtered","code":"content_filter"}}"#), ContentFiltered, &["content_policy"], "filtered")
        .await;
    check_each(response(302, "location: http://127.0.0.1:1/", ""), Unavailable(NotFound), &["http_302"], "redirection").await;
    // Upstream's own word on it beats the status.
    check_each(response(500, "x-should-retry: false", "{}"), Unavailable(Unreachable), &["http_500"], "500").await;
    check_each(response(409, "x-should-retry: true", "{}"), Rejected, &["http_409", "http_409"], "409").await;
}

#[tokio::test]
async fn a_success_without_an_answer_is_none() {
    let twice = |code| vec![code, code];
    for (acts, fault, expected, words) in [
        (response(200, "content-type: text/html", "<html>log in</html>"), Unavailable(Protocol), twice("malformed"), "HTML"),
        (json("null"), Unavailable(Protocol), twice("malformed"), "null"),
        (json("{}"), Unavailable(Protocol), twice("malformed"), "no choices"),
        (json(""), Unavailable(Protocol), twice("malformed"), "nothing"),
        (json("{\"choices\":null}"), Unavailable(Protocol), twice("malformed"), "no choices"),
        (json("{\"choices\":[]}"), Unavailable(Protocol), twice("malformed"), "no choices"),
        (json("{\"choices\":7}"), Unavailable(Protocol), twice("malformed"), "no completion"),
        (json("{\"choices\":"), Unavailable(Protocol), twice("malformed"), "no JSON"),
        (json("{\"error\":\"gone wrong\"}"), Unavailable(Protocol), twice("error_in_success"), "gone wrong"),
        (json("{\"choices\":null,\"error\":{\"code\":429,\"message\":\"slower\"}}"), Unavailable(RateLimited), twice("http_429"), "slower"),
        (json("{\"choices\":null,\"error\":{\"code\":401,\"message\":\"who?\"}}"), Unavailable(Auth), vec!["http_401"], "who?"),
        (
            sse(&["data: {\"error\":{\"code\":502,\"message\":\"capacity\"},\"choices\":[]}\n\n"]),
            Unavailable(Unreachable),
            twice("http_502"),
            "capacity",
        ),
        (
            sse(&["data: {\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"too long\"}}\n\n"]),
            Context,
            vec!["context_length"],
            "too long",
        ),
        (sse(&[&chunk("{\"content\":\"41 \"}", None)]), Unavailable(StreamBroken), twice("stream_broken"), "end mark"),
        (sse(&[": only comments\n\n"]), Unavailable(Protocol), twice("malformed"), "no choices"),
        (sse(&[]), Unavailable(StreamBroken), twice("stream_broken"), "end mark"),
        (sse(&["data: {broken\n\n"]), Unavailable(Protocol), twice("malformed"), "no JSON"),
        (sse(&[&chunk("{}", Some("error"))]), Unavailable(Protocol), twice("error_in_success"), "`error`"),
        (sse(&[&chunk("{}", Some("malformed_function_call"))]), Mistake, vec!["model_mistake"], "could not read"),
    ] {
        check(acts, fault, &expected, words).await;
    }
}

/// What the first attempt is charged, whether that is a guess, and whether it has a first token.
async fn charged(build: fn(Vec<String>) -> Build, acts: Vec<Act>) -> (u64, bool, bool) {
    let upstream = Upstream::answers(acts).await;
    let kit = build(vec![upstream.url()]).kit();
    let outcome = kit.run(kit.heard_call()).await;
    assert!(outcome.result.is_err());
    let signals = kit.signals.0.lock().unwrap();
    let first_token = signals.iter().find_map(|signal| {
        let Signal::AttemptFinished { first_token, .. } = signal else { return None };
        Some(first_token.is_some())
    });
    (outcome.attempts[0].tokens(), outcome.attempts[0].at_least, first_token.unwrap())
}

#[tokio::test]
async fn an_error_in_a_success_costs_what_it_says_and_nothing_where_it_says_nothing() {
    let event = |data: &str| sse(&[&format!("data: {data}\n\n")]);
    let error = r#""error":{"code":400,"message":"no luck"}"#;
    let bare = format!("{{{error}}}");
    // Of another shape than the dialect's.
    let odd = format!("{{{error},\"choices\":7,\"output\":7,\"content\":7}}");
    for build in [Build::chat, Build::responses, Build::anthropic] {
        for acts in [json(&bare), json(&odd), event(&bare)] {
            assert_eq!(charged(build, acts.clone()).await, (0, false, false), "{acts:?}");
        }
    }
    let chat = format!(r#"{{{error},"usage":{{"prompt_tokens":10,"completion_tokens":4}}}}"#);
    assert_eq!(charged(Build::chat, json(&chat)).await, (14, false, false));
    assert_eq!(charged(Build::chat, event(&chat)).await, (14, false, false));
    let message = format!(r#"{{"type":"message",{error},"usage":{{"input_tokens":10,"output_tokens":4}}}}"#);
    assert_eq!(charged(Build::anthropic, json(&message)).await, (14, false, false));
    let response = format!(r#"{{"status":"failed",{error},"usage":{{"input_tokens":10,"output_tokens":4}}}}"#);
    assert_eq!(charged(Build::responses, json(&response)).await, (14, false, false));
    let failed = format!(r#"{{"type":"response.failed","response":{response}}}"#);
    assert_eq!(charged(Build::responses, event(&failed)).await, (14, false, false));
    let said = r#"{"type":"response.output_text.delta","delta":"so"}"#;
    let late = sse(&[&format!("data: {said}\n\n"), &format!("data: {failed}\n\n")]);
    assert_eq!(charged(Build::responses, late).await, (14, false, true));
    // It had begun, and says nothing: all of it is owed.
    let late = sse(&[&chunk("{\"content\":\"so\"}", None), &format!("data: {bare}\n\n")]);
    assert_eq!(charged(Build::chat, late).await, (26 + 100, true, true));
}

#[tokio::test]
async fn a_plain_answer_that_began_in_time_may_take_longer_than_its_head() {
    let body = completion("{\"content\":\"41\"}", "stop");
    let (begin, rest) = body.split_at(20);
    let begin = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{begin}", body.len());
    let acts = vec![Act::Send(begin.into()), Act::Wait(Duration::from_millis(900)), Act::Send(rest.into())];
    let upstream = Upstream::answers(acts).await;
    let mut build = Build::chat(vec![upstream.url()]);
    build.target.attempt = Duration::from_millis(500);
    let kit = build.kit();
    let outcome = kit.run(kit.call()).await;
    assert_eq!((codes(&outcome), outcome.result.unwrap().text.as_deref()), ("ok".to_owned(), Some("41")));
}

#[tokio::test]
async fn breaks_and_silence_are_told_apart() {
    check_each(vec![Act::Reset], Unavailable(Unreachable), &["reset", "reset"], "no answer from 127.0.0.1").await;
    check_each(vec![Act::Close], Unavailable(Unreachable), &["reset", "reset"], "no answer from 127.0.0.1").await;
    let mut cut = sse_open(&[&chunk("{\"content\":\"41 \"}", None)]);
    cut.push(Act::Close);
    check(cut, Unavailable(StreamBroken), &["reset", "reset"], "in the middle of the answer").await;

    // Nobody listens on the port of a listener that is gone.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kit = Build::chat(vec![format!("http://{address}/v1")]).kit();
    let outcome = kit.run(kit.call()).await;
    assert_eq!(codes(&outcome), "unreachable unreachable");
    assert!(outcome.attempts.iter().all(|record| record.tokens() == 0 && !record.at_least), "nothing arrived, nothing is owed");
    assert_eq!(outcome.result.unwrap_err().fault, Unavailable(Unreachable));
}

#[tokio::test]
async fn timers_end_what_is_silent() {
    let build = |upstream: &Upstream| {
        let mut build = Build::chat(vec![upstream.url()]);
        build.target.attempt = Duration::from_millis(300);
        build.target.chunk = Duration::from_millis(200);
        build
    };
    // Before the first token: the attempt's own time, comments or not.
    let mut dripping = sse_open(&[": ping\n\n"]);
    dripping.push(Act::Hang);
    for silent in [vec![Act::Hang], dripping] {
        let upstream = Upstream::answers(silent).await;
        let kit = build(&upstream).kit();
        let outcome = kit.run(kit.heard_call()).await;
        assert_eq!(codes(&outcome), "timeout timeout");
        let charged = |record: &ambit_core::AttemptRecord| record.at_least && record.tokens() == 26 + 100 && record.ms >= 290;
        assert!(outcome.attempts.iter().all(charged), "{:?}", outcome.attempts);
        assert_eq!(outcome.result.unwrap_err().fault, Unavailable(Unreachable));
        upstream.closed(2).await;
    }
    // After it: the time between two pieces, which comments do not prolong.
    let mut acts = sse_open(&[&chunk("{\"content\":\"41 \"}", None)]);
    for _ in 0..3 {
        acts.push(Act::Wait(Duration::from_millis(100)));
        acts.push(Act::Send(b"8\r\n: ping\n\n\r\n".to_vec()));
    }
    acts.push(Act::Hang);
    let upstream = Upstream::answers(acts).await;
    let kit = build(&upstream).kit().with_tools();
    let outcome = kit.run(kit.heard_call()).await;
    assert_eq!(codes(&outcome), "timeout_chunk timeout_chunk");
    assert!(outcome.attempts.iter().all(|record| record.ms < 450), "comments are no pieces: {:?}", outcome.attempts);
    let failure = outcome.result.unwrap_err();
    assert_eq!(failure.fault, Unavailable(StreamBroken));
    assert!(failure.detail.contains("silent"), "{}", failure.detail);
    // The whole call: its deadline, in the middle of the answer.
    let upstream = Upstream::answers(vec![Act::Hang]).await;
    let mut build = build(&upstream);
    build.target.attempt = Duration::from_secs(20);
    let kit = build.kit();
    let mut call = kit.call();
    call.deadline = Instant::now() + Duration::from_millis(450);
    let outcome = kit.run(call).await;
    assert_eq!((codes(&outcome), outcome.result.unwrap_err().fault), ("deadline".to_owned(), Deadline));
}

#[tokio::test]
async fn a_retry_heals_and_waits_as_long_as_it_is_told() {
    let ok = json(&completion("{\"content\":\"41\"}", "stop"));
    let refused = response(429, "retry-after-ms: 250\nretry-after: 1", "{}");
    let upstream = Upstream::plays(vec![refused, ok]).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let started = Instant::now();
    let outcome = kit.run(kit.call()).await;
    let elapsed = started.elapsed();
    assert_eq!((codes(&outcome), outcome.result.unwrap().text.as_deref()), ("http_429 ok".to_owned(), Some("41")));
    assert!((Duration::from_millis(250)..Duration::from_secs(2)).contains(&elapsed), "{elapsed:?}");
    assert_eq!(outcome.attempts[0].tokens(), 0, "a refusal costs nothing");

    let upstream = Upstream::answers(response(429, "retry-after: 7200", "{}")).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let outcome = kit.run(kit.call()).await;
    assert_eq!((codes(&outcome), outcome.result.unwrap_err().retry_after), ("http_429".to_owned(), Some(Duration::from_secs(7_200))));
}

#[tokio::test]
async fn nothing_is_repeated_once_a_piece_was_passed_on() {
    let cut = || {
        let mut acts = sse_open(&[&chunk("{\"content\":\"41 \"}", None), &chunk("{\"content\":\"un\"}", None)]);
        acts.push(Act::Close);
        acts
    };
    let words = words(&["whole"]);
    let whole = sse(&words.iter().map(String::as_str).collect::<Vec<_>>());

    // No tools: passed on at once, and then over.
    let upstream = Upstream::plays(vec![cut(), whole.clone()]).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let outcome = kit.run(kit.heard_call()).await;
    assert_eq!(codes(&outcome), "reset");
    let failure = outcome.result.unwrap_err();
    assert_eq!((failure.fault, failure.partial.as_deref()), (Unavailable(StreamBroken), Some("41 un")));
    assert_eq!(kit.heard.text(), "41 un");

    // Tools offered: held back, thrown away, asked again; nobody sees two answers glued together.
    let upstream = Upstream::plays(vec![cut(), whole.clone()]).await;
    let kit = Build::chat(vec![upstream.url()]).kit().with_tools();
    let outcome = kit.run(kit.heard_call()).await;
    assert_eq!((codes(&outcome), outcome.result.unwrap().text.as_deref()), ("reset ok".to_owned(), Some("whole")));
    assert_eq!(kit.heard.text(), "whole");

    // Nobody listens: the same, with or without tools.
    let upstream = Upstream::plays(vec![cut(), whole]).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    assert_eq!(codes(&kit.run(kit.call()).await), "reset ok");
}

#[tokio::test]
async fn bodies_are_bounded_to_the_byte() {
    // `response` is 8 KiB here, `sse_line` 4 KiB.
    let plain = |bytes: usize| {
        let empty = completion("{\"content\":\"\"}", "stop").len();
        json(&completion(&format!("{{\"content\":\"{}\"}}", "w".repeat(bytes - empty)), "stop"))
    };
    let line = |bytes: usize| {
        let empty = chunk("{\"content\":\"\"}", Some("stop")).trim_end().len();
        sse(&[&chunk(&format!("{{\"content\":\"{}\"}}", "w".repeat(bytes - empty)), Some("stop"))])
    };
    let total = |bytes: usize| {
        let said = words(&["x"]).concat();
        let filler = ": \n".repeat((bytes - said.len()) / 3) + &"\n".repeat((bytes - said.len()) % 3);
        sse(&[&filler, &said])
    };
    for (fits, acts) in [
        (true, plain(8 << 10)),
        (false, plain((8 << 10) + 1)),
        (true, line(4 << 10)),
        (false, line((4 << 10) + 1)),
        (true, total(8 << 10)),
        (false, total((8 << 10) + 1)),
    ] {
        let upstream = Upstream::answers(acts).await;
        let kit = Build::chat(vec![upstream.url()]).kit().with_tools();
        let outcome = kit.run(kit.heard_call()).await;
        assert_eq!(outcome.result.is_ok(), fits, "{:?}", outcome.result);
        assert_eq!(outcome.attempts[0].code.as_ref(), if fits { "ok" } else { "too_large" });
    }
    // An endless error is read so far and no further.
    let mut endless = vec![Act::Send(b"HTTP/1.1 400 X\r\ncontent-type: text/plain\r\n\r\n".to_vec())];
    endless.extend(vec![Act::Send(vec![b'x'; 32 << 10]); 3]);
    endless.push(Act::Hang);
    let upstream = Upstream::answers(endless).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let failure = kit.run(kit.call()).await.result.unwrap_err();
    assert_eq!((failure.fault, failure.status), (Rejected, Some(400)));
    assert!(failure.detail.chars().count() <= 500);
}

#[tokio::test]
async fn the_allowance_is_never_exceeded() {
    let upstream = Upstream::answers(vec![Act::Hang]).await;
    let mut build = Build::chat(vec![upstream.url()]);
    build.target.attempt = Duration::from_millis(150);
    let kit = build.kit();
    // One leg takes 26 + 100 tokens and 1,052 nano-dollars.
    for (attempts, tokens, cost, sent) in
        [(2, 252, 2_104, 2), (1, 252, 2_104, 1), (2, 251, 2_104, 1), (2, 252, 2_103, 1), (0, 252, 2_104, 0)]
    {
        let mut call = kit.call();
        call.allowance = Allowance { attempts, tokens, cost: Money(cost), deadline: 0 };
        let outcome = kit.run(call).await;
        assert_eq!(outcome.attempts.len(), sent, "{attempts} {tokens} {cost}");
        assert!(outcome.attempts.iter().map(ambit_core::AttemptRecord::tokens).sum::<u64>() <= tokens);
        assert!(outcome.attempts.iter().map(|record| record.cost.0).sum::<u64>() <= cost);
        if sent == 0 {
            assert_eq!(outcome.result.unwrap_err().fault, ModelFault::Allowance);
        }
    }
}

#[tokio::test]
async fn what_a_refused_leg_did_not_use_pays_the_next_one() {
    let ok = json(&completion("{\"content\":\"41\"}", "stop"));
    let upstream = Upstream::plays(vec![response(503, "", "{}"), ok]).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let mut call = kit.call();
    call.allowance = Allowance { attempts: 2, tokens: 126, cost: Money(1_052), deadline: 0 };
    let outcome = kit.run(call).await;
    assert_eq!(codes(&outcome), "http_503 ok");
    assert_eq!(outcome.attempts.iter().map(ambit_core::AttemptRecord::tokens).collect::<Vec<_>>(), [0, 14]);
}

#[tokio::test]
async fn a_secret_shows_nowhere() {
    for quoting in [
        response(401, "", r#"{"error":{"message":"who is `Bearer sk-test`, with more?"}}"#),
        json(r#"{"error":{"code":401,"message":"who is `Bearer sk-test`, with more?"}}"#),
    ] {
        let upstream = Upstream::answers(quoting).await;
        let kit = Build::chat(vec![upstream.url()]).kit();
        let outcome = kit.run(kit.call()).await;
        let signals = format!("{:?}", kit.signals.0.lock().unwrap());
        for shown in [format!("{:?}", kit.gateway), format!("{outcome:?}"), signals] {
            assert!(!shown.contains("sk-test") && !shown.contains("more"), "{shown}");
        }
        assert!(outcome.result.unwrap_err().detail.contains("who is `Bearer ***`, with ***?"));
    }
}

//! Clients that do what no library does: bodies that stop, heads that contradict themselves, ids of no kind, readers that do not
//! read. Each gets a clear answer or a closed connection, costs its own connection only, and leaves nothing behind.

use ambit_tests::process::Ambit;
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Reply};
use ambit_tests::within;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::house::{AGENT, House, Setup, assert_end};

/// Most headers of one request.
const HEADERS_MAX: usize = 100;
/// Most errors that one answer tells.
const ERRORS_MAX: usize = 64;

fn address(ambit: &Ambit) -> String {
    ambit.url().trim_start_matches("http://").to_owned()
}

async fn connect(house: &House) -> TcpStream {
    TcpStream::connect(address(&house.ambit)).await.unwrap()
}

/// What the server says until it closes the connection. A reset is a close as well.
async fn rest(mut socket: TcpStream) -> String {
    let mut said = Vec::new();
    let read = async {
        let mut piece = vec![0; 16 * 1024];
        while let Ok(n @ 1..) = socket.read(&mut piece).await {
            said.extend_from_slice(&piece[..n]);
        }
    };
    within("the end of a connection", read).await;
    String::from_utf8_lossy(&said).into_owned()
}

/// Sends these bytes on a connection of their own and reads to its end.
async fn send(house: &House, bytes: &[u8]) -> String {
    let mut socket = connect(house).await;
    // The server may close before it has read everything.
    let _ = socket.write_all(bytes).await;
    rest(socket).await
}

/// The status of an answer, 0 if there is none.
fn status(said: &str) -> u16 {
    said.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|status| status.parse().ok()).unwrap_or_default()
}

fn problem(said: &str) -> Value {
    let (_, body) = said.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_default()
}

/// The head of a `POST /v1/sessions` with more lines of its own.
fn post(house: &House, more: &str) -> String {
    let host = address(&house.ambit);
    format!("POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n{more}\r\n")
}

fn get(house: &House, path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{more}\r\n", address(&house.ambit))
}

/// A body that ends before its announced length, by a closed side or a closed connection, begins no session.
#[tokio::test]
async fn bodies_cut_in_mid_air() {
    let house = Setup::new("ok").serve().await;
    for body in ["", "{\"agent\": ", "{\"agent\": \"clerk\", \"input\": \"hi\"}"] {
        for framing in ["content-length: 1000\r\n", "transfer-encoding: chunked\r\n"] {
            let chunked = framing.starts_with("transfer");
            let body = if chunked && !body.is_empty() { format!("{:x}\r\n{body}", body.len() + 9) } else { body.to_owned() };
            let request = post(&house, framing) + &body;
            let mut socket = connect(&house).await;
            socket.write_all(request.as_bytes()).await.unwrap();
            socket.shutdown().await.unwrap();
            let said = rest(socket).await;
            assert!(said.is_empty() || status(&said) == 400, "{said}");
            let mut socket = connect(&house).await;
            socket.write_all(request.as_bytes()).await.unwrap();
            drop(socket);
            assert_quiet(&house.api).await;
        }
    }
    assert_eq!(house.provider.calls(), 0);
    house.close().await;
}

/// A body that does not come is waited for as long as its caller would wait for the answer.
#[tokio::test]
async fn a_body_that_does_not_come() {
    let house = Setup::new("ok").serve().await;
    let request = post(&house, "content-length: 1000\r\nx-request-timeout-ms: 300\r\n") + "{\"agent\":";
    let said = send(&house, request.as_bytes()).await;
    assert_eq!((status(&said), &problem(&said)["code"]), (504, &json!("DEADLINE_EXCEEDED")), "{said}");
    assert_eq!(house.provider.calls(), 0);
    house.close().await;
}

/// A chunk that is no chunk, a length that is no length: refused, and never read as the beginning of another request.
#[tokio::test]
async fn heads_that_contradict_themselves() {
    let house = Setup::new("ok").serve().await;
    let body = House::request("hi").to_string();
    let n = body.len();
    for (head, expected) in [
        (format!("content-length: {n}\r\ncontent-length: {}\r\n", n - 1), 400),
        (format!("content-length: {n}, {}\r\n", n - 1), 400),
        ("content-length: -1\r\n".to_owned(), 400),
        ("content-length: 99999999999999999999999\r\n".to_owned(), 400),
        ("transfer-encoding: gzip\r\n".to_owned(), 400),
        ("x-bad: a\u{1}b\r\n".to_owned(), 400),
        ("x-bad : a\r\n".to_owned(), 400),
        ("x\u{7f}: a\r\n".to_owned(), 400),
        (" folded: a\r\n".to_owned(), 400),
        ("x-many: 1\r\n".repeat(HEADERS_MAX + 1), 431),
        (format!("host: {}\r\n", address(&house.ambit)), 403),
    ] {
        let said = send(&house, (post(&house, &head) + &body).as_bytes()).await;
        assert_eq!(status(&said), expected, "{head:?}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{head:?}: {said}");
        assert_quiet(&house.api).await;
    }
    assert_eq!(house.provider.calls(), 0);
    house.close().await;
}

/// Two ways to tell one length: whichever is taken, what follows the body is not taken for a request.
#[tokio::test]
async fn a_request_is_not_smuggled_behind_a_body() {
    let house = Setup::new("ok").serve().await;
    let smuggled = format!("GET /v1/agents HTTP/1.1\r\nhost: {}\r\n\r\n", address(&house.ambit));
    for head in ["content-length: 5\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 5\r\n"] {
        let said = send(&house, (post(&house, head) + "0\r\n\r\n" + &smuggled).as_bytes()).await;
        assert_eq!((status(&said), said.matches("HTTP/1.1 ").count()), (400, 1), "{said}");
        assert_quiet(&house.api).await;
    }
    house.close().await;
}

/// What is long and well formed is either taken or refused by name; the next caller is answered as ever.
#[tokio::test]
async fn heads_without_measure() {
    let house = Setup::new("ok").serve().await;
    let long = |n: usize| "x".repeat(n);
    for (request, expected) in [
        (get(&house, "/livez", &format!("x-long: {}\r\n", long(63 << 10))), &[200][..]),
        (get(&house, "/livez", &format!("x-long: {}\r\n", long(65 << 10))), &[431]),
        (get(&house, "/livez", &format!("x-long: {}\r\n", long(100 << 10))), &[431]),
        (get(&house, "/livez", &format!("x-long: {}\r\n", long(1 << 20))), &[431]),
        (get(&house, &format!("/livez?{}", long(1 << 20)), ""), &[414, 431]),
        // Two headers are there already.
        (get(&house, "/livez", &"x-one: 1\r\n".repeat(HEADERS_MAX - 2)), &[200]),
        (get(&house, "/livez", &"x-one: 1\r\n".repeat(HEADERS_MAX - 1)), &[431]),
        (get(&house, "/livez", &"x-one: 1\r\n".repeat(HEADERS_MAX * 2)), &[431]),
        (get(&house, "/livez", &format!("x-request-id: {}\r\n", long(4096))), &[200]),
        (get(&house, "/livez", "traceparent: 00-zz-zz-zz\r\ntracestate: ,,,,\r\n"), &[200]),
    ] {
        let said = send(&house, request.as_bytes()).await;
        // A head that is still being sent when it is refused may see its connection reset before the answer.
        let reset = said.is_empty() && request.len() > 256 << 10;
        assert!(reset || expected.contains(&status(&said)), "{} bytes: {said}", request.len());
        assert!(!said.contains(&long(256)), "a caller's own id is not repeated at any length");
        assert_eq!(house.api.get("/livez").await.status, 200);
    }
    house.close().await;
}

/// What is no HTTP at all closes its own connection.
#[tokio::test]
async fn what_is_no_http() {
    let house = Setup::new("ok").serve().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on, a greeting of TLS"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthis is no frame, and it is long enough to be taken for the head of one",
        b"\r\n\r\n\0\0\0\0\r\n\r\n",
        b"HELO example.org\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
    ] {
        let said = send(&house, bytes).await;
        assert!(!said.starts_with("HTTP/1.1 2") && !said.starts_with("HTTP/1.1 5"), "{said}");
        assert_eq!(house.api.get("/livez").await.status, 200);
    }
    // No Host at all, and none of ours.
    for (head, expected) in [("", 403), ("host: example.com\r\n", 403), ("host: \r\n", 403)] {
        let said = send(&house, format!("GET /v1/agents HTTP/1.1\r\nconnection: close\r\n{head}\r\n").as_bytes()).await;
        assert_eq!(status(&said), expected, "{head:?}: {said}");
        assert_eq!(problem(&said)["code"], "FORBIDDEN", "{said}");
    }
    house.close().await;
}

/// A reader of HTTP/2 could hold a stream without reading it, and look alive: only HTTP/1.1 is spoken.
#[tokio::test]
async fn http_2_is_not_spoken() {
    let house = Setup::new("ok").serve().await;
    // The preface and an empty frame of settings; the answer ends, which a connection of HTTP/2 would not.
    let said = send(&house, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said:?}");
    house.close().await;
}

/// Requests sent without waiting for answers get theirs in order.
#[tokio::test]
async fn requests_in_one_breath() {
    let house = Setup::new("ok").serve().await;
    let one = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", address(&house.ambit));
    let said = send(&house, (one.repeat(50) + &get(&house, "/version", "")).as_bytes()).await;
    assert_eq!(said.matches("HTTP/1.1 200").count(), 51, "{said}");
    house.close().await;
}

/// A session is found by either of its ids in any case, and by nothing else. An error repeats little of what it was asked for.
#[tokio::test]
async fn ids_of_other_kinds() {
    let house = Setup::new("ok").serve().await;
    let id = house.session("hi").await["id"].as_str().unwrap().to_owned();
    let ulid = id.trim_start_matches("ses_").to_owned();
    for known in [format!("resp_{ulid}"), format!("ses_{}", ulid.to_lowercase()), format!("resp_{}", ulid.to_lowercase())] {
        assert_eq!(house.api.get(&format!("/v1/sessions/{known}")).await.assert_status(200).json()["id"], json!(id), "{known}");
    }
    for unknown in [
        ulid.clone(),
        format!("SES_{ulid}"),
        format!("run_{ulid}"),
        format!("ses_{ulid}0"),
        format!("ses_{}", &ulid[1..]),
        format!("ses_8{}", &ulid[1..]),
        format!("ses_{ulid}%00"),
        format!("ses_{ulid}%2f..%2f"),
        "%ff%fe".to_owned(),
        "..%2f..%2fetc%2fpasswd".to_owned(),
        format!("ses_{}", "A".repeat(60_000)),
    ] {
        for below in ["", "/events"] {
            let problem = house.api.get(&format!("/v1/sessions/{unknown}{below}")).await.assert_problem(404, "SESSION_NOT_FOUND");
            assert!(problem.to_string().len() < 1_000, "{problem}");
        }
        let cancel = house.api.request(Method::POST, &format!("/v1/sessions/{unknown}/cancel"));
        house.api.send(cancel).await.assert_problem(404, "SESSION_NOT_FOUND");
    }
    let said = send(&house, get(&house, &format!("/v1/sessions/ses_{}", "A".repeat(1 << 20)), "").as_bytes()).await;
    assert!([0, 414, 431].contains(&status(&said)), "{said}");
    house.close().await;
}

/// Whoever resumes behind the last event still gets the terminal one, once: a stream always says how its session ended.
#[tokio::test]
async fn a_resume_past_the_end() {
    let house = Setup::new("ok(done)").serve().await;
    let id = house.session("hi").await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{id}/events");
    let resumed = async |after: &str| house.api.stream(house.api.request(Method::GET, &path).header("last-event-id", after)).await;
    let whole = resumed("0").await.events().await.to_verdict().await;
    let last = whole.last().unwrap().id.clone().unwrap();
    for after in [last.as_str(), "999999", "999999.7", "18446744073709551615"] {
        let events = resumed(after).await.events().await.to_verdict().await;
        assert_eq!((events.len(), events[0].kind()), (1, "session.completed"), "after {after}");
    }
    for after in ["-1", "1.x", "18446744073709551616", "one", "1 2", ""] {
        let problem = resumed(after).await.whole().await.assert_problem(400, "INVALID_REQUEST");
        assert_eq!(problem["errors"][0]["pointer"], "last-event-id", "{problem:#}");
    }
    house.close().await;
}

/// A reader that never reads holds its own connection only: the session ends all the same, and others are answered.
#[tokio::test]
async fn a_reader_that_does_not_read() {
    let piece = "0123456789abcdef".repeat(256);
    let house = Setup::new(Act::reply(Reply::pieces([piece.as_str(); 64]))).serve().await;
    let mut body = House::request("hi");
    (body["stream"], body["on_disconnect"]) = (json!(true), json!("continue"));
    let body = body.to_string();
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut socket = socket.connect(address(&house.ambit).parse().unwrap()).await.unwrap();
        socket.write_all((post(&house, &format!("content-length: {}\r\n", body.len())) + &body).as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    house.provider.wait_for("every answer", |seen| seen.finished == 4).await;
    assert_quiet(&house.api).await;
    let listed = house.api.get("/v1/sessions").await.assert_status(200).json();
    for session in listed["data"].as_array().unwrap() {
        assert_end(session, "completed", "answered");
    }
    drop(sockets);
    within("the streams to be closed", async {
        while house.api.metrics().await.sum("ambit_sse_connections", &[]) != Some(0.0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    house.close().await;
}

/// A caller who closes its sending side and stays to read is a caller who left, as far as HTTP/1 can tell: the session is
/// cancelled, and nothing is left of it.
#[tokio::test]
async fn half_closed_connections() {
    let house = Setup::new("held ok").serve().await;
    let body = House::request("hi").to_string();
    let mut socket = connect(&house).await;
    socket.write_all((post(&house, &format!("content-length: {}\r\n", body.len())) + &body).as_bytes()).await.unwrap();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    socket.shutdown().await.unwrap();
    house.provider.wait_for("the end of the model call", |seen| seen.aborted == 1).await;
    let said = rest(socket).await;
    assert!(said.is_empty(), "{said}");
    assert_quiet(&house.api).await;
    let listed = house.api.get("/v1/sessions").await.assert_status(200).json();
    assert_end(&listed["data"][0], "cancelled", "cancelled");
    house.close().await;
}

/// A body that is wrong in ten thousand places is told of the first ones, in an answer that is no larger than need be.
#[tokio::test]
async fn more_mistakes_than_anybody_reads() {
    let house = Setup::new("ok").serve().await;
    let mut body = json!({"agent": AGENT, "input": "hi"});
    for n in 0..10_000 {
        body[format!("unknown_{n}")] = json!(n);
    }
    body["k".repeat(20_000)] = json!(1);
    let answer = house.api.run(&body).await;
    let problem = answer.assert_problem(400, "INVALID_REQUEST");
    assert_eq!(problem["errors"].as_array().unwrap().len(), ERRORS_MAX);
    assert!(problem["detail"].as_str().unwrap().ends_with("(and 10000 more)"), "{}", problem["detail"]);
    assert!(answer.body.len() < 32 << 10, "{} bytes", answer.body.len());
    for (body, code, status) in [
        (json!({"agent": "n".repeat(200_000), "input": "hi"}), "AGENT_NOT_FOUND", 404),
        (json!({"agent": AGENT, "input": "hi", "tools": {"allow": ["t".repeat(200_000)]}}), "INVALID_REQUEST", 400),
    ] {
        let answer = house.api.run(&body).await;
        answer.assert_problem(status, code);
        assert!(answer.body.len() < 8 << 10, "{} bytes", answer.body.len());
    }
    // Deep nesting is refused by the reader of JSON before it costs a stack.
    let deep = format!("{{\"agent\":\"{AGENT}\",\"input\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let request = house.api.request(Method::POST, "/v1/sessions").header("content-type", "application/json").body(deep);
    house.api.send(request).await.assert_problem(400, "INVALID_REQUEST");
    house.close().await;
}

/// The `type` of a problem leads to its page on the server that answered, and a wrong method says which ones there are.
#[tokio::test]
async fn a_problem_leads_to_its_page() {
    let house = Setup::new("ok").serve().await;
    let wrong = house.api.send(house.api.request(Method::DELETE, "/v1/sessions")).await;
    let problem = wrong.assert_problem(405, "METHOD_NOT_ALLOWED");
    let allowed = wrong.header("allow").unwrap_or_default();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    let page = house.api.get(problem["type"].as_str().unwrap()).await;
    assert_eq!(page.assert_status(200).header("content-type"), Some("text/markdown; charset=utf-8"));
    assert!(page.text().starts_with("# METHOD_NOT_ALLOWED\n"), "{}", page.text());
    let index = house.api.get("/problems").await;
    assert!(index.assert_status(200).text().contains("[SATURATED](SATURATED.md)"));
    for path in ["/problems/SATURATED.md", "/problems/README.md"] {
        house.api.get(path).await.assert_status(200);
    }
    house.api.get("/problems/nothing").await.assert_problem(404, "NOT_FOUND");
    house.close().await;
}

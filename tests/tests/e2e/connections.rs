//! Connections are bounded in number, and none is held by saying nothing.

use ambit_tests::within;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::house::{House, Setup};

/// The smallest number of connections that the configuration takes.
const CONNECTIONS: usize = 16;

async fn connect(house: &House) -> TcpStream {
    let address = house.ambit.url().strip_prefix("http://").unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// Asks for `/livez` and keeps the connection.
async fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
}

async fn answered(stream: &mut TcpStream) -> String {
    let mut answer = vec![0; 16 << 10];
    let read = within("an answer", stream.read(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[tokio::test]
async fn one_connection_too_many_waits_for_a_place() {
    let house = Setup::new("ok").set("server.connections", &CONNECTIONS.to_string()).serve().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect(&house).await;
        ask(&mut stream).await;
        assert!(answered(&mut stream).await.starts_with("HTTP/1.1 200"));
        held.push(stream);
    }
    let mut late = connect(&house).await;
    ask(&mut late).await;
    // Those who have a place are still served, and the one without has heard nothing by then.
    ask(&mut held[0]).await;
    assert!(answered(&mut held[0]).await.starts_with("HTTP/1.1 200"));
    let early = late.try_read(&mut [0; 1]);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(held.pop());
    assert!(answered(&mut late).await.starts_with("HTTP/1.1 200"));
    drop((held, late));
    house.close().await;
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_waited_for() {
    let house = Setup::new("ok").set("server.head", "300ms").serve().await;
    for said in ["", "GET /livez HTTP/1.1\r\nhost: local", "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut stream = connect(&house).await;
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        // Ends only if the server closes: also a connection that is kept after an answer, and one that never spoke.
        within("the server to close", stream.read_to_end(&mut all)).await.unwrap();
        assert_eq!(said.ends_with("\r\n\r\n"), String::from_utf8_lossy(&all).starts_with("HTTP/1.1 200"), "{said:?}");
    }
    house.close().await;
}

//! One connection: HTTP/1.1 requests in, bytes out. It knows no scripts.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::limit::{BODY_MAX, HEAD_MAX, PIPELINED_MAX};

/// The connection is of no more use: the peer left, or sent what is no HTTP/1.1 within the bounds.
#[derive(Debug)]
pub(super) struct Gone;

/// A request, read whole.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query as sent.
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether the peer wants the connection closed after the answer.
    pub(super) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Wire {
        // Without it small pieces would be glued together, which is what the pieces are there to prevent.
        let _ = stream.set_nodelay(true);
        Wire { stream, buffer: BytesMut::new() }
    }

    /// Waits until the peer has begun to send, without taking anything.
    pub(super) async fn begun(&self) -> Result<(), Gone> {
        if !self.buffer.is_empty() {
            return Ok(());
        }
        match self.stream.peek(&mut [0; 1]).await {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => Err(Gone),
        }
    }

    /// Reads one request whole.
    pub(super) async fn request(&mut self) -> Result<Request, Gone> {
        let mut request = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.split_to(end + 4);
                break parse_head(&head[..end]).ok_or(Gone)?;
            }
            self.fill(HEAD_MAX).await?;
        };
        if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        if request.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            request.body = self.chunked().await?;
        } else if let Some(length) = request.header("content-length") {
            let length = length.parse().ok().filter(|length| *length <= BODY_MAX).ok_or(Gone)?;
            request.body = self.exactly(length).await?;
        }
        Ok(request)
    }

    async fn exactly(&mut self, length: usize) -> Result<Bytes, Gone> {
        while self.buffer.len() < length {
            self.fill(BODY_MAX).await?;
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn chunked(&mut self) -> Result<Bytes, Gone> {
        let mut body = BytesMut::new();
        loop {
            let line = self.line().await?;
            let size = std::str::from_utf8(&line).ok().and_then(|line| line.split(';').next());
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok()).ok_or(Gone)?;
            if body.len() + size > BODY_MAX {
                return Err(Gone);
            }
            if size == 0 {
                // Trailers, up to the empty line.
                while !self.line().await?.is_empty() {}
                return Ok(body.freeze());
            }
            body.extend_from_slice(&self.exactly(size).await?);
            if !self.line().await?.is_empty() {
                return Err(Gone);
            }
        }
    }

    async fn line(&mut self) -> Result<Bytes, Gone> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(end).freeze();
                self.buffer.advance(2);
                return Ok(line);
            }
            self.fill(HEAD_MAX).await?;
        }
    }

    /// Reads something more into the buffer, which may hold less than `max` bytes before.
    async fn fill(&mut self, max: usize) -> Result<(), Gone> {
        if self.buffer.len() >= max {
            return Err(Gone);
        }
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => Err(Gone),
        }
    }

    /// Resolves when the peer has left. What it sends meanwhile is kept for the next request.
    ///
    /// Cancel safe: nothing that was read is lost.
    pub(super) async fn gone(&mut self) {
        while self.fill(PIPELINED_MAX).await.is_ok() {}
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.stream.write_all(bytes).await.map_err(|_| Gone)?;
        self.stream.flush().await.map_err(|_| Gone)
    }

    /// Closes with a TCP reset.
    pub(super) fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    /// Closes in order.
    pub(super) async fn close(mut self) {
        let _ = self.stream.shutdown().await;
    }
}

fn parse_head(head: &[u8]) -> Option<Request> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let header = |line: &str| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let headers = lines.map(header).collect::<Option<Vec<_>>>()?;
    Some(Request { method, target, headers, body: Bytes::new() })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

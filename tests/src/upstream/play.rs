//! Plays acts on a connection: the order of events in one act stands here and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::net::TcpStream;

use super::act::{Act, Framing, Halt, Payload, Piece, Point};
use super::data;
use super::record::{Fate, Shared};
use super::reply::Asked;
use super::wire::{Gone, Wire};

/// Serves one connection until either side ends it.
pub(super) async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let mut wire = Wire::new(stream);
    while wire.begun().await.is_ok() {
        if let Some((ticket, act)) = shared.arrive_unread() {
            let halt = act.halt.map_or(Halt::Reset, |(_, halt)| halt);
            ticket.end(stop(wire, halt).await);
            return;
        }
        let Ok(request) = wire.request().await else { return };
        let close = request.wants_close();
        let (ticket, act, asked) = shared.arrive(request);
        match play(&act, &asked, &mut wire, &shared).await {
            Ok(Played::Whole { reusable }) => {
                ticket.end(Fate::Finished);
                if close || !reusable {
                    return wire.close().await;
                }
            }
            Ok(Played::Halted(halt)) => return ticket.end(stop(wire, halt).await),
            Err(Gone) => return ticket.end(Fate::Aborted),
        }
    }
}

/// Ends the connection by an accident.
async fn stop(mut wire: Wire, halt: Halt) -> Fate {
    match halt {
        Halt::Hang => {
            wire.gone().await;
            Fate::Aborted
        }
        Halt::Reset => {
            wire.reset();
            Fate::Halted
        }
        Halt::Cut => {
            wire.close().await;
            Fate::Halted
        }
    }
}

enum Played {
    Whole { reusable: bool },
    Halted(Halt),
}

async fn play(act: &Act, asked: &Asked, wire: &mut Wire, shared: &Shared) -> Result<Played, Gone> {
    let answer = Answer::of(act, asked);
    let mut stage = Stage { act, pieces: answer.pieces.len(), shared };
    pause(act.latency, wire).await?;
    if let Some(halt) = stage.reach(Point::Read, wire).await? {
        return Ok(Played::Halted(halt));
    }
    wire.write(&answer.head(act)).await?;
    if let Some(halt) = stage.reach(Point::Head, wire).await? {
        return Ok(Played::Halted(halt));
    }
    for (at, piece) in answer.pieces.iter().enumerate() {
        if let Some(halt) = stage.reach(Point::Pieces(at), wire).await? {
            return Ok(Played::Halted(halt));
        }
        pause(piece.wait.saturating_add(act.pace), wire).await?;
        wire.write(&answer.framed(&piece.bytes)).await?;
    }
    if let Some(bytes) = &answer.endless {
        let framed = answer.framed(bytes);
        // Ends when the peer leaves: nothing else can end it.
        loop {
            wire.write(&framed).await?;
        }
    }
    if let Some(halt) = stage.reach(Point::Sent, wire).await? {
        return Ok(Played::Halted(halt));
    }
    if answer.framing == Framing::Chunked {
        wire.write(b"0\r\n\r\n").await?;
    }
    Ok(Played::Whole { reusable: answer.framing != Framing::Close && !act.wants_close() })
}

/// Waits, unless the peer leaves.
async fn pause(time: Duration, wire: &mut Wire) -> Result<(), Gone> {
    if time.is_zero() {
        return Ok(());
    }
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        () = wire.gone() => Err(Gone),
    }
}

/// Where the play is, against where the act wants to wait or to break.
struct Stage<'a> {
    act: &'a Act,
    pieces: usize,
    shared: &'a Shared,
}

impl Stage<'_> {
    async fn reach(&mut self, here: Point, wire: &mut Wire) -> Result<Option<Halt>, Gone> {
        if self.act.hold.is_some_and(|point| self.is(point, here)) {
            let mut gate = self.shared.gate.subscribe();
            tokio::select! {
                _ = gate.wait_for(|open| *open) => {}
                () = wire.gone() => return Err(Gone),
            }
        }
        Ok(self.act.halt.filter(|(point, _)| self.is(*point, here)).map(|(_, halt)| halt))
    }

    fn is(&self, wanted: Point, here: Point) -> bool {
        let wanted = match wanted {
            // `Answer::of` has made two pieces of a single one.
            Point::Half => Point::Pieces(self.pieces / 2),
            Point::Pieces(n) if n >= self.pieces => Point::Sent,
            Point::Unread | Point::Read | Point::Head | Point::Pieces(_) | Point::Sent => wanted,
        };
        wanted == here
    }
}

/// An act as bytes.
struct Answer {
    content_type: Option<&'static str>,
    pieces: Vec<Piece>,
    endless: Option<Bytes>,
    framing: Framing,
}

impl Answer {
    fn of(act: &Act, asked: &Asked) -> Answer {
        const STREAM: Option<&str> = Some("text/event-stream; charset=utf-8");
        const JSON: Option<&str> = Some("application/json");
        let (content_type, mut pieces, endless) = match &act.payload {
            Payload::Nothing => (None, Vec::new(), None),
            Payload::Reply(reply) if asked.stream => (STREAM, reply.streamed(asked).into_iter().map(Piece::from).collect(), None),
            Payload::Reply(reply) => (JSON, vec![reply.plain(asked).into()], None),
            Payload::Error(status) => (JSON, vec![Bytes::from(asked.shape.error(*status).to_string()).into()], None),
            Payload::Json(value) => {
                let mut value = value.clone();
                data::fill(&mut value, asked);
                (JSON, vec![Bytes::from(value.to_string()).into()], None)
            }
            Payload::Body(pieces) => (None, pieces.clone(), None),
            Payload::Sse(pieces) => (STREAM, pieces.clone(), None),
            Payload::Endless(bytes) => (None, Vec::new(), Some(bytes.clone())),
        };
        let streamed = content_type == STREAM;
        let breaks_at_half = [act.hold, act.halt.map(|(point, _)| point)].contains(&Some(Point::Half));
        if breaks_at_half && let [only] = pieces.as_slice() {
            pieces = shredded(only, only.bytes.len().div_ceil(2).max(1));
        }
        if let Some(bytes) = act.shred {
            pieces = pieces.iter().flat_map(|piece| shredded(piece, bytes)).collect();
        }
        let framing = act.framing.unwrap_or_else(|| match act.halt {
            Some((_, Halt::Cut)) if streamed => Framing::Close,
            Some(_) | None if streamed || endless.is_some() => Framing::Chunked,
            Some(_) | None => Framing::Length,
        });
        Answer { content_type, pieces, endless, framing }
    }

    fn head(&self, act: &Act) -> Bytes {
        let length = self.pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>().to_string();
        let date = http_date(OffsetDateTime::now_utc());
        let (name, value) = match self.framing {
            Framing::Length => ("content-length", length.as_str()),
            Framing::Chunked => ("transfer-encoding", "chunked"),
            Framing::Close => ("connection", "close"),
        };
        let mut all = vec![("date", date.as_str())];
        if let Some(content_type) = self.content_type {
            all.push(("content-type", content_type));
        }
        if act.status != 204 {
            all.push((name, value));
        }
        all.retain(|(name, _)| !act.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
        let mut head = format!("HTTP/1.1 {} {}\r\n", act.status, reason(act.status));
        for (name, value) in all {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        for (name, value) in act.headers.iter().filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {}\r\n", filled(value)));
        }
        head.push_str("\r\n");
        Bytes::from(head)
    }

    fn framed(&self, bytes: &Bytes) -> Bytes {
        if self.framing != Framing::Chunked || bytes.is_empty() {
            return bytes.clone();
        }
        let mut framed = BytesMut::with_capacity(bytes.len() + 16);
        framed.put_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        framed.put_slice(bytes);
        framed.put_slice(b"\r\n");
        framed.freeze()
    }
}

/// A piece in parts of so many bytes; the first keeps the pause.
fn shredded(piece: &Piece, bytes: usize) -> Vec<Piece> {
    let starts = (0..piece.bytes.len()).step_by(bytes);
    let part = |start: usize| Piece {
        wait: if start == 0 { piece.wait } else { Duration::ZERO },
        bytes: piece.bytes.slice(start..piece.bytes.len().min(start + bytes)),
    };
    starts.map(part).collect()
}

/// Fills `{{http_date:+3600s}}` and `{{epoch_ms:+7200s}}`.
fn filled(value: &str) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, tail)) = after.split_once("}}") else { break };
        out.push_str(before);
        let (kind, offset) = name.split_once(':').unwrap_or((name, "+0s"));
        let seconds = offset.trim_end_matches('s').parse::<i64>().unwrap_or_default();
        let at = OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        match kind {
            "http_date" => out.push_str(&http_date(at)),
            "epoch_ms" => out.push_str(&(at.unix_timestamp_nanos() / 1_000_000).to_string()),
            other => panic!("unknown template `{{{{{other}}}}}` in a header"),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

fn http_date(at: OffsetDateTime) -> String {
    at.format(&Rfc2822).unwrap_or_default().replace("+0000", "GMT")
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        404 => "Not Found",
        408 => "Request Timeout",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Whatever",
    }
}

impl Act {
    fn wants_close(&self) -> bool {
        self.headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close"))
    }
}

//! The short form of scripts, as the list of faults writes them.
//!
//! ```text
//! script  = [ "[" ] act { "," act } [ "]" ]                 e.g.  [500 x4, 429(ra=2), slow(800)ok]
//! act     = { tempo } base [ end ] [ " x" count ]
//! tempo   = slow(MS)      latency before the head
//!         | drip(MS)      pause before every piece
//!         | held          waits before the head until the test lets go
//! base    = ok | ok(TEXT)                                   a completion
//!         | call(NAME {JSON} + NAME {JSON} ..)              a completion that asks for these calls
//!         | endless(NAME)                                   asks for this call for ever, with new arguments each time
//!         | sse(TEXT, TEXT, END)                            a stream; without END no finish reason and no [DONE]
//!         | 200 .. 599 | 429(ra=2; ra-ms=1500; NAME=VALUE)  an error body with headers (ra = retry-after)
//!         | body(TEXT) | huge(BYTES) | html | null | garbage | error   the last: an error body with status 200
//!         | sil | deaf                                      silence after reading, without reading
//!         | rst0 | rst1                                     reset before reading, after reading the whole request
//!         | cut                                             a completion without its second half
//! end     = rst | cut | hang                                the accident after the last piece, before the end of the body
//! ```

use std::time::Duration;

use serde_json::{Deserializer, Value};

use super::act::{Act, Halt, Point};
use super::data::ScriptError;
use super::limit;
use super::reply::{Call, Reply};
use super::script::Script;

/// Reads a script.
///
/// # Errors
/// With what is wrong with it.
pub fn script(text: &str) -> Result<Script, ScriptError> {
    let text = text.trim();
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let mut acts = Vec::new();
    for item in split(list, ',') {
        let (item, count) = counted(item.trim())?;
        let act = act(item)?;
        acts.extend(std::iter::repeat_n(act, count));
    }
    if acts.len() > limit::ACTS_MAX {
        return Err(ScriptError::new(format!("more than {} acts", limit::ACTS_MAX)));
    }
    Ok(Script::new(acts))
}

/// Reads one act.
///
/// # Errors
/// With what is wrong with it.
pub fn act(text: &str) -> Result<Act, ScriptError> {
    let (name, arguments, rest) = word(text)?;
    let number = |what: &str| {
        let text = arguments.unwrap_or_default().trim();
        text.parse::<u64>().map_err(|_| ScriptError::new(format!("`{name}` needs {what}, not `{text}`")))
    };
    match name {
        "slow" => return Ok(act(rest)?.after(Duration::from_millis(number("milliseconds")?))),
        "drip" => return Ok(act(rest)?.every(Duration::from_millis(number("milliseconds")?))),
        "held" => return Ok(act(rest)?.held()),
        _ => {}
    }
    let base = match (name, arguments) {
        ("ok", None) => Act::ok(),
        ("ok", Some(text)) => Act::text(text),
        ("call", Some(list)) => Act::calls(calls(list)?),
        ("endless", Some(tool)) => Act::calls([Call::raw(tool.trim(), r#"{"n":{{n}}}"#)]),
        ("sse", Some(list)) => stream(list),
        ("body", Some(body)) => Act::body(body.to_owned()),
        ("huge", Some(_)) => Act::huge(usize::try_from(number("bytes")?).unwrap_or(usize::MAX)),
        ("html", None) => Act::login_page(),
        ("null", None) => Act::null(),
        ("garbage", None) => Act::garbage(),
        ("error", None) => Act::error_in_200(),
        ("sil", None) => Act::silent(),
        ("deaf", None) => Act::deaf(),
        ("rst0", None) => Act::reset_unread(),
        ("rst1", None) => Act::reset_read(),
        ("cut", None) => Act::cut(),
        (status, headers) => match status.parse() {
            Ok(status @ 200..=599) => with_headers(Act::error(status), headers.unwrap_or_default())?,
            Ok(_) | Err(_) => return Err(ScriptError::new(format!("unknown act `{text}`"))),
        },
    };
    Ok(match rest {
        "" => base,
        "rst" => base.halting(Point::Sent, Halt::Reset),
        "cut" => base.halting(Point::Sent, Halt::Cut),
        "hang" => base.halting(Point::Sent, Halt::Hang),
        other => return Err(ScriptError::new(format!("unknown end `{other}` of act `{text}`"))),
    })
}

/// `500 x4` = four times `500`.
fn counted(item: &str) -> Result<(&str, usize), ScriptError> {
    let Some((act, count)) = item.rsplit_once(" x") else { return Ok((item, 1)) };
    match count.parse() {
        Ok(count @ 1..=limit::ACTS_MAX) => Ok((act.trim_end(), count)),
        Ok(_) => Err(ScriptError::new(format!("`{item}` repeats not 1 to {} times", limit::ACTS_MAX))),
        Err(_) => Ok((item, 1)),
    }
}

/// A leading name, what stands in the parentheses right after it, and the rest.
fn word(text: &str) -> Result<(&str, Option<&str>, &str), ScriptError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let Some(inner) = rest.strip_prefix('(') else { return Ok((name, None, rest.trim())) };
    let Some(close) = closing(inner) else { return Err(ScriptError::new(format!("`{text}` lacks a `)`"))) };
    Ok((name, Some(&inner[..close]), inner[close + 1..].trim()))
}

/// Where the parenthesis closes that was opened just before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Splits outside of parentheses, brackets and braces.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            c if c == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn calls(list: &str) -> Result<Vec<Call>, ScriptError> {
    let mut calls = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_whitespace() || c == '{').unwrap_or(rest.len());
        let (name, tail) = rest.split_at(end);
        let mut values = Deserializer::from_str(tail).into_iter::<Value>();
        let arguments = match values.next() {
            Some(Ok(arguments)) => arguments,
            Some(Err(_)) | None => return Err(ScriptError::new(format!("call `{name}` needs arguments as JSON"))),
        };
        calls.push(Call::new(name, &arguments));
        rest = tail[values.byte_offset()..].trim_start().trim_start_matches('+').trim_start();
    }
    Ok(calls)
}

fn stream(list: &str) -> Act {
    let mut pieces: Vec<&str> = split(list, ',').into_iter().map(str::trim).collect();
    let whole = pieces.last() == Some(&"END");
    if whole {
        pieces.pop();
    }
    let mut reply = Reply::pieces(pieces);
    if !whole {
        reply.finish = None;
        reply.done = false;
    }
    Act::reply(reply)
}

fn with_headers(mut act: Act, list: &str) -> Result<Act, ScriptError> {
    for pair in list.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(ScriptError::new(format!("header `{pair}` is not NAME=VALUE")));
        };
        let name = match name.trim() {
            "ra" => "retry-after",
            "ra-ms" => "retry-after-ms",
            other => other,
        };
        act = act.header(name, value.trim());
    }
    Ok(act)
}

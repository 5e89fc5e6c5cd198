//! Scripts as data: JSON, or anything that serde reads into the same values (TOML).
//!
//! A script is a list of acts, a text in the [`super::notation`], or `{"acts": [..], "order": "arrival" | "turn", "strict": bool, "tools_off": act}`;
//! `tools_off` is what requests with tools switched off get.
//! An act is a text in the notation or an object; unknown keys are errors:
//!
//! | key | meaning |
//! | --- | --- |
//! | `act` | an act in the notation on which the other keys build |
//! | `status`, `headers` | as they say; header values may hold `{{http_date:+3600s}}` and `{{epoch_ms:+7200s}}` |
//! | `body` | a JSON value to send, or a macro |
//! | `sse` | a list of raw pieces (texts or macros), each flushed, served as a stream whatever was asked |
//! | `text`, `pieces`, `calls`, `finish`, `usage`, `usage_chunk`, `done`, `line_end` | a completion by its meaning: see [`Reply`]; `usage` is `[in, out]` |
//! | `delay_ms`, `every_ms`, `shred`, `framing`, `hold` | tempo and form |
//! | `behaviour` | `hang`, `reset`, `cut`, `slow` (says only that the macros pause), `endless_fast` |
//! | `after` | where: `accept`, `request_read`, `head`, `half`, `sent` or a number of pieces. Default: after what is sent |
//!
//! Macros stand in the place of a text or value: `{"$raw": text}`, `{"$hex": ".."}`, `{"$repeat": [text, n]}`,
//! `{"$repeat_timed": [text, every_ms, n]}`, `{"$gzip_repeat": [text, n]}`, `{"$concat": [..]}`; as the whole body
//! `{"$template": "chat_tool_call", id, name, arguments}`; in a list of calls `{"$echo_tool_name": k, id, arguments}`, a call
//! of the tool that the request offered as number k.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::act::{Act, Framing, Halt, Payload, Piece, Point};
use super::gzip::gzip_repeat;
use super::reply::{Asked, Call, LineEnd, Reply, UsageChunk};
use super::script::{Order, Script};
use super::{limit, notation};

/// What is wrong with a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError(String);

impl ScriptError {
    pub(super) fn new(text: impl Into<String>) -> ScriptError {
        ScriptError(text.into())
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScriptError {}

impl From<serde_json::Error> for ScriptError {
    fn from(error: serde_json::Error) -> ScriptError {
        ScriptError(error.to_string())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptForm {
    acts: Vec<Act>,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    strict: bool,
    tools_off: Option<Act>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ActForm {
    act: Option<String>,
    status: Option<u16>,
    headers: Map<String, Value>,
    #[serde(deserialize_with = "given")]
    body: Option<Value>,
    sse: Option<Vec<Value>>,
    text: Option<String>,
    pieces: Option<Vec<String>>,
    calls: Option<Vec<CallForm>>,
    #[serde(deserialize_with = "given")]
    finish: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    usage: Option<Option<(u64, u64)>>,
    usage_chunk: Option<String>,
    done: Option<bool>,
    line_end: Option<String>,
    delay_ms: Option<u64>,
    every_ms: Option<u64>,
    shred: Option<usize>,
    framing: Option<String>,
    hold: Option<Value>,
    behaviour: Option<String>,
    after: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallForm {
    id: Option<String>,
    name: String,
    /// A text is sent as it is, any other value as its JSON.
    arguments: Value,
}

/// Tells a key that says null from one that is absent.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

pub(super) fn script(value: Value) -> Result<Script, ScriptError> {
    if let Some(text) = value.as_str() {
        return notation::script(text);
    }
    if value.is_array() {
        return Ok(Script::new(serde_json::from_value::<Vec<Act>>(value)?));
    }
    let form: ScriptForm = serde_json::from_value(value)?;
    Ok(Script::ruled(form.acts, form.order, form.strict, form.tools_off))
}

pub(super) fn act(value: Value) -> Result<Act, ScriptError> {
    if let Some(text) = value.as_str() {
        return notation::act(text);
    }
    let form: ActForm = serde_json::from_value(value)?;
    let mut act = match &form.act {
        Some(text) => notation::act(text)?,
        None => Act::of(Payload::Nothing),
    };
    if let Some(payload) = payload(&form)? {
        act.payload = payload;
    }
    if let Payload::Reply(reply) = &mut act.payload {
        shape(reply, &form)?;
    } else if form.finish.is_some() || form.usage.is_some() || form.done.is_some() || form.line_end.is_some() {
        return Err(ScriptError::new("only a completion has `finish`, `usage`, `done` and `line_end`"));
    }
    act.status = form.status.unwrap_or(act.status);
    for (name, value) in &form.headers {
        let text = value.as_str().ok_or_else(|| ScriptError::new(format!("header `{name}` is no text")))?;
        act = act.header(name, text);
    }
    act.latency = form.delay_ms.map_or(act.latency, Duration::from_millis);
    act.pace = form.every_ms.map_or(act.pace, Duration::from_millis);
    act.shred = form.shred.map(|bytes| bytes.max(1)).or(act.shred);
    act.framing = form.framing.as_deref().map(framing).transpose()?.or(act.framing);
    act.hold = form.hold.as_ref().map(point).transpose()?.or(act.hold);
    if let Some(behaviour) = &form.behaviour {
        behave(&mut act, behaviour, &form)?;
    }
    Ok(act)
}

fn payload(form: &ActForm) -> Result<Option<Payload>, ScriptError> {
    if let Some(body) = &form.body {
        return Ok(Some(body_of(body)?));
    }
    if let Some(list) = &form.sse {
        let mut all = Vec::new();
        for item in list {
            all.extend(pieces(item)?);
        }
        return Ok(Some(Payload::Sse(all)));
    }
    let pieces = match (&form.text, &form.pieces) {
        (Some(text), _) => Some(Reply::text(text).pieces),
        (None, Some(pieces)) => Some(pieces.clone()),
        (None, None) => None,
    };
    if pieces.is_none() && form.calls.is_none() {
        return Ok(None);
    }
    let calls = form.calls.iter().flatten().map(|call| {
        let arguments = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
        let made = Call::raw(&call.name, &arguments);
        call.id.as_deref().map_or(made.clone(), |id| made.id(id))
    });
    let mut reply = if form.calls.is_some() { Reply::calls(calls) } else { Reply::text("") };
    reply.pieces = pieces.unwrap_or_default();
    Ok(Some(Payload::Reply(Box::new(reply))))
}

fn shape(reply: &mut Reply, form: &ActForm) -> Result<(), ScriptError> {
    if let Some(finish) = &form.finish {
        reply.finish.clone_from(finish);
    }
    if let Some(usage) = form.usage {
        reply.usage = usage;
    }
    reply.done = form.done.unwrap_or(reply.done);
    reply.usage_chunk = match form.usage_chunk.as_deref() {
        None => reply.usage_chunk,
        Some("asked") => UsageChunk::Asked,
        Some("always") => UsageChunk::Always,
        Some("never") => UsageChunk::Never,
        Some(other) => return Err(ScriptError::new(format!("unknown `usage_chunk` `{other}`"))),
    };
    reply.line_end = match form.line_end.as_deref() {
        None => reply.line_end,
        Some("lf") => LineEnd::Lf,
        Some("crlf") => LineEnd::CrLf,
        Some("cr") => LineEnd::Cr,
        Some(other) => return Err(ScriptError::new(format!("unknown `line_end` `{other}`"))),
    };
    Ok(())
}

fn behave(act: &mut Act, behaviour: &str, form: &ActForm) -> Result<(), ScriptError> {
    let halt = match behaviour {
        "hang" => Halt::Hang,
        "reset" => Halt::Reset,
        "cut" => Halt::Cut,
        "slow" => return Ok(()),
        "endless_fast" => {
            act.payload = Payload::Endless(Bytes::from(vec![b'x'; 16 * 1024]));
            return Ok(());
        }
        other => return Err(ScriptError::new(format!("unknown `behaviour` `{other}`"))),
    };
    let at = match &form.after {
        Some(value) => point(value)?,
        None if !matches!(act.payload, Payload::Nothing) => Point::Sent,
        None if form.status.is_some() => Point::Head,
        None => Point::Read,
    };
    act.halt = Some((at, halt));
    Ok(())
}

fn point(value: &Value) -> Result<Point, ScriptError> {
    if let Some(n) = value.as_u64() {
        return Ok(Point::Pieces(usize::try_from(n).unwrap_or(usize::MAX)));
    }
    match value.as_str() {
        Some("accept") => Ok(Point::Unread),
        Some("request_read") => Ok(Point::Read),
        Some("head") => Ok(Point::Head),
        Some("half") => Ok(Point::Half),
        Some("sent") => Ok(Point::Sent),
        Some(_) | None => Err(ScriptError::new(format!("unknown point `{value}`"))),
    }
}

fn framing(text: &str) -> Result<Framing, ScriptError> {
    match text {
        "length" => Ok(Framing::Length),
        "chunked" => Ok(Framing::Chunked),
        "close" => Ok(Framing::Close),
        other => Err(ScriptError::new(format!("unknown `framing` `{other}`"))),
    }
}

/// A body that is a macro goes out as its bytes, any other as JSON in which macros are filled in.
fn body_of(value: &Value) -> Result<Payload, ScriptError> {
    if is_bytes(value) {
        return Ok(Payload::Body(pieces(value)?));
    }
    let mut value = value.clone();
    fill_texts(&mut value)?;
    Ok(Payload::Json(value))
}

/// The macros that stand for bytes; each is the only key of its object.
const BYTES: [&str; 6] = ["$raw", "$hex", "$repeat", "$repeat_timed", "$gzip_repeat", "$concat"];

fn is_bytes(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    object.len() == 1 && object.keys().all(|key| BYTES.contains(&key.as_str()))
}

/// Replaces macros inside of a JSON body by the texts that they stand for.
fn fill_texts(value: &mut Value) -> Result<(), ScriptError> {
    if is_bytes(value) {
        let all: Vec<u8> = pieces(value)?.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
        let text = String::from_utf8(all).map_err(|_| ScriptError::new("a macro inside of JSON must give text"))?;
        *value = Value::from(text);
    } else if let Some(object) = value.as_object_mut() {
        object.values_mut().try_for_each(fill_texts)?;
    } else if let Some(list) = value.as_array_mut() {
        list.iter_mut().try_for_each(fill_texts)?;
    }
    Ok(())
}

/// The bytes of a text or macro, in the pieces in which they go out.
fn pieces(value: &Value) -> Result<Vec<Piece>, ScriptError> {
    let broken = || ScriptError::new(format!("no text and no macro for bytes: {value}"));
    if let Some(text) = value.as_str() {
        return Ok(vec![Bytes::from(text.to_owned()).into()]);
    }
    let (name, argument) = value.as_object().filter(|_| is_bytes(value)).and_then(|o| o.iter().next()).ok_or_else(broken)?;
    let text = |at: usize| argument[at].as_str().ok_or_else(broken);
    let count = |at: usize| {
        let n = argument[at].as_u64().and_then(|n| usize::try_from(n).ok());
        n.filter(|n| *n <= limit::PAYLOAD_MAX).ok_or_else(broken)
    };
    let one = |bytes: Vec<u8>| Ok(vec![Bytes::from(bytes).into()]);
    match name.as_str() {
        "$raw" => one(argument.as_str().ok_or_else(broken)?.as_bytes().to_vec()),
        "$hex" => one(unhex(argument.as_str().ok_or_else(broken)?).ok_or_else(broken)?),
        "$repeat" => {
            let (text, n) = (text(0)?, count(1)?);
            if text.len().saturating_mul(n) > limit::PAYLOAD_MAX {
                return Err(broken());
            }
            one(text.repeat(n).into_bytes())
        }
        "$repeat_timed" => {
            let wait = Duration::from_millis(argument[1].as_u64().ok_or_else(broken)?);
            let piece = Piece { wait, bytes: Bytes::from(text(0)?.to_owned()) };
            Ok(vec![piece; count(2)?.min(limit::ACTS_MAX)])
        }
        "$gzip_repeat" => one(gzip_repeat(text(0)?.as_bytes(), count(1)?)),
        _ => {
            let mut all: Vec<Piece> = Vec::new();
            for part in argument.as_array().ok_or_else(broken)? {
                all.extend(pieces(part)?);
            }
            if all.iter().all(|piece| piece.wait.is_zero()) {
                return one(all.iter().flat_map(|piece| piece.bytes.to_vec()).collect());
            }
            Ok(all)
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().filter_map(|[high, low]| u8::try_from(high * 16 + low).ok()).collect())
}

/// Fills in what depends on the request: the names of its tools, and whole completions.
pub(super) fn fill(value: &mut Value, asked: &Asked) {
    if value["$template"] == "chat_tool_call" {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let call = Call::raw(text("name"), text("arguments")).id(text("id"));
        let whole = Reply::calls([call]).plain(asked);
        *value = serde_json::from_slice(&whole).unwrap_or_default();
    } else if let Some(k) = value.get("$echo_tool_name").and_then(Value::as_u64) {
        let name = usize::try_from(k).ok().and_then(|k| asked.offered.get(k));
        *value = json!({"id": value["id"], "type": "function", "function": {"name": name, "arguments": value["arguments"]}});
    } else if let Some(object) = value.as_object_mut() {
        object.values_mut().for_each(|inner| fill(inner, asked));
    } else if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(|inner| fill(inner, asked));
    }
}

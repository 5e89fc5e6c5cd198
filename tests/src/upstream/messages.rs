//! A completion in the form of Anthropic's Messages API.

use bytes::Bytes;
use serde_json::{Value, json};

use super::reply::{Asked, Call, Reply, halves};

/// The whole message.
pub(super) fn plain(reply: &Reply, asked: &Asked) -> Value {
    let text = reply.pieces.concat();
    let mut content = Vec::new();
    if !text.is_empty() {
        content.push(json!({"type": "text", "text": text}));
    }
    content.extend(reply.numbered(asked).iter().map(|call| tool_use(call, input(&call.arguments))));
    let mut message = skeleton(asked);
    message["content"] = json!(content);
    message["stop_reason"] = json!(reply.finish.as_deref().map(reason));
    if let Some((input, output)) = reply.usage {
        message["usage"] = json!({"input_tokens": input, "output_tokens": output});
    }
    message
}

/// The message as the events of a stream, one piece each; arguments go out in two.
pub(super) fn streamed(reply: &Reply, asked: &Asked) -> Vec<Bytes> {
    let usage = reply.usage.filter(|_| reply.tells_usage(true));
    let mut message = skeleton(asked);
    if let Some((input, _)) = usage {
        message["usage"] = json!({"input_tokens": input, "output_tokens": 1});
    }
    let mut events = vec![json!({"type": "message_start", "message": message}), json!({"type": "ping"})];
    let mut index = 0;
    let mut block = |events: &mut Vec<Value>, start: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.extend(deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !reply.pieces.is_empty() {
        let deltas = reply.pieces.iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect();
        block(&mut events, json!({"type": "text", "text": ""}), deltas);
    }
    for call in reply.numbered(asked) {
        let (head, tail) = halves(&call.arguments);
        let deltas = [head, tail].map(|part| json!({"type": "input_json_delta", "partial_json": part})).to_vec();
        block(&mut events, tool_use(&call, json!({})), deltas);
    }
    if let Some(status) = reply.breaks {
        if index > 0 {
            // In the middle of its last block.
            events.pop();
        }
        events.push(asked.shape.error(status));
        return events.iter().map(|event| named(reply, event)).collect();
    }
    if let Some(finish) = &reply.finish {
        let mut delta = json!({"type": "message_delta", "delta": {"stop_reason": reason(finish), "stop_sequence": null}});
        if let Some((_, output)) = usage {
            delta["usage"] = json!({"output_tokens": output});
        }
        events.push(delta);
    }
    if reply.done {
        events.push(json!({"type": "message_stop"}));
    }
    events.iter().map(|event| named(reply, event)).collect()
}

/// An event with its name beside it.
pub(super) fn named(reply: &Reply, event: &Value) -> Bytes {
    let end = reply.line_end.text();
    Bytes::from(format!("event: {}{end}data: {event}{end}{end}", event["type"].as_str().unwrap_or_default()))
}

fn skeleton(asked: &Asked) -> Value {
    json!({"id": format!("msg_{}", asked.nth), "type": "message", "role": "assistant", "model": asked.model, "content": [],
        "stop_reason": null, "stop_sequence": null})
}

fn tool_use(call: &Call, input: Value) -> Value {
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

/// A whole message has its arguments as an object; those that are none stand there as a text.
fn input(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments))
}

/// The reason in the words of this form; unknown ones stay what they are.
fn reason(finish: &str) -> &str {
    match finish {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    }
}

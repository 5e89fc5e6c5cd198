//! A completion in the form of OpenAI's Responses API.

use bytes::Bytes;
use serde_json::{Value, json};

use super::messages::named;
use super::reply::{Asked, Call, Reply, halves};

/// The whole response.
pub(super) fn plain(reply: &Reply, asked: &Asked) -> Value {
    let mut response = skeleton(asked);
    let (status, reason) = ended(reply.finish.as_deref());
    response["status"] = json!(status);
    response["incomplete_details"] = reason.map_or(Value::Null, |reason| json!({"reason": reason}));
    let text = reply.pieces.concat();
    let mut output = Vec::new();
    if !text.is_empty() {
        output.push(message(&text));
    }
    output.extend(reply.numbered(asked).iter().map(|call| function_call(call, &call.arguments)));
    response["output"] = json!(output);
    if let Some((input, output)) = reply.usage.filter(|_| reply.tells_usage(true)) {
        response["usage"] = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
    }
    response
}

/// The response as the events of a stream, one piece each; arguments go out in two.
pub(super) fn streamed(reply: &Reply, asked: &Asked) -> Vec<Bytes> {
    let mut events = vec![json!({"type": "response.created", "response": skeleton(asked)})];
    let mut index = 0;
    let mut item = |events: &mut Vec<Value>, start: Value, kind: &str, deltas: Vec<&str>, whole: Value| {
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": start}));
        events.extend(deltas.into_iter().map(|delta| json!({"type": kind, "output_index": index, "delta": delta})));
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": whole}));
        index += 1;
    };
    if !reply.pieces.is_empty() {
        let pieces = reply.pieces.iter().map(String::as_str).collect();
        item(&mut events, json!({"type": "message", "content": []}), "response.output_text.delta", pieces, message(&reply.pieces.concat()));
    }
    for call in reply.numbered(asked) {
        let (head, tail) = halves(&call.arguments);
        let (start, whole) = (function_call(&call, ""), function_call(&call, &call.arguments));
        item(&mut events, start, "response.function_call_arguments.delta", vec![head, tail], whole);
    }
    if let Some(status) = reply.breaks {
        if index > 0 {
            // In the middle of its last item.
            events.pop();
        }
        let mut event = asked.shape.error(status)["error"].take();
        event["type"] = json!("error");
        events.push(event);
    } else if reply.finish.is_some() {
        let whole = plain(reply, asked);
        events.push(json!({"type": format!("response.{}", whole["status"].as_str().unwrap_or_default()), "response": whole}));
    }
    events.iter_mut().enumerate().for_each(|(number, event)| event["sequence_number"] = json!(number));
    events.iter().map(|event| named(reply, event)).collect()
}

fn skeleton(asked: &Asked) -> Value {
    json!({"id": format!("resp_{}", asked.nth), "object": "response", "status": "in_progress", "model": asked.model, "output": [],
        "error": null, "incomplete_details": null, "usage": null})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn function_call(call: &Call, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id, "name": call.name, "arguments": arguments})
}

/// How a response ended, and why if it is not whole.
fn ended(finish: Option<&str>) -> (&str, Option<&str>) {
    match finish {
        None => ("in_progress", None),
        Some("length") => ("incomplete", Some("max_output_tokens")),
        Some("content_filter") => ("incomplete", Some("content_filter")),
        Some(_) => ("completed", None),
    }
}

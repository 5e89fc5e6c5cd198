//! From the types of the protocol to those of this crate; they go no further.

use ambit_core::{Effect, ToolCode};
use ambit_resilience::{Failure, Outcome};
use reqwest::Error as ReqwestError;
use rmcp::ServiceError;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, ResourceContents, ToolAnnotations};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use crate::fault::{Answer, Fault};
use crate::http::not_answered;
use crate::prepare::schema::Schema;

/// The effect of a tool: what the configuration says, made stricter by what the server says of it. A server cannot
/// make a write a read.
pub(crate) fn effect(configured: Effect, annotations: Option<&ToolAnnotations>) -> Effect {
    let Some(hints) = annotations else { return configured };
    let claimed = if hints.read_only_hint == Some(true) {
        Effect::Read
    } else if hints.destructive_hint == Some(true) {
        Effect::Irreversible
    } else if hints.read_only_hint == Some(false) {
        Effect::Write
    } else {
        Effect::Read
    };
    configured.max(claimed)
}

/// What a tool answered. Text is taken as it is, what is no text is described.
pub(crate) fn answer(result: CallToolResult, output: Option<&Schema>) -> Result<Answer, Fault> {
    let is_error = result.is_error == Some(true);
    if let (false, Some(schema)) = (is_error, output)
        && !result.structured_content.as_ref().is_some_and(|value| schema.is_valid(value))
    {
        return Err(Fault::new(Failure::new(Outcome::OutputInvalid))
            .with_code(ToolCode::OutputInvalid)
            .with_detail("the tool's answer does not fit its own output schema"));
    }
    let mut parts: Vec<String> = result.content.into_iter().map(part).collect();
    if parts.is_empty()
        && let Some(value) = &result.structured_content
    {
        parts.push(Value::to_string(value));
    }
    Ok(Answer { text: parts.join("\n"), is_error })
}

fn part(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                left_out(&uri, mime_type.as_deref().unwrap_or("unknown"), blob.len())
            }
            _ => "[a resource of an unknown kind left out]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        _ => "[content of an unknown kind left out]".to_owned(),
    }
}

fn left_out(what: &str, kind: &str, base64: usize) -> String {
    format!("[{what}, {kind}, {} bytes left out]", base64 / 4 * 3)
}

/// What it means that a request to a server has no result. `Ok` where the server itself answered with an error.
pub(crate) fn failed(error: ServiceError) -> Result<CallToolResult, Fault> {
    if let ServiceError::McpError(said) = error {
        let refused = matches!(
            said.code,
            ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND | ErrorCode::INVALID_REQUEST | ErrorCode::PARSE_ERROR
        );
        if refused {
            let failure = Failure::new(Outcome::status(400)).with_code("mcp_rejected");
            return Err(Fault::new(Failure { status: None, ..failure }).with_detail(said.message.to_string()));
        }
        return Ok(CallToolResult::error(vec![ContentBlock::text(said.message.to_string())]));
    }
    if let ServiceError::TransportSend(error) = &error {
        if let Some(error) = error.error.downcast_ref::<StreamableHttpError<ReqwestError>>() {
            return Err(http_failed(error));
        }
        return Err(Fault::new(Failure::new(Outcome::Broken)));
    }
    if let ServiceError::UnexpectedResponse = error {
        return Err(
            Fault::new(Failure::new(Outcome::Malformed)).with_detail("the server answered with something that is no result of a call")
        );
    }
    Err(Fault::new(Failure::new(Outcome::Broken)).with_detail("the connection to the server broke"))
}

fn http_failed(error: &StreamableHttpError<ReqwestError>) -> Fault {
    if let StreamableHttpError::Client(error) = error {
        if let Some(status) = error.status() {
            return Fault::new(Failure::new(Outcome::status(status.as_u16()))).with_detail(format!("HTTP {}", status.as_u16()));
        }
        return not_answered(error);
    }
    let outcome = if let StreamableHttpError::HttpStatus(status) = error {
        let after = status.retry_after.as_deref().map(|value| ("retry-after", value));
        let after = ambit_resilience::retry_after(after, Some(crate::wall::now()));
        return Fault::new(Failure::new(Outcome::status(status.status)).with_retry_after(after))
            .with_detail(format!("HTTP {}", status.status));
    } else if let StreamableHttpError::SessionExpired = error {
        Outcome::SessionExpired
    } else if let StreamableHttpError::AuthRequired(_) = error {
        Outcome::status(401)
    } else if let StreamableHttpError::InsufficientScope(_) = error {
        Outcome::status(403)
    } else if let StreamableHttpError::UnexpectedServerResponse(_)
    | StreamableHttpError::UnexpectedContentType(_)
    | StreamableHttpError::ResponseBodyTooLarge { .. }
    | StreamableHttpError::Deserialize(_) = error
    {
        Outcome::Malformed
    } else {
        Outcome::Broken
    };
    Fault::new(Failure::new(outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(read_only: Option<bool>, destructive: Option<bool>) -> ToolAnnotations {
        let mut hints = ToolAnnotations::default();
        hints.read_only_hint = read_only;
        hints.destructive_hint = destructive;
        hints
    }

    #[test]
    fn a_server_can_make_its_tool_stricter_and_never_laxer() {
        use Effect::{Irreversible, Read, Write};
        for (configured, read_only, destructive, expected) in [
            (Write, None, None, Write),
            (Write, Some(true), None, Write),
            (Read, Some(true), Some(true), Read),
            (Read, None, None, Read),
            (Read, Some(false), None, Write),
            (Read, Some(false), Some(false), Write),
            (Write, None, Some(true), Irreversible),
            (Irreversible, Some(true), Some(false), Irreversible),
        ] {
            assert_eq!(effect(configured, Some(&hints(read_only, destructive))), expected, "{configured:?} {read_only:?} {destructive:?}");
        }
        assert_eq!(effect(Effect::Write, None), Effect::Write);
    }

    #[test]
    fn content_becomes_text_and_what_is_none_is_described() {
        let result =
            CallToolResult::success(vec![ContentBlock::text("a"), ContentBlock::image("AAAA", "image/png"), ContentBlock::text("b")]);
        assert_eq!(answer(result, None).unwrap().text, "a\n[image, image/png, 3 bytes left out]\nb");
        let mut structured = CallToolResult::success(vec![]);
        structured.structured_content = Some(serde_json::json!({"x": 1}));
        assert_eq!(answer(structured.clone(), None).unwrap().text, r#"{"x":1}"#);
        let schema = Schema::compile(&serde_json::json!({"required": ["y"]})).unwrap();
        assert_eq!(answer(structured, Some(&schema)).unwrap_err().code, Some(ToolCode::OutputInvalid));
        assert!(answer(CallToolResult::error(vec![ContentBlock::text("no")]), Some(&schema)).unwrap().is_error);
    }
}

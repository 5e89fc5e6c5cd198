//! Reads an answer, and not more of it than may be held.

use ambit_core::ToolCode;
use ambit_resilience::{Failure, Outcome, Says, retry_after};
use http::header::CONTENT_TYPE;

use crate::fault::{Answer, Departure, Fault};
use crate::output::cap::cap;
use crate::prepare::json::Json;
use crate::result::Words;
use crate::wall;

/// Most bytes of a refusal's body that the model is shown: enough for a reason, too few for a page.
const REFUSAL_BYTES_MAX: usize = 2 << 10;

/// Reads the answer to a request that has left.
pub(crate) async fn read(mut response: reqwest::Response, body_max: usize, departure: &Departure<'_>) -> Result<Answer, Fault> {
    let status = response.status();
    if !status.is_success() {
        let fault = refused(response).await;
        if !fault.failure.is_fate_unknown() {
            departure.settle();
        }
        return Err(fault);
    }
    let too_large = || {
        Fault::new(Failure::new(Outcome::OutputInvalid).with_code("too_large"))
            .with_code(ToolCode::OutputInvalid)
            .with_detail(format!("the answer is larger than {body_max} bytes: ask for less"))
    };
    // By its status the request was done: whatever is wrong with the body, its fate is known.
    let mut body = Vec::new();
    if response.content_length().is_some_and(|bytes| bytes > body_max as u64) {
        departure.settle();
        return Err(too_large());
    }
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if chunk.len() > body_max - body.len() => {
                departure.settle();
                return Err(too_large());
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(_) => return Err(Fault::new(Failure::new(Outcome::Broken).with_code("cut"))),
        }
    }
    departure.settle();
    Ok(Answer { text: text(body, &response), is_error: false })
}

/// The body as text; what is none is described instead.
fn text(body: Vec<u8>, response: &reqwest::Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
    let described = |detail: &str, bytes: usize| {
        Words::of(ToolCode::Ok, detail).with("http_status", u64::from(response.status().as_u16())).with("bytes", bytes).text()
    };
    if body.is_empty() {
        return described("done; the answer has no body", 0);
    }
    match String::from_utf8(body) {
        Ok(text) => text,
        Err(error) if kind.starts_with("text/") || kind.contains("json") || kind.contains("xml") => {
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }
        Err(error) => described("done; the answer is not text", error.as_bytes().len()),
    }
}

/// An answer that is no success, with what it says about the reason.
async fn refused(mut response: reqwest::Response) -> Fault {
    let status = response.status().as_u16();
    let headers = response.headers();
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
    let should_retry = match word("x-should-retry").as_deref() {
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) | None => None,
    };
    let says = if word("x-load-shed").is_some() { Says::Shedding } else { Says::Nothing };
    let pairs = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let after = retry_after(pairs, Some(wall::now()));
    let failure = Failure::new(Outcome::Status { status, says, should_retry }).with_retry_after(after);
    let mut body = Vec::new();
    // Bounded by its size; a body that breaks off still says something.
    while body.len() < REFUSAL_BYTES_MAX {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(REFUSAL_BYTES_MAX - body.len())]),
            Ok(None) | Err(_) => break,
        }
    }
    let said = String::from_utf8_lossy(&body);
    let fault = Fault::new(failure);
    // A page is for people with browsers.
    let is_page = said.trim_start().starts_with('<');
    if said.trim().is_empty() || is_page {
        return fault.with_detail(format!("HTTP {status}"));
    }
    let said = Json::parse(&said).map_or_else(|_| said.trim().to_owned(), |json| json.to_text());
    fault.with_detail(format!("HTTP {status}: {}", cap(&said, REFUSAL_BYTES_MAX).text))
}

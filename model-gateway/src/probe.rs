//! Whether a provider can be reached, without asking a model anything: its list of models costs nothing and wants the key.
//!
//! For those who look after a configuration; a running gateway never probes.

use std::time::Duration;

use http::StatusCode;
use http::header::DATE;
use reqwest::{Response, Url};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::timeout;

use crate::dialect::over_http;
use crate::dialect::provider::headers;
use crate::gateway::Clients;
use crate::options::TargetOptions;

/// Largest list of models that is read, bytes: a few thousand names.
const LIST_MAX: usize = 1 << 20;

/// What one address of a target answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The address that was asked.
    pub address: String,
    /// What came of it.
    pub found: Found,
    /// The provider's clock, milliseconds since 1970, where it told.
    pub clock_ms: Option<u64>,
}

/// What came of asking an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It knows the model.
    Model,
    /// It answers, and does not list the model.
    NoModel {
        /// Some that it lists.
        known: Vec<String>,
    },
    /// It answers, and has no list of models that can be read.
    NoList,
    /// It does not accept the key.
    KeyRefused {
        /// The status that says so.
        status: u16,
    },
    /// It answers that it cannot.
    Failed {
        /// The status that says so.
        status: u16,
    },
    /// Nothing answers.
    Unreachable {
        /// Why, with everything behind it.
        reason: String,
    },
}

/// Most models that are named.
const NAMED_MAX: usize = 5;

/// Asks every address of a target, each for at most `patience`; nothing for a target that reaches out nowhere.
pub async fn probe(target: &TargetOptions, patience: Duration) -> Vec<Probe> {
    let Some((provider, protocol)) = over_http(&target.dialect) else { return Vec::new() };
    let mut probes = Vec::with_capacity(provider.base_urls.len());
    for base in &provider.base_urls {
        let address = format!("{}/models", base.trim_end_matches('/'));
        let asked = async {
            let unreachable = |reason: String| (Found::Unreachable { reason }, None);
            let url = match Url::parse(&address) {
                Ok(url) => url,
                Err(error) => return unreachable(error.to_string()),
            };
            let (client, headers) = match (Clients::default().of(target), headers(provider, protocol)) {
                (Ok(client), Ok(headers)) => (client, headers),
                (Err(error), _) => return unreachable(error.to_string()),
                (_, Err((setting, reason))) => return unreachable(format!("`{setting}` {reason}")),
            };
            match client.get(url).headers(headers).send().await {
                Ok(response) => {
                    let clock = clock(&response);
                    (judge(response, &target.model).await, clock)
                }
                Err(error) => unreachable(chain(&error)),
            }
        };
        let (found, clock_ms) = timeout(patience, asked)
            .await
            .unwrap_or_else(|_| (Found::Unreachable { reason: format!("no answer within {} ms", patience.as_millis()) }, None));
        probes.push(Probe { address, found, clock_ms });
    }
    probes
}

#[derive(Deserialize)]
struct List {
    data: Vec<Listed>,
    /// True for the first page of several.
    #[serde(default)]
    has_more: bool,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
}

async fn judge(response: Response, model: &str) -> Found {
    let status = response.status();
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Found::KeyRefused { status: status.as_u16() };
    }
    if status == StatusCode::NOT_FOUND || status == StatusCode::METHOD_NOT_ALLOWED {
        return Found::NoList;
    }
    if !status.is_success() {
        return Found::Failed { status: status.as_u16() };
    }
    let Some(List { data, has_more }) = read(response).await.and_then(|body| serde_json::from_slice(&body).ok()) else {
        return Found::NoList;
    };
    if data.iter().any(|listed| listed.id == model) {
        return Found::Model;
    }
    if has_more {
        return Found::NoList;
    }
    Found::NoModel { known: data.into_iter().take(NAMED_MAX).map(|listed| listed.id).collect() }
}

/// The body, if it is not too large.
async fn read(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        if body.len() + piece.len() > LIST_MAX {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    Some(body)
}

fn clock(response: &Response) -> Option<u64> {
    let date = response.headers().get(DATE)?.to_str().ok()?;
    // The form of HTTP is that of mail, but for the name of the zone.
    let at = OffsetDateTime::parse(&date.replace("GMT", "+0000"), &Rfc2822).ok()?;
    u64::try_from(at.unix_timestamp()).ok()?.checked_mul(1_000)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

//! What a response was asked, as items: the words as its agent read them, quotations included.

use ambit_orchestrator::Line;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Api;
use crate::http::described::ListOrder;
use crate::http::problem::{FieldError, Problem};
use crate::http::sessions::{name_session, pairs, session_id};

/// Items on a page, if nobody says how many.
const PAGE_DEFAULT: usize = 20;
/// Most items on a page.
const PAGE_MAX: usize = 100;

/// One message of the input.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct InputItem {
    id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// `user`, or `assistant` for the answer of a session that was continued.
    role: &'static str,
    /// Always `completed`.
    status: &'static str,
    content: [InputText; 1],
}

/// Its text.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct InputText {
    /// `input_text`, or `output_text`.
    #[serde(rename = "type")]
    kind: &'static str,
    text: String,
}

/// A page of input.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct InputItems {
    /// Always `list`.
    object: &'static str,
    data: Vec<InputItem>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// What a response was asked.
#[utoipa::path(
    get, path = "/v1/responses/{id}/input_items", tag = "openai", operation_id = "responses_input_items",
    params(
        ("id" = String, Path, description = "`resp_<ULID>`, or `ses_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"),
        ("after" = Option<String>, Query, description = "Begin behind this item", nullable = false),
        ("limit" = Option<u32>, Query, description = "20 if absent", nullable = false, minimum = 1, maximum = 100),
        ("order" = inline(Option<ListOrder>), Query, description = "`desc`, the last first, if absent", nullable = false),
    ),
    responses(
        (status = 200, description = "The page", body = InputItems),
        (status = 400, description = "INVALID_REQUEST", body = Problem),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn input_items(
    State(api): State<Api>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let id = session_id(id)?;
    let page = Page::read(query.as_deref().unwrap_or_default()).map_err(Problem::invalid)?;
    let view = api.orchestrator.view(id, true).await.map_err(|failed| Problem::of_lookup(&failed))?;
    let mut response = Json(page.of(items(id.ulid(), &view.transcript))).into_response();
    name_session(&mut response, id);
    Ok(response)
}

/// The input ends with the user's last words: turns begin behind them.
fn items(ulid: &str, transcript: &[Line]) -> Vec<InputItem> {
    let end = transcript.iter().rposition(|line| line.role == "user").map_or(0, |last| last + 1);
    let item = |(index, line): (usize, &Line)| {
        let kind = if line.role == "user" { "input_text" } else { "output_text" };
        let content = [InputText { kind, text: line.text.to_string() }];
        InputItem { id: format!("msg_{ulid}_in{index}"), kind: "message", role: line.role, status: "completed", content }
    };
    transcript[..end].iter().enumerate().map(item).collect()
}

/// Which items are asked for.
#[derive(Debug)]
struct Page {
    after: Option<String>,
    limit: usize,
    ascending: bool,
}

impl Page {
    /// Other parameters are ignored, as in bodies of this form.
    fn read(query: &str) -> Result<Self, Vec<FieldError>> {
        let mut page = Self { after: None, limit: PAGE_DEFAULT, ascending: false };
        let mut errors = Vec::new();
        for (key, value) in pairs(query) {
            let mut wrong = |detail: &str| errors.push(FieldError { detail: detail.into(), pointer: key.clone() });
            match (key.as_str(), value.as_str()) {
                ("after", _) => page.after = Some(value),
                ("limit", number) => match number.parse() {
                    Ok(limit @ 1..=PAGE_MAX) => page.limit = limit,
                    Ok(_) | Err(_) => wrong("expected a number from 1 to 100"),
                },
                ("order", "asc") => page.ascending = true,
                ("order", "desc") => page.ascending = false,
                ("order", _) => wrong("expected desc or asc"),
                _ => {}
            }
        }
        if errors.is_empty() { Ok(page) } else { Err(errors) }
    }

    fn of(&self, mut items: Vec<InputItem>) -> InputItems {
        if !self.ascending {
            items.reverse();
        }
        // An item that is not there has nothing behind it.
        let begin = self.after.as_ref().map_or(0, |after| items.iter().position(|item| item.id == *after).map_or(items.len(), |at| at + 1));
        let has_more = items.len() - begin > self.limit;
        let data: Vec<InputItem> = items.into_iter().skip(begin).take(self.limit).collect();
        let (first, last) = (data.first().map(|item| item.id.clone()), data.last().map(|item| item.id.clone()));
        InputItems { object: "list", data, first_id: first, last_id: last, has_more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(role: &'static str, text: &str) -> Line {
        Line { role, tool: None, call_id: None, code: None, text: text.into() }
    }

    #[test]
    fn input_is_what_stands_before_the_first_turn() {
        let said = [line("user", "a"), line("assistant", "b"), line("user", "c"), line("assistant", "d"), line("tool_call", "{}")];
        let roles: Vec<_> = items("X", &said).into_iter().map(|item| (item.role, item.content[0].text.clone())).collect();
        assert_eq!(roles, [("user", "a".to_owned()), ("assistant", "b".to_owned()), ("user", "c".to_owned())]);
    }

    #[test]
    fn pages_follow_each_other_without_gaps() {
        let said: Vec<Line> = (0..5).map(|n| line("user", &n.to_string())).collect();
        let mut got = Vec::new();
        let mut after = String::new();
        loop {
            let page = Page::read(&format!("order=asc&limit=2{after}")).unwrap().of(items("X", &said));
            got.extend(page.data.iter().map(|item| item.content[0].text.clone()));
            after = format!("&after={}", page.last_id.unwrap_or_default());
            if !page.has_more {
                break;
            }
        }
        assert_eq!(got, ["0", "1", "2", "3", "4"]);
        assert_eq!(Page::read("").unwrap().of(items("X", &said)).data[0].content[0].text, "4");
        assert!(Page::read("limit=100").is_ok());
        for query in ["limit=101", "limit=0", "limit=x", "order=up"] {
            assert_eq!(Page::read(query).unwrap_err().len(), 1, "{query}");
        }
    }
}

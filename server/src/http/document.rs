//! The OpenAPI document: what the endpoints say of themselves, and what holds for all of them.
//!
//! An endpoint names the statuses that are its own. What every answer carries and what every request may meet is added
//! here once: ids, the media type and headers of problems, the refusals that come before any endpoint.

use std::sync::LazyLock;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// The document as it is served: what it describes is fixed when the program is built.
static SERVED: LazyLock<String> = LazyLock::new(|| complete(&super::documented().1).to_string());

/// What every endpoint may answer with, besides what it says itself.
const EVERYWHERE: [(&str, &str); 3] = [("403", "FORBIDDEN"), ("500", "INTERNAL"), ("503", OVERLOADED)];
/// Also said by a server that is still starting.
const OVERLOADED: &str = "OVERLOADED";
/// Where a schema says that it is a problem.
const PROBLEM: &str = "#/components/schemas/Problem";
/// Members of a path that are no operations.
const NO_OPERATIONS: [&str; 4] = ["summary", "description", "servers", "parameters"];

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], SERVED.as_str()).into_response()
}

/// The document with what holds everywhere.
pub(crate) fn complete(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    for operation in operations(&mut document) {
        // A function's name is unique in its module only.
        let tag = operation.get("tags").and_then(|tags| tags.get(0)).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(id) = operation.get_mut("operationId") {
            *id = format!("{tag}_{}", id.as_str().unwrap_or_default()).into();
        }
        let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { continue };
        for (status, code) in EVERYWHERE {
            let response = || json!({"description": code, "content": {"application/json": {"schema": {"$ref": PROBLEM}}}});
            let told = responses.entry(status).or_insert_with(response);
            also(told, code);
        }
        for response in responses.values_mut().filter_map(Value::as_object_mut) {
            one(response);
        }
    }
    document
}

/// Names a code in a response that is a problem, unless it names it already.
fn also(response: &mut Value, code: &str) {
    let is_problem = response["content"]["application/json"]["schema"]["$ref"] == PROBLEM;
    let told = response["description"].as_str().unwrap_or_default();
    if is_problem && !told.contains(code) {
        response["description"] = format!("{told}, {code}").into();
    }
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    let items = paths.into_iter().flat_map(|paths| paths.values_mut().filter_map(Value::as_object_mut));
    let members = items.flat_map(|item| item.iter_mut().filter(|(name, _)| !NO_OPERATIONS.contains(&name.as_str())));
    members.filter_map(|(_, operation)| operation.as_object_mut())
}

/// One response: the headers of every answer, and the form of problems.
fn one(response: &mut Map<String, Value>) {
    let mut headers = json!({
        "x-request-id": {"description": "The caller's, or a new one", "required": true, "schema": {"type": "string", "maxLength": 128}},
        "ambit-version": {"description": "Version of the server", "required": true, "schema": {"type": "string"}},
    });
    let content = response.get_mut("content").and_then(Value::as_object_mut);
    if let Some(content) = content
        && content.get("application/json").is_some_and(|body| body["schema"]["$ref"] == PROBLEM)
        && let Some(body) = content.remove("application/json")
    {
        content.insert("application/problem+json".into(), body);
        headers["x-should-retry"] =
            json!({"description": "Whether a retry can help", "required": true, "schema": {"type": "string", "enum": ["true", "false"]}});
        headers["retry-after"] = json!({
            "description": "When to come back, seconds; on every error that a retry can help",
            "schema": {"type": "integer", "minimum": 0, "maximum": 60},
        });
        headers["retry-after-ms"] = json!({"description": "The same, exactly", "schema": {"type": "integer", "minimum": 0}});
    }
    let (Value::Object(headers), Some(own)) = (headers, response.entry("headers").or_insert_with(|| json!({})).as_object_mut()) else {
        return;
    };
    for (name, header) in headers {
        own.entry(name).or_insert(header);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_a_name_of_its_own_and_says_what_every_answer_has() {
        let mut document = complete(&super::super::documented().1);
        let mut ids = BTreeSet::new();
        for operation in operations(&mut document) {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(response["headers"]["x-request-id"].is_object(), "{id} {status}");
                let is_problem = response["content"]["application/problem+json"].is_object();
                assert_eq!(response["headers"]["x-should-retry"].is_object(), is_problem, "{id} {status}");
                assert_ne!(response["content"]["application/json"]["schema"]["$ref"], PROBLEM, "{id} {status}");
            }
            for (status, code) in EVERYWHERE {
                let response = &operation["responses"][status];
                // What is asked for readiness answers in its own form.
                let is_problem = response["content"]["application/problem+json"].is_object();
                assert!(!is_problem || response["description"].as_str().unwrap().contains(code), "{id} {status}");
                assert!(is_problem || id == "health_readyz", "{id} {status}");
            }
            assert!(ids.insert(id.clone()), "{id} names two operations");
        }
        assert!(ids.contains("sessions_create") && ids.contains("health_openapi"), "{ids:?}");
    }

    #[test]
    fn tags_of_operations_are_those_that_are_described() {
        for (_, document) in [super::super::documented(), super::super::admin::documented()] {
            let mut document = complete(&document);
            let described: BTreeSet<String> =
                document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap().to_owned()).collect();
            let used: BTreeSet<String> =
                operations(&mut document).map(|operation| operation["tags"][0].as_str().unwrap().to_owned()).collect();
            assert_eq!(used, described);
        }
    }

    /// What the document says of a request is what is checked.
    #[test]
    fn bounds_are_those_of_the_machine() {
        use ambit_core::limit;
        let document = complete(&super::super::documented().1);
        let limits = &document["components"]["schemas"]["LimitsRequest"]["properties"];
        for (limit, most) in [
            ("deadline_ms", limit::DEADLINE_MS_MAX),
            ("model_calls", limit::MODEL_CALLS_MAX.into()),
            ("tool_calls", limit::TOOL_CALLS_MAX.into()),
            ("model_attempts", limit::MODEL_ATTEMPTS_MAX.into()),
            ("tool_attempts", limit::TOOL_ATTEMPTS_MAX.into()),
        ] {
            assert_eq!(limits[limit]["maximum"].as_u64(), Some(most), "{limit}");
        }
        let metadata = &document["components"]["schemas"]["Metadata"];
        assert_eq!(metadata["maxProperties"].as_u64(), Some(ambit_orchestrator::METADATA_PAIRS_MAX as u64));
    }

    /// Every code that an endpoint may answer with is named in a description, so that none is left undocumented by mistake.
    #[test]
    fn codes_in_descriptions_are_codes_of_that_status() {
        let known: Vec<(String, &str)> = super::super::Code::ALL.map(|code| (code.status().as_u16().to_string(), code.as_str())).to_vec();
        let [mut api, mut admin] = [super::super::documented().1, super::super::admin::documented().1].map(|document| complete(&document));
        for operation in operations(&mut api).chain(operations(&mut admin)) {
            let responses = operation["responses"].as_object().unwrap();
            for (status, response) in responses.iter().filter(|(_, response)| response["content"]["application/problem+json"].is_object()) {
                for told in response["description"].as_str().unwrap().split(", ") {
                    // A code may be followed by when it comes.
                    let code = told.split([' ', ':']).next().unwrap();
                    assert!(known.contains(&(status.clone(), code)), "`{code}` is no code of status {status}");
                }
            }
        }
    }
}

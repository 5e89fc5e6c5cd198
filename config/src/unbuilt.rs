//! What the design knows and this version does not enforce yet: refused by name, never accepted in silence.
//!
//! When a feature is built, its line here goes and its field in `settings` comes.

/// Pattern of a key (`*` stands for a name), a value if only that is missing, and what it would have configured.
const UNBUILT: &[(&str, Option<&str>, &str)] = &[
    ("models.*.retry_budget", None, "the retry budget of a dependency"),
    ("models.*.breaker", None, "the circuit breaker"),
    ("models.*.health", None, "active health checks"),
    ("chains.*.hedge", None, "hedged requests"),
    ("chains.*.cache", None, "the response cache"),
    ("chains.*.static", None, "the static answer"),
    ("agents.*.retrieval", None, "retrieval from a knowledge base"),
    ("agents.*.taint", Some("approve"), "approvals; until then it is `refuse` or `allow`"),
    ("agents.*.approvals", None, "approvals"),
    ("agents.*.saga", None, "compensation of completed calls"),
    ("agents.*.answer_links", None, "the treatment of links in answers"),
    ("tools.*.kind", Some("mcp"), "tools of this kind; the tools of an MCP server are allowed in `mcp.SERVER.allow`"),
    ("tools.*.retry_budget", None, "the retry budget of a dependency"),
    ("tools.*.breaker", None, "the circuit breaker"),
    ("tools.*.health", None, "active health checks"),
    ("tools.*.compensate_with", None, "compensation of completed calls"),
    ("tools.*.reconcile_with", None, "asking a downstream about a call of unknown outcome"),
    ("tools.*.approval", None, "approvals"),
    ("tools.*.roles", None, "roles, which need authentication"),
    ("tools.*.bind", None, "arguments bound to the principal, which need authentication"),
    ("tools.*.on_down", None, "deferred calls; a tool that is down is an error result"),
    ("tools.*.output_schema", None, "validation of a tool's output"),
    ("tools.*.idempotency.key", None, "the store of idempotency keys; until then each step has a key of its own"),
    ("tools.*.idempotency.scope", None, "the store of idempotency keys; until then each step has a key of its own"),
    ("tools.*.idempotency.ttl", None, "the store of idempotency keys"),
    ("tools.*.idempotency.lease", None, "the store of idempotency keys"),
    ("mcp.*.breaker", None, "the circuit breaker"),
    ("knowledge", None, "knowledge bases"),
    ("auth", None, "authentication; until then only loopback is listened on"),
    ("rate_limit", None, "rate limits by principal"),
    ("tenants", None, "tenants"),
    ("keys", None, "signing, content and redaction keys"),
    ("server.stream_max", None, "streams that wait for an approval; none outlives the deadline of its session"),
    ("store.retention", None, "retention; nothing is deleted by age"),
    ("engine.kind", Some("temporal"), "the Temporal engine"),
    ("engine.temporal", None, "the Temporal engine"),
    ("telemetry.otlp", None, "settings for the export by OTLP; until then the standard variables `OTEL_EXPORTER_OTLP_..` say where to"),
    ("telemetry.traces", None, "settings for traces; until then the standard variables `OTEL_TRACES_..` say which"),
    ("telemetry.capture", None, "the capture of content in spans"),
    ("hooks", None, "in-process hooks"),
    ("audit", None, "the audit log"),
    ("redaction", None, "redaction rules"),
    ("chaos", None, "fault injection by header"),
];

/// Profiles that will be shipped once all that they promise is enforced.
const UNBUILT_PROFILES: &[(&str, &str)] = &[
    ("prod", "authentication, PostgreSQL and OTLP"),
    ("strict", "approvals, four eyes and the audit log"),
    ("fleet", "PostgreSQL and Temporal"),
];

/// What a key (or a value of it) would configure, if it is known and not built.
pub(crate) fn setting(path: &[&str], value: Option<&str>) -> Option<&'static str> {
    UNBUILT
        .iter()
        .find(|(pattern, only, _)| {
            let parts: Vec<&str> = pattern.split('.').collect();
            // Everything under an unbuilt key is unbuilt with it.
            path.len() >= parts.len() && parts.iter().zip(path).all(|(p, k)| *p == "*" || p == k) && (only.is_none() || *only == value)
        })
        .map(|(_, _, what)| *what)
}

/// What a profile would promise, if it is known and not built.
pub(crate) fn profile(name: &str) -> Option<&'static str> {
    UNBUILT_PROFILES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::SETTINGS;

    #[test]
    fn what_is_built_is_not_said_to_be_missing() {
        for (pattern, value, _) in UNBUILT {
            let path: Vec<&str> = pattern.split('.').collect();
            assert_eq!(SETTINGS.at(&path).is_some(), value.is_some(), "{pattern}");
        }
    }
}

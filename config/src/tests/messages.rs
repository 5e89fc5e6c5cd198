//! Golden messages: what a person reads when everything is wrong at once.

use std::fs;

use super::{bad, file};
use crate::{File, PROBLEMS_MAX, Sources};

#[test]
fn all_problems_at_once() {
    let text = r#"
[default.limits]
deadlin = "45s"
model_calls = 65
tool_calls = "many"
tool_output = "10KB"
answer_reserve = "unlimited"
transcript = 12

[default.models.primary]
api_key = "sk-should-not-be-repeated"
dialect = "openai-chat"
attempts = 9
breaker = { window = 20 }

[default.models."not a name"]
model = "m"

[default.chains.default]
targets = ["primary", "secondary"]
hedge = { delay = "adaptive" }

[default.agents.ops]
taint = "approve"
chain = "defualt"

[default.tools.pay]
kind = "http"
url = "https://payments.internal/{id}"
on_down = "defer"

[limits]
deadline = "1s"

[prod.server]
listen = "0.0.0.0:80"
"#;
    let sources = file(text)
        .with_env(&[("AMBIT_SERVER__MAX_INFLIGHT", "3"), ("AMBIT_AUTH__KIND", "none")])
        .with_sets(&["limits.events", "engine.kind=temporal"]);
    insta::assert_snapshot!(bad(&sources));
}

#[test]
fn what_is_not_built_says_so() {
    let text = r#"
[default.models.a]
retry_budget = { ratio = 0.1 }
health = { path = "/health" }
[default.chains.c]
targets = ["primary"]
cache = { ttl = "5m" }
static = "sorry"
[default.agents.a]
instructions = "x"
retrieval = {}
approvals = {}
saga = {}
answer_links = "inert"
[default.tools.t]
kind = "mcp"
compensate_with = {}
reconcile_with = {}
approval = "always"
roles = []
bind = {}
[default.tools.t.idempotency]
key = ["id"]
ttl = "24h"
[default.knowledge.k]
[default.auth]
[default.rate_limit]
[default.tenants.t]
[default.keys]
[default.hooks]
[default.audit]
[default.redaction]
[default.chaos]
[default.store]
retention = { content = "7d" }
[default.server]
stream_max = "15m"
[default.telemetry.otlp]
"#;
    insta::assert_snapshot!(bad(&file(text)));
    insta::assert_snapshot!(bad(&Sources::default().with_profile("prod")));
}

#[test]
fn a_file_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = |errors: crate::ConfigErrors| errors.to_string().replace(folder.path().to_str().unwrap(), "FOLDER");
    let at = |name: &str| Sources { files: vec![File::Path(folder.path().join(name))], ..Sources::default() };
    insta::assert_snapshot!(text(bad(&at("no.toml"))));
    insta::assert_snapshot!(text(bad(&at(""))));
    fs::write(folder.path().join("broken.toml"), "[default.limits]\ndeadline = 45s\n").unwrap();
    insta::assert_snapshot!(text(bad(&at("broken.toml"))));
    fs::write(folder.path().join("binary.toml"), [0xff, 0xfe, 0x00]).unwrap();
    insta::assert_snapshot!(text(bad(&at("binary.toml"))));
    let max = usize::try_from(crate::FILE_BYTES_MAX).unwrap();
    fs::write(folder.path().join("large.toml"), "#".repeat(max)).unwrap();
    super::good(&at("large.toml"));
    fs::write(folder.path().join("large.toml"), "#".repeat(max + 1)).unwrap();
    insta::assert_snapshot!(text(bad(&at("large.toml"))));
}

#[test]
fn more_problems_than_anybody_reads_are_counted() {
    let keys = |n: usize| (0..n).map(|i| format!("x{i} = 1\n")).collect::<String>();
    let errors = bad(&file(&format!("[default.limits]\n{}", keys(PROBLEMS_MAX))));
    assert_eq!((errors.problems.len(), errors.more), (PROBLEMS_MAX, 0));
    let errors = bad(&file(&format!("[default.limits]\n{}", keys(PROBLEMS_MAX + 1))));
    assert_eq!((errors.problems.len(), errors.more), (PROBLEMS_MAX, 1));
    assert!(errors.to_string().ends_with(".. and 1 more"));
}

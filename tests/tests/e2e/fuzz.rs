//! schemathesis over `/openapi.json`: thousands of requests made from the document, right and wrong ones. Every answer fits what
//! the document says of it, none is a 500, and nothing is left behind.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ambit_tests::upstream::Act;
use serde_json::json;
use tokio::process::Command;

use crate::house::{House, Setup};

/// Longest run. It is far from it: examples and seed are fixed in `tests/schemathesis/schemathesis.toml`.
const RUN_MAX: Duration = Duration::from_secs(150);

/// A server whose agent may have every limit that the document allows: what is left of `LIMITS_TOO_HIGH` is tested by hand.
async fn house() -> House {
    Setup::new("ok(hello)")
        .read("look", Act::json(json!({"n": 1})))
        .set("limits.deadline", "24h")
        .set("limits.model_calls", "64")
        .set("limits.tool_calls", "256")
        .set("limits.model_attempts", "512")
        .set("limits.tool_attempts", "1024")
        .set("limits.events", "2048")
        .set("limits.total_tokens", "1000000000")
        .set("limits.cost_usd", "1000000")
        .serve()
        .await
}

#[tokio::test]
async fn every_answer_is_as_the_document_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemathesis");
    let program = folder.join(".venv/bin/schemathesis");
    assert!(program.is_file(), "schemathesis is missing; hint: tests/schemathesis/install.sh installs it");
    let house = house().await;
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.arg("--config-file").arg(folder.join("schemathesis.toml"));
    command.args(["run", &format!("{}/openapi.json", house.ambit.url())]);
    // Byte code and caches stay out of the tree.
    command.current_dir(cache.path()).env("PYTHONPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1").env("HOME", cache.path());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let end = tokio::time::timeout(RUN_MAX, command.output()).await.expect("a run in time").unwrap();
    assert!(end.status.success(), "{}\n{}", String::from_utf8_lossy(&end.stdout), String::from_utf8_lossy(&end.stderr));
    assert!(house.provider.calls() > 0, "no session was begun");
    house.close().await;
}

//! The envelope.

use super::{file, good};
use crate::{Sources, bounds};

#[test]
fn the_shipped_envelope() {
    let shown = bounds(&good(&Sources::default()));
    insta::assert_snapshot!(shown.to_string().replace(&shown.config_revision, "REVISION"));
}

#[test]
fn the_envelope_of_a_provider_with_prices() {
    let text = r#"
[default.models.primary]
base_url = "http://a/v1"
model = "m"
price = { input = 0.15, output = 0.6 }
attempts = 1
[default.agents.ops.limits]
total_tokens = 100000
"#;
    let shown = bounds(&good(&file(text)));
    let ops = shown.agents.iter().find(|agent| agent.agent == "ops").unwrap();
    // 8 calls x 1 attempt x 2,048 tokens at 0.6 $, the rest of 100,000 at 0.15 $, both a million.
    let expected = (16_384.0 * 0.6 + (100_000.0 - 16_384.0) * 0.15) / 1e6;
    assert!((ops.envelope.cost_usd - expected).abs() < 1e-9, "{}", ops.envelope.cost_usd);
    assert_eq!((ops.envelope.model_requests, ops.envelope.output_tokens), (8, 16_384));
    insta::assert_snapshot!(ops.lines[6].arithmetic);
}

#[test]
fn every_figure_follows_its_limits() {
    let figure = |text: &str| bounds(&good(&file(text))).agents.into_iter().find(|a| a.agent == "ops").unwrap().envelope;
    let usual = figure("");
    assert_eq!((usual.last_byte_ms, usual.settlement_ms, usual.model_requests, usual.tool_requests), (46_000, 12_000, 16, 20));
    assert_eq!(figure("[default.limits]\nmodel_attempts = 9").model_requests, 9);
    assert_eq!(figure("[default.limits]\ntool_calls = 2").tool_requests, 6);
    assert_eq!(figure("[default.agents.ops]\ntools = [\"read_file\"]").settlement_ms, 0);
    assert_eq!(figure("[default.agents.ops]\ntools = []").tool_requests, 0);
    assert!(figure("[default.limits]\ntranscript = \"2MiB\"").journal_bytes > usual.journal_bytes);
    let process = |text: &str| bounds(&good(&file(text))).process;
    assert!(process("[default.server]\nmax_in_flight = 128").memory_bytes > process("").memory_bytes);
    assert_eq!(process("[default.server]\nmax_in_flight = 2").model_requests, 2);
}

#[test]
fn it_is_json_too() {
    let json = serde_json::to_value(bounds(&good(&Sources::default()))).unwrap();
    assert_eq!(json["agents"][0]["envelope"]["last_byte_ms"], 46_000);
    assert_eq!(json["process"]["sessions"], 64);
}

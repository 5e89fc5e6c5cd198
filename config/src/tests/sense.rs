//! Parts that do not fit into each other. Every rung of the ladder is tried at its limit and one past it.

use ambit_core::limit::Limits;

use super::{file, good, refused};
use crate::Sources;

/// A minimal agent of its own, beside the shipped one.
const TOOL: &str = "[default.tools.t]\nkind = \"http\"\ndescription = \"d\"\nurl = \"http://example.com/\"\n";

/// `fits` is accepted; `broken` is refused with this problem.
#[track_caller]
fn rung(fits: &str, broken: &str, expected: &str) {
    good(&file(fits));
    refused(&file(broken), &[expected]);
}

#[test]
fn rung_request_of_the_server() {
    rung(
        "[default.server]\nrequest = \"50s\"",
        "[default.server]\nrequest = \"49999ms\"",
        "ambit.toml:2: `server.request`: 49999ms is less than `limits.deadline` 45s (built-in default) + 5s = 50s",
    );
    // Left away it follows the deadline.
    let config = good(&file("[default.limits]\ndeadline = \"2m\""));
    assert_eq!(config.request().to_string(), "125s");
}

#[test]
fn rung_answer_reserve_inside_the_deadline() {
    refused(
        &file("[default.limits]\ndeadline = \"8s\""),
        &["built-in default: `limits.answer_reserve`: 8s is not less than `limits.deadline` 8s (ambit.toml:2)"],
    );
}

#[test]
fn rung_request_of_a_model_inside_a_step() {
    rung(
        "[default.models.primary]\nrequest = \"36999ms\"",
        "[default.models.primary]\nrequest = \"37s\"",
        "ambit.toml:2: `models.primary.request`: 37s is not less than the 37s of a step: `limits.deadline` 45s (built-in default) - `limits.answer_reserve` 8s (built-in default)",
    );
}

#[test]
fn rung_attempt_of_a_model_inside_its_request() {
    rung(
        "[default.models.primary]\nattempt = \"29999ms\"",
        "[default.models.primary]\nattempt = \"30s\"",
        "ambit.toml:2: `models.primary.attempt`: 30s is not less than `models.primary.request` 30s (built-in default)",
    );
}

#[test]
fn rung_connect_of_a_model_inside_its_attempt() {
    rung(
        "[default.models.primary]\nconnect = \"20s\"",
        "[default.models.primary]\nconnect = \"20001ms\"",
        "ambit.toml:2: `models.primary.connect`: 20001ms is more than `models.primary.attempt` 20s (built-in default)",
    );
    good(&file("[default.models.primary]\nattempt = \"3s\""));
}

#[test]
fn rung_timeout_of_a_tool_inside_a_step() {
    rung(
        &format!("{TOOL}timeout = \"36999ms\""),
        &format!("{TOOL}timeout = \"37s\""),
        "ambit.toml:5: `tools.t.timeout`: 37s is not less than the 37s of a step: `limits.deadline` 45s (built-in default) - `limits.answer_reserve` 8s (built-in default)",
    );
}

#[test]
fn rung_attempt_of_a_tool_inside_its_timeout() {
    rung(
        &format!("{TOOL}attempt = \"11999ms\""),
        &format!("{TOOL}attempt = \"12s\""),
        "ambit.toml:5: `tools.t.attempt`: 12s is not less than `tools.t.timeout` 12s (built-in default)",
    );
}

#[test]
fn rung_connect_inside_the_attempt_of_a_tool() {
    // The shipped read has the shortest attempt.
    let of = |connect: &str| format!("[default.http]\nconnect = \"{connect}\"");
    rung(
        &of("2s"),
        &of("2001ms"),
        "ambit.toml:2: `http.connect`: 2001ms is more than `tools.service_health.attempt` 2s (built-in default)",
    );
}

#[test]
fn rung_last_call_inside_the_answer_reserve() {
    let of = |reserve: &str| format!("[default.limits]\nanswer_reserve = \"{reserve}\"");
    rung(
        &of("3250ms"),
        &of("3249ms"),
        "ambit.toml:2: `limits.answer_reserve`: 3249ms is less than `models.primary.min_useful` 3s (built-in default) + 250ms for the answer to leave: the last call would not be made",
    );
}

#[test]
fn rung_all_attempts_of_a_write_inside_its_timeout() {
    // 2 x 5 s + a wait of at most 400 ms
    let of = |timeout: &str| format!("{TOOL}attempt = \"5s\"\nattempts = 2\ntimeout = \"{timeout}\"");
    rung(
        &of("10400ms"),
        &of("10399ms"),
        "ambit.toml:7: `tools.t.timeout`: 10399ms is less than all attempts of a call that is no read: 2 x `tools.t.attempt` 5s (ambit.toml:5) + waits of 400ms = 10400ms",
    );
    good(&file(&format!("{TOOL}effect = \"read\"\nattempt = \"5s\"\nattempts = 5\ntimeout = \"6s\"")));
}

#[test]
fn rungs_of_an_mcp_server() {
    let of = |more: &str| format!("[default.mcp.s]\ncommand = \"x\"\nallow = [\"*\"]\n{more}");
    rung(
        &of("timeout = \"36999ms\""),
        &of("timeout = \"37s\""),
        "ambit.toml:4: `mcp.s.timeout`: 37s is not less than the 37s of a step: `limits.deadline` 45s (built-in default) - `limits.answer_reserve` 8s (built-in default)",
    );
    rung(
        &of("attempt = \"11s\""),
        &of("attempt = \"12s\""),
        "ambit.toml:4: `mcp.s.attempt`: 12s is not less than `mcp.s.timeout` 12s (built-in default)",
    );
    refused(
        &file(&of("[default.mcp.s.tools.a]\ntimeout = \"9s\"")),
        &["built-in default: `mcp.s.attempt`: 10s is not less than `mcp.s.tools.a.timeout` 9s (ambit.toml:5)"],
    );
}

#[test]
fn the_error_names_both_settings_and_where_each_came_from() {
    let sources = file("[mine.limits]\ndeadline = \"20s\"").with_profile("mine").with_env(&[("AMBIT_LIMITS__ANSWER_RESERVE", "10s")]);
    refused(
        &sources,
        &[
            "built-in default: `models.primary.request`: 30s is not less than the 10s of a step: `limits.deadline` 20s (ambit.toml:2) - `limits.answer_reserve` 10s (AMBIT_LIMITS__ANSWER_RESERVE)",
            "built-in default: `tools.list_files.timeout`: 12s is not less than the 10s of a step: `limits.deadline` 20s (ambit.toml:2) - `limits.answer_reserve` 10s (AMBIT_LIMITS__ANSWER_RESERVE)",
            "built-in default: `tools.read_file.timeout`: 12s is not less than the 10s of a step: `limits.deadline` 20s (ambit.toml:2) - `limits.answer_reserve` 10s (AMBIT_LIMITS__ANSWER_RESERVE)",
            "built-in default: `tools.restart_service.timeout`: 12s is not less than the 10s of a step: `limits.deadline` 20s (ambit.toml:2) - `limits.answer_reserve` 10s (AMBIT_LIMITS__ANSWER_RESERVE)",
            "built-in default: `tools.service_health.timeout`: 12s is not less than the 10s of a step: `limits.deadline` 20s (ambit.toml:2) - `limits.answer_reserve` 10s (AMBIT_LIMITS__ANSWER_RESERVE)",
        ],
    );
}

#[test]
fn every_shipped_profile_is_sound() {
    for profile in ["default", "dev"] {
        assert_eq!(good(&Sources::default().with_profile(profile)).profile(), profile);
    }
}

#[test]
fn events_hold_what_the_calls_need() {
    let check = |table: &str, tool_calls: u32| {
        let needed = Limits { tool_calls, ..Limits::DEFAULT }.events_needed();
        let (fixed, too_few) = (needed - 8 - 5 * tool_calls, needed - 1);
        let of = |events: u32| format!("[default.{table}]\nevents = {events}\ntool_calls = {tool_calls}");
        rung(
            &of(needed),
            &of(too_few),
            &format!(
                "ambit.toml:2: `{table}.events`: {too_few} events do not hold what the other limits allow: {fixed} + model_calls 8 + 5 x tool_calls {tool_calls} = {needed}"
            ),
        );
    };
    check("limits", 10);
    check("agents.ops.limits", 4);
}

#[test]
fn no_limit_is_lifted_above_its_ceiling() {
    for (key, at, past, expected) in [
        ("model_calls", "64", "65", "is more than 64"),
        ("model_attempts", "512", "513", "is more than 512"),
        ("tool_attempts", "1024", "1025", "is more than 1024"),
        ("parallel_tools", "32", "33", "is more than 32"),
        ("events", "2048", "2049", "is more than 2048"),
        ("transcript", "\"64MiB\"", "\"67108865B\"", "is more than 64MiB"),
        ("model_calls", "1", "0", "is less than 1"),
        ("output_tokens_per_call", "16", "15", "is less than 16"),
    ] {
        good(&file(&format!("[default.limits]\n{key} = {at}")));
        refused(&file(&format!("[default.limits]\n{key} = {past}")), &[&format!("ambit.toml:2: `limits.{key}` = {past}: {expected}")]);
    }
    let calls = |n: u32| format!("[default.limits]\ntool_calls = {n}\nevents = 2048");
    rung(&calls(256), &calls(257), "ambit.toml:2: `limits.tool_calls` = 257: is more than 256");
    assert_eq!(ambit_core::limit::TRANSCRIPT_MAX, crate::value::Size::parse("64MiB").unwrap().bytes());
}

#[test]
fn an_agent_only_tightens() {
    let config = good(&file("[default.agents.ops.limits]\ndeadline = \"20s\"\ncost_usd = 0.5"));
    let limits = config.agents()["ops"].limits;
    assert_eq!((limits.deadline_ms, limits.cost_usd.0, limits.model_calls), (20_000, 500_000_000, 8));
    refused(
        &file("[default.limits]\ndeadline = \"40s\"\n[default.agents.ops.limits]\ndeadline = \"41s\""),
        &["ambit.toml:4: `agents.ops.limits.deadline`: 41s is more than `limits.deadline` 40s (ambit.toml:2): an agent can only tighten"],
    );
}

#[test]
fn limits_that_contradict_each_other() {
    refused(
        &file("[default.limits]\ntotal_tokens = 2047"),
        &["built-in default: `limits.output_tokens_per_call`: 2048 is more than `total_tokens` 2047"],
    );
    refused(
        &file("[default.limits]\nprompt_chars = 11999"),
        &["built-in default: `limits.context_chars`: 12000 is more than `prompt_chars` 11999, which it is a part of"],
    );
    refused(
        &file("[default.limits]\ntranscript = \"9KiB\""),
        &["built-in default: `limits.tool_output`: 10KiB is more than `transcript` 9KiB"],
    );
}

#[test]
fn names_lead_somewhere() {
    refused(
        &file(
            "[default.agents.a]\ninstructions = \"x\"\nchain = \"defualt\"\ntools = [\"red_file\", \"read_file\", \"read_file\"]\n[default.chains.c]\ntargets = [\"primry\"]",
        ),
        &[
            "ambit.toml:3: `agents.a.chain` = \"defualt\": there is no such chain",
            "ambit.toml:4: `agents.a.tools`: `read_file` stands there twice",
            "ambit.toml:4: `agents.a.tools`: there is no tool and no MCP server `red_file`",
            "ambit.toml:6: `chains.c.targets`: there is no model `primry`",
        ],
    );
    refused(&file("[default.chains.c]\ntargets = []"), &["ambit.toml:2: `chains.c.targets`: is empty"]);
    refused(
        &file("[default.chains.c]\ntargets = [\"primary\", \"primary\"]"),
        &["ambit.toml:2: `chains.c.targets`: not built yet: fallback to a second target"],
    );
}

#[test]
fn a_demo_model_with_the_marks_of_a_provider_was_meant_to_be_one() {
    refused(
        &Sources::default().with_env(&[("AMBIT_MODELS__PRIMARY__API_KEY", "sk-1")]),
        &["AMBIT_MODELS__PRIMARY__API_KEY: `models.primary.api_key`: is for a provider, and `base_url` is not set"],
    );
    refused(
        &Sources::default().with_env(&[("AMBIT_MODELS__PRIMARY__BASE_URL", "http://a/v1")]),
        &["AMBIT_MODELS__PRIMARY__BASE_URL: `models.primary.model`: is missing"],
    );
    refused(
        &file("[default.models.primary]\nbase_url = \"https://a/v1/chat/completions\"\nmodel = \"m\""),
        &["ambit.toml:2: `models.primary.base_url` = \"https://a/v1/chat/completions\": holds the path that is added to it"],
    );
    for (dialect, path) in [("openai_responses", "responses"), ("anthropic", "messages")] {
        let text = |rest: &str| format!("[default.models.primary]\ndialect = \"{dialect}\"\n{rest}");
        refused(
            &file(&text(&format!("base_url = \"https://a/v1/{path}\"\nmodel = \"m\""))),
            &[&format!("ambit.toml:3: `models.primary.base_url` = \"https://a/v1/{path}\": holds the path that is added to it")],
        );
        refused(&file(&text("model = \"m\"")), &["ambit.toml:1: `models.primary.base_url`: is missing"]);
        refused(&file(&text("base_url = \"https://a/v1\"")), &["ambit.toml:1: `models.primary.model`: is missing"]);
        good(&file(&text("base_url = \"https://a/v1\"\nmodel = \"m\"")));
    }
}

#[test]
fn only_loopback_is_listened_on() {
    refused(
        &file("[default.server]\nlisten = \"0.0.0.0:8080\"\nadmin_listen = \"localhost\""),
        &[
            "ambit.toml:2: `server.listen` = \"0.0.0.0:8080\": is not loopback, and not built yet: authentication, without which nothing else may be listened on",
            "ambit.toml:3: `server.admin_listen` = \"localhost\": is no address with a port",
        ],
    );
    good(&file("[default.server]\nlisten = \"[::1]:0\"\nadmin_listen = \"[::1]:0\""));
    refused(
        &file("[default.server]\nadmin_listen = \"127.0.0.1:8080\""),
        &["ambit.toml:2: `server.admin_listen` = \"127.0.0.1:8080\": is the address of `server.listen`, too"],
    );
}

#[test]
fn a_placeholder_is_typed_and_needed() {
    let tool =
        |url: &str, schema: &str| format!("[default.tools.t]\nkind = \"http\"\ndescription = \"d\"\nurl = \"{url}\"\nschema = {schema}");
    let property =
        |more: &str| format!("{{ type = \"object\", required = [\"id\"], properties = {{ id = {{ type = \"string\"{more} }} }} }}");
    good(&file(&tool("http://a/{id}", &property(", pattern = \"^[a-z]+$\""))));
    refused(
        &file(&tool("http://a/{id}", &property(""))),
        &["ambit.toml:5: `tools.t.schema.properties.id`: is a placeholder of `url` and may hold any text"],
    );
    refused(
        &file(&tool("http://a/{no}", &property(""))),
        &["ambit.toml:5: `tools.t.schema.properties.no`: is missing, and `url` has the placeholder `{no}`"],
    );
    refused(
        &file(&tool("http://a/{id}", "{ type = \"object\", properties = { id = { type = \"integer\" } } }")),
        &["ambit.toml:5: `tools.t.schema.required`: lacks `id`, which is a placeholder of `url`"],
    );
    refused(
        &file(&tool("http://{id}/", &property(""))),
        &["ambit.toml:4: `tools.t.url` = \"http://{id}/\": has a placeholder in its host"],
    );
    refused(
        &file(&tool("http://a/{id", &property(""))),
        &["ambit.toml:4: `tools.t.url` = \"http://a/{id\": has a brace without its other half"],
    );
    refused(
        &file(&tool("ftp://a/", &property(""))),
        &["ambit.toml:4: `tools.t.url` = \"ftp://a/\": begins with neither `http://` nor `https://`"],
    );
    refused(
        &file(&tool("http://u:p@a/", &property(""))),
        &["ambit.toml:4: `tools.t.url` = \"http://u:p@a/\": holds a user or a password, which would be logged"],
    );
}

#[test]
fn tools_and_servers_are_whole() {
    let text = r#"
[default.tools.a]
kind = "builtin"
effect = "write"
[default.tools.b]
kind = "http"
root = "x"
[default.tools.c]
description = "d"
[default.mcp.d]
[default.mcp.e]
command = "x"
url = "http://a"
allow = []
[default.mcp.a]
url = "a"
args = ["x"]
allow = ["b"]
[default.mcp.a.tools.c]
attempts = 2
[default.tools.f]
kind = "http"
description = "d"
url = "http://a/"
effect = "read"
idempotency = { header = "a b" }
"#;
    insta::assert_snapshot!(super::bad(&file(text)));
}

#[test]
fn hosts_are_mapped_in_dev_only() {
    let text = "[default.http.hosts.\"api.example.com\"]\naddress = \"127.0.0.1:9000\"\ntreat = \"public\"";
    good(&file(text).with_profile("dev"));
    refused(&file(text), &["ambit.toml:1: `http.hosts.api.example.com`: is for tests, in profile `dev` only"]);
}

#[test]
fn a_store_is_a_file() {
    good(&file("[default.store]\nurl = \"sqlite:/var/lib/ambit/ambit.db\""));
    refused(
        &file("[default.store]\nurl = \"postgres://localhost/ambit\""),
        &["ambit.toml:2: `store.url` = \"postgres://localhost/ambit\": not built yet: PostgreSQL"],
    );
}

#[test]
fn without_the_demo_service_its_tools_are_gone_and_that_is_said() {
    let config = good(&file("[default.server]\ndemo_service = false"));
    assert_eq!(config.agents()["ops"].tools, ["list_files", "read_file"]);
    assert_eq!(config.notices(), ["`server.demo_service` is false, so that no agent has `restart_service`, `service_health`"]);
    assert!(!config.needs_demo_service() && config.needs_sample());
}

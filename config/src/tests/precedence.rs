//! Which of several values wins, and what figment would do if it were left to itself.

use super::{file, good, refused};
use crate::{Config, Sources};

fn value(config: &Config, key: &str) -> (String, String) {
    let candidates = config.explain(key).unwrap().candidates;
    (candidates[0].value.clone(), candidates[0].source.clone())
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = good(&Sources::default());
    assert_eq!((config.profile(), config.limits()), ("default", ambit_core::limit::Limits::DEFAULT));
    assert!(config.agents().contains_key("ops") && config.notices().is_empty());
}

#[test]
fn the_later_the_stronger_default_profile_environment_argument() {
    let text = "[default.limits]\ndeadline = \"40s\"\nmodel_calls = 7\ntool_calls = 9\nparallel_tools = 3\n[mine.limits]\nmodel_calls = 6\ntool_calls = 8\nparallel_tools = 2";
    let sources = file(text)
        .with_profile("mine")
        .with_env(&[("AMBIT_LIMITS__TOOL_CALLS", "5"), ("AMBIT_LIMITS__PARALLEL_TOOLS", "2")])
        .with_sets(&["limits.parallel_tools=1"]);
    let config = good(&sources);
    let limits = config.limits();
    assert_eq!((limits.deadline_ms, limits.model_calls, limits.tool_calls, limits.parallel_tools), (40_000, 6, 5, 1));
    for (key, expected, source) in [
        ("limits.tool_output", "\"10KiB\"", "built-in default"),
        ("limits.deadline", "\"40s\"", "ambit.toml:2"),
        ("limits.model_calls", "6", "ambit.toml:7"),
        ("limits.tool_calls", "5", "AMBIT_LIMITS__TOOL_CALLS"),
        ("limits.parallel_tools", "1", "--set limits.parallel_tools"),
        ("agents.ops.chain", "\"default\"", "shipped default.toml:18"),
    ] {
        assert_eq!(value(&config, key), (expected.to_owned(), source.to_owned()), "{key}");
    }
}

#[test]
fn trap_the_environment_does_not_lose_to_the_selected_profile() {
    let sources = file("[mine.limits]\nmodel_calls = 6").with_profile("mine").with_env(&[("AMBIT_LIMITS__MODEL_CALLS", "5")]);
    assert_eq!(good(&sources).limits().model_calls, 5);
}

#[test]
fn trap_an_unknown_profile_is_not_taken_for_default() {
    refused(&file("[mine.limits]\nmodel_calls = 6").with_profile("nine"), &["there is no profile `nine`"]);
    let errors = super::bad(&file("[mine.limits]\nmodel_calls = 6").with_profile("nine"));
    assert_eq!(errors.problems[0].hint.as_deref(), Some("did you mean `mine`? known: `default`, `dev`, `mine`"));
}

#[test]
fn trap_a_profile_is_the_same_in_any_case() {
    assert_eq!(good(&file("[Mine.limits]\nmodel_calls = 6").with_profile("MINE")).limits().model_calls, 6);
}

#[test]
fn trap_unknown_keys_are_not_ignored_in_any_layer() {
    let sources = file("[default.limits]\ndeadlin = \"40s\"\n[other.limits]\nmodel_cals = 3")
        .with_env(&[("AMBIT_LIMITS__TOOL_CALL", "5"), ("AMBIT_NONSENSE", "1")])
        .with_sets(&["server.listn=x"]);
    refused(
        &sources,
        &[
            "ambit.toml:2: `limits.deadlin`: unknown key",
            "ambit.toml:4: `limits.model_cals`: unknown key",
            "AMBIT_LIMITS__TOOL_CALL: `limits.tool_call`: unknown key",
            "AMBIT_NONSENSE: `nonsense`: unknown key",
            "--set server.listn: `server.listn`: unknown key",
        ],
    );
}

#[test]
fn trap_digits_in_the_environment_stay_text_where_text_is_wanted() {
    use secrecy::ExposeSecret as _;
    // Each of these is a number, a flag or a list to whoever guesses from the text.
    for text in ["4", "0042", "4.50", "1e5", "true", "[4]", "{a=4}", "00123456789012345678901234567890"] {
        let sources = Sources::default().with_env(&[
            ("AMBIT_MODELS__PRIMARY__BASE_URL", "http://127.0.0.1:8000/v1"),
            ("AMBIT_MODELS__PRIMARY__MODEL", text),
            ("AMBIT_MODELS__PRIMARY__API_KEY", text),
        ]);
        let config = good(&sources);
        let model = &config.settings().models["primary"];
        assert_eq!(model.model.as_deref(), Some(text));
        assert_eq!(model.api_key.as_ref().unwrap().0.expose_secret(), text);
        // The same by argument.
        let config = good(&sources.with_sets(&[&format!("models.primary.model={text}")]));
        assert_eq!(config.settings().models["primary"].model.as_deref(), Some(text));
    }
}

#[test]
fn trap_a_number_is_no_index_of_a_word() {
    refused(&file("[default.agents.ops]\ntaint = 1"), &["ambit.toml:2: `agents.ops.taint` = 1: is a whole number"]);
}

#[test]
fn trap_a_table_outside_of_a_profile_is_not_taken_for_one() {
    refused(&file("[limits]\ndeadline = \"40s\""), &["ambit.toml:1: `limits`: stands outside of a profile"]);
    refused(&file("deadline = \"40s\""), &["ambit.toml:1: `deadline`: is a text, where only profiles can stand"]);
    refused(&file("[global.limits]\ndeadline = \"40s\""), &["ambit.toml:1: `global`: no name for a profile"]);
}

#[test]
fn the_environment_is_typed_by_the_key() {
    let sources = Sources::default().with_env(&[
        ("AMBIT_SERVER__DEMO_SERVICE", "false"),
        ("AMBIT_LIMITS__COST_USD", "2"),
        ("AMBIT_HTTP__ALLOW", "[\"10.0.0.0/8\", \"*.internal\"]"),
        ("AMBIT_MODELS__PRIMARY__BASE_URL", "[\"http://a/v1\", \"http://b/v1\"]"),
        ("AMBIT_MODELS__PRIMARY__MODEL", "m"),
        ("AMBIT_MODELS__PRIMARY__PRICE", "{ input = 0.15, output = 0.6 }"),
    ]);
    let config = good(&sources);
    let settings = config.settings();
    assert!(!settings.server.demo_service);
    assert!((settings.limits.cost_usd - 2.0).abs() < f64::EPSILON);
    assert_eq!(settings.http.allow.len(), 2);
    assert_eq!(settings.models["primary"].base_url.as_ref().unwrap().0.len(), 2);
    assert!((settings.models["primary"].price.as_ref().unwrap().output - 0.6).abs() < f64::EPSILON);
    refused(&Sources::default().with_env(&[("AMBIT_LIMITS", "1")]), &["AMBIT_LIMITS: `limits`: is a whole number"]);
    refused(
        &Sources::default().with_env(&[("AMBIT_LIMITS", "1"), ("AMBIT_LIMITS__TOOL_CALLS", "1")]),
        &["AMBIT_LIMITS: is a whole number that stands in the way of `limits.tool_calls`"],
    );
    refused(
        &Sources::default().with_env(&[("AMBIT_LIMITS__MODEL_CALLS", "many"), ("AMBIT_LIMITS__TOOL_CALLS", "1\nx = 2")]),
        &[
            "AMBIT_LIMITS__MODEL_CALLS: `limits.model_calls` = \"many\": is a text",
            "AMBIT_LIMITS__TOOL_CALLS: `limits.tool_calls` = \"1\\nx = 2\": is a text",
        ],
    );
}

#[test]
fn three_variables_are_a_provider() {
    use ambit_model_gateway::DialectOptions;
    let sources = Sources::default().with_env(&[
        ("AMBIT_MODELS__PRIMARY__BASE_URL", "https://api.example.com/v1"),
        ("AMBIT_MODELS__PRIMARY__MODEL", "gpt-x"),
        ("AMBIT_MODELS__PRIMARY__API_KEY", "sk-1"),
    ]);
    let options = super::options::gateway(&good(&sources));
    assert!(
        matches!(&options.targets[0].dialect, DialectOptions::OpenAiChat(chat) if chat.base_urls == ["https://api.example.com/v1"] && chat.api_key.is_some())
    );
    assert_eq!(&*options.targets[0].model, "gpt-x");
    let options = super::options::gateway(&good(&Sources::default()));
    assert!(matches!(options.targets[0].dialect, DialectOptions::Scripted(_)));
}

#[test]
fn a_dialect_is_a_word() {
    use ambit_model_gateway::DialectOptions;
    let spoken = |dialect: &str| {
        let sources = Sources::default().with_env(&[
            ("AMBIT_MODELS__PRIMARY__BASE_URL", "https://api.example.com/v1"),
            ("AMBIT_MODELS__PRIMARY__MODEL", "m"),
            ("AMBIT_MODELS__PRIMARY__DIALECT", dialect),
        ]);
        super::options::gateway(&good(&sources)).targets.remove(0).dialect
    };
    assert!(matches!(spoken("openai_chat"), DialectOptions::OpenAiChat(_)));
    assert!(matches!(spoken("openai_responses"), DialectOptions::OpenAiResponses(_)));
    assert!(matches!(spoken("anthropic"), DialectOptions::Anthropic(provider) if provider.base_urls == ["https://api.example.com/v1"]));
}

#[test]
fn reserved_names_are_no_settings_and_injected_ones_are_ignored_with_one_line() {
    let sources = Sources::default().with_env(&[
        ("AMBIT_PROFILE", "x"),
        ("AMBIT_CONFIG", "x"),
        ("AMBIT_FAULTS_DIR", "x"),
        ("AMBIT_QUIRKS_DIR", "x"),
        ("AMBIT_PORT", "tcp://10.0.0.1:8080"),
        ("AMBIT_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("AMBIT_SERVICE_HOST", "10.0.0.1"),
        ("OTHER", "x"),
    ]);
    assert_eq!(
        good(&sources).notices(),
        ["ignored variables that Kubernetes makes for a service called `ambit`: AMBIT_PORT, AMBIT_PORT_8080_TCP_ADDR, AMBIT_SERVICE_HOST"]
    );
}

#[test]
fn a_later_file_lies_over_an_earlier_one() {
    let mut sources = file("[default.limits]\nmodel_calls = 7\ntool_calls = 9");
    sources.files.push(crate::File::Text { path: "over.toml".into(), text: "[default.limits]\nmodel_calls = 5".into() });
    let limits = good(&sources).limits();
    assert_eq!((limits.model_calls, limits.tool_calls), (5, 9));
}

#[test]
fn equal_settings_have_equal_revisions_wherever_they_stand() {
    let revision = |sources: &Sources| good(sources).revision().to_owned();
    let usual = revision(&Sources::default());
    assert_eq!(usual.len(), 12);
    assert_eq!(revision(&file("[default.limits]\nmodel_calls = 8")), usual);
    let changed = revision(&file("[default.limits]\nmodel_calls = 7"));
    assert_ne!(changed, usual);
    assert_eq!(revision(&Sources::default().with_sets(&["limits.model_calls=7"])), changed);
    let keyed = |key: &str| {
        revision(&Sources::default().with_env(&[
            ("AMBIT_MODELS__PRIMARY__BASE_URL", "http://a/v1"),
            ("AMBIT_MODELS__PRIMARY__MODEL", "m"),
            ("AMBIT_MODELS__PRIMARY__API_KEY", key),
        ]))
    };
    assert_eq!(keyed("one"), keyed("two"), "secrets may be rotated");
}

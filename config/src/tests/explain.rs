//! What a person may ask.

use super::{file, good};
use crate::Sources;

#[test]
fn explain_shows_every_candidate() {
    let sources = file("[default.limits]\ndeadline = \"60s\"\n[dev.limits]\ndeadline = \"50s\"")
        .with_profile("dev")
        .with_env(&[("AMBIT_LIMITS__DEADLINE", "55s")])
        .with_sets(&["limits.deadline=48s"]);
    let config = good(&sources);
    insta::assert_snapshot!(config.explain("limits.deadline").unwrap());
    insta::assert_snapshot!(config.explain("server.request").unwrap());
}

#[test]
fn explain_of_what_is_no_value_helps() {
    let config = good(&Sources::default());
    let said = |key: &str| config.explain(key).unwrap_err().to_string();
    assert_eq!(said("limits.deadlin"), "`limits.deadlin`: unknown key\n  hint: did you mean `deadline`?");
    assert_eq!(said("models.primary.breaker.open"), "`models.primary.breaker.open`: not built yet: the circuit breaker");
    assert_eq!(said("limits.deadline.x"), "`limits.deadline.x`: unknown key\n  hint: it is a value, and has no keys");
    assert_eq!(said("agents"), "`agents`: is a table\n  hint: explain one of `ops`");
}

#[test]
fn show_is_a_configuration_again() {
    let sources = file(
        "[default.models.primary]\nbase_url = \"http://a/v1\"\nmodel = \"m\"\nheaders = { \"x-a b\" = \"v\" }\n[default.limits]\ndeadline = \"50s\"",
    );
    let config = good(&sources);
    let shown = config.show();
    assert!(shown.contains("deadline = \"50s\"  # ambit.toml:6"), "{shown}");
    assert!(shown.contains("\"x-a b\" = \"***\"  # ambit.toml:4"), "{shown}");
    assert!(shown.contains("model_calls = 8  # built-in default"), "{shown}");
    // The mask is the only thing that is lost.
    assert_eq!(good(&file(&shown)).revision(), config.revision());
}

//! What a reload would change, and what it leaves as it is.

use std::fs;

use super::{file, good};
use crate::{Config, Sources, needs_restart};

const BASE: &str =
    "[default.models.primary]\nbase_url = \"http://a/v1\"\nmodel = \"m\"\napi_key = \"env:KEY\"\n[default.limits]\ndeadline = \"45s\"\n";

fn sources(text: &str, key: &str) -> Sources {
    file(text).with_env(&[("KEY", key)])
}

/// Checks the changes from one to the other, as `key: before -> after`.
#[track_caller]
fn check(before: &Config, after: &Config, expected: &[&str]) {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let changes = after.changes_from(before);
    let got: Vec<String> = changes.iter().map(|c| format!("{}: {} -> {}", c.key, shown(&c.before), shown(&c.after))).collect();
    assert_eq!(got, expected);
}

#[test]
fn equal_settings_differ_in_nothing_wherever_they_stand() {
    let one = good(&sources(BASE, "k"));
    check(&one, &good(&sources(&format!("# a comment\n{BASE}"), "k")), &[]);
    check(&one, &good(&sources(BASE, "k").with_sets(&["limits.deadline=45s"])), &[]);
}

#[test]
fn each_key_that_differs_is_named_with_both_values_and_the_place() {
    let one = good(&sources(BASE, "k"));
    let other = format!("{}[default.agents.night]\ninstructions = \"Watch.\"\nchain = \"default\"\n", BASE.replace("45s", "40s"));
    let other = good(&sources(&other, "k"));
    let changes = other.changes_from(&one);
    let keys: Vec<&str> = changes.iter().map(|change| change.key.as_str()).collect();
    assert!(keys.contains(&"agents.night.instructions") && keys.contains(&"limits.deadline"), "{keys:?}");
    let deadline = changes.iter().find(|change| change.key == "limits.deadline").unwrap();
    assert_eq!((deadline.before.as_deref(), deadline.after.as_deref()), (Some("\"45s\""), Some("\"40s\"")));
    assert_eq!(deadline.source.as_deref(), Some("ambit.toml:6"));
    // The way back takes them away again.
    assert!(one.changes_from(&other).iter().any(|change| change.key == "agents.night.instructions" && change.after.is_none()));
}

#[test]
fn a_rotated_secret_differs_and_is_not_shown() {
    let (one, other) = (good(&sources(BASE, "first-s3cret")), good(&sources(BASE, "second-s3cret")));
    check(&one, &other, &["models.primary.api_key: *** -> ***"]);
    assert_eq!(one.revision(), other.revision());
    let printed = format!("{:?}{other:?}", other.changes_from(&one));
    assert!(!printed.contains("s3cret"), "{printed}");
}

#[test]
fn other_content_of_a_named_file_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let text = format!("[default.models.primary]\nscript = \"{}\"\n", path.display());
    let loaded = |content: &str| {
        fs::write(&path, content).unwrap();
        good(&file(&text))
    };
    let (one, other) = (loaded("# one"), loaded("# other"));
    let shown = path.display();
    check(&one, &other, &[&format!("models.primary.script: {shown} -> {shown} with other content")]);
}

#[test]
fn what_needs_a_restart_stays_as_it_was() {
    let started = good(&file(""));
    let text = "[default.server]\nlisten = \"127.0.0.1:1\"\nadmin_listen = \"127.0.0.1:2\"\nmax_in_flight = 9\nconnections = 99\nhead = \"9s\"\n[default.store]\n\
                url = \"sqlite:other.db\"\n[default.telemetry.log]\nlevel = \"debug\"\nformat = \"text\"\n";
    let wanted = good(&file(text));
    let changes = wanted.changes_from(&started);
    assert_eq!(changes.len(), 8, "{changes:?}");
    assert!(changes.iter().all(|change| needs_restart(&change.key)));
    let kept = wanted.clone().in_process_of(&started);
    check(&started, &kept, &[]);
    assert_eq!((kept.revision(), kept.show_json()), (started.revision(), started.show_json()));
    assert_eq!(kept.settings().server.listen, started.settings().server.listen);
    assert_ne!(kept.revision(), wanted.revision());
    // What needs none is taken over beside it.
    let more = good(&file(&format!("{text}[default.limits]\nmodel_calls = 3\n"))).in_process_of(&started);
    check(&started, &more, &["limits.model_calls: 8 -> 3"]);
}

#[test]
fn every_key_says_where_its_value_comes_from() {
    let places = good(&sources(BASE, "k")).places();
    assert_eq!(places["limits.deadline"], "ambit.toml:6");
    assert!(places.len() > 50 && places.values().all(|place| !place.is_empty()));
}

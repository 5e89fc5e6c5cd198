//! Files that are written from the doc comments and committed. `UPDATE=1` writes them anew.

use std::path::Path;

#[track_caller]
fn check(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    #[expect(clippy::disallowed_methods, reason = "a wish of whoever runs the tests, no setting")]
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == text, "{path} is not current: run `UPDATE=1 cargo test -p ambit-config generated` and look at the difference");
}

#[test]
fn the_schema_is_current() {
    check("schema.json", &crate::schema());
}

#[test]
fn the_reference_is_current() {
    check("../docs/config.md", &crate::reference());
}

#[test]
fn shipped_profiles_name_their_schema() {
    for (name, text) in crate::load::SHIPPED {
        assert!(text.starts_with("#:schema ../schema.json\n"), "{name}");
    }
}

//! Who may import whom, and how each crate is set up.
//!
//! The arrows are those of `docs/architecture.md`; a new one needs a page in `docs/decisions/` and a line here.

use super::{File, Finding};

/// Crate folder, package name, and the packages of ours it may import outside its tests.
const ARROWS: [(&str, &str, &[&str]); 8] = [
    ("core", "ambit-core", &[]),
    ("resilience", "ambit-resilience", &["ambit-core"]),
    ("model-gateway", "ambit-model-gateway", &["ambit-core", "ambit-resilience"]),
    ("tool-executor", "ambit-tool-executor", &["ambit-core", "ambit-resilience"]),
    ("store", "ambit-store", &["ambit-core", "ambit-resilience"]),
    (
        "orchestrator",
        "ambit-orchestrator",
        &["ambit-core", "ambit-resilience", "ambit-model-gateway", "ambit-tool-executor", "ambit-store"],
    ),
    ("config", "ambit-config", &["ambit-core", "ambit-resilience", "ambit-model-gateway", "ambit-tool-executor", "ambit-store"]),
    ("server", "ambit", &["ambit-core", "ambit-config", "ambit-model-gateway", "ambit-tool-executor", "ambit-store", "ambit-orchestrator"]),
];
/// Folders whose packages may import anything: nothing imports them.
const FREE: [&str; 2] = ["tests", "xtask"];
/// All that the core may stand on, so that it cannot reach a clock, a socket or a task.
const CORE_STANDS_ON: [&str; 2] = ["serde", "thiserror"];

/// Checks every manifest of the tree.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.flat_map(one).chain(same_keys(files)).collect()
}

fn one(file: &File) -> Vec<Finding> {
    let folder = file.path.trim_end_matches("/Cargo.toml");
    let is_free = FREE.contains(&folder);
    let mut found = Vec::new();
    let Some((_, package, arrows)) = ARROWS.iter().find(|(name, ..)| *name == folder).copied().or(is_free.then_some(("", "", &[]))) else {
        return vec![
            file.at(1, "is no room of the house; hint: a new crate needs a page in docs/decisions/ and a line in xtask/src/tidy/arrows.rs"),
        ];
    };
    for (line, section, key) in keys(&file.text) {
        let name = key.split('.').next().unwrap_or(key).trim_matches('"');
        if section == "package" && key == "name" && !is_free {
            let named = file.text.lines().nth(line - 1).is_some_and(|text| text.contains(&format!("\"{package}\"")));
            if !named {
                found.push(file.at(line, format!("folder `{folder}` holds package `{package}`")));
            }
        }
        let is_normal = section == "dependencies" || section == "build-dependencies" || section.starts_with("target.");
        if is_normal && !section.contains("dev-dependencies") && !is_free {
            if (name == "ambit" || name.starts_with("ambit-")) && !arrows.contains(&name) {
                found.push(file.at(line, format!("`{package}` must not import `{name}`; hint: docs/architecture.md shows the arrows")));
            }
            if folder == "core" && !CORE_STANDS_ON.contains(&name) {
                found.push(file.at(line, format!("the core stands on {} only, not on `{name}`", CORE_STANDS_ON.join(" and "))));
            }
        }
        if section.contains("dependencies") {
            let text = file.text.lines().nth(line - 1).unwrap_or_default();
            if !text.contains("workspace = true") {
                found.push(file.at(line, format!("`{name}` has no `workspace = true`: versions stand in the root manifest only")));
            }
        }
    }
    if !file.text.contains("[lints]") {
        found.push(file.at(1, "has no `[lints]`: the workspace's lints hold everywhere"));
    }
    found
}

/// The keys of a manifest: line from 1, section, key. Enough TOML for manifests as we write them.
fn keys(text: &str) -> Vec<(usize, &str, &str)> {
    let mut section = "";
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            keys.push((number + 1, section, key.trim()));
        }
    }
    keys
}

/// The nearest clippy.toml replaces the root one whole: each says the same about tests.
fn same_keys(files: &[File]) -> Vec<Finding> {
    let allowed = |file: &File| file.text.lines().filter(|line| line.starts_with("allow-")).map(str::to_owned).collect::<Vec<_>>();
    let Some(root) = files.iter().find(|file| file.path == "clippy.toml") else { return Vec::new() };
    let want = allowed(root);
    let others = files.iter().filter(|file| file.path.ends_with("/clippy.toml") && allowed(file) != want);
    others.map(|file| file.at(1, "has other `allow-` keys than the root clippy.toml, which it replaces whole")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::kit;

    /// A manifest of `package` with `lines` after its head, the first of them being line 5.
    fn manifest(package: &str, lines: &str) -> String {
        format!("[package]\nname = \"{package}\"\n[lints]\nworkspace = true\n{lines}")
    }

    #[test]
    fn nothing_points_up_or_sideways() {
        let check = |folder: &str, package, lines: &str, want: &[&str]| {
            kit::check(check, &[(&format!("{folder}/Cargo.toml"), &manifest(package, lines))], want);
        };
        check("store", "ambit-store", "[dependencies]\nambit-core = { workspace = true }\ntokio = { workspace = true }", &[]);
        check(
            "store",
            "ambit-store",
            "[dependencies]\nambit-config = { workspace = true }",
            &["store/Cargo.toml:6: `ambit-store` must not import"],
        );
        check(
            "store",
            "ambit-store",
            "[dependencies]\nambit-config.workspace = true",
            &["store/Cargo.toml:6: `ambit-store` must not import"],
        );
        check("store", "ambit-store", "[dev-dependencies]\nambit-config = { workspace = true }", &[]);
        check(
            "store",
            "ambit-store",
            "[target.'cfg(unix)'.dependencies]\nambit = { workspace = true }",
            &["store/Cargo.toml:6: `ambit-store`"],
        );
        check("tests", "ambit-tests", "[dependencies]\nambit-config = { workspace = true }", &[]);
        check("attic", "ambit-attic", "", &["attic/Cargo.toml:1: is no room"]);
        check("store", "ambit-shop", "", &["store/Cargo.toml:2: folder `store` holds package `ambit-store`"]);
    }

    #[test]
    fn the_core_stands_on_two_crates() {
        let text = manifest(
            "ambit-core",
            "[dependencies]\nserde = { workspace = true }\ntokio = { workspace = true }\n[dev-dependencies]\ninsta = { workspace = true }",
        );
        kit::check(
            check,
            &[("core/Cargo.toml", &text)],
            &["core/Cargo.toml:7: the core stands on serde and thiserror only, not on `tokio`"],
        );
    }

    #[test]
    fn versions_and_lints_come_from_the_root() {
        let text = "[package]\nname = \"ambit-store\"\n[dependencies]\ntokio = \"1\"\n";
        kit::check(check, &[("store/Cargo.toml", text)], &["store/Cargo.toml:4: `tokio` has no", "store/Cargo.toml:1: has no `[lints]`"]);
    }

    #[test]
    fn every_clippy_file_says_the_same_about_tests() {
        let root = ("clippy.toml", "allow-a = true\n");
        kit::check(check, &[root, ("core/clippy.toml", "# more\nallow-a = true\n")], &[]);
        kit::check(check, &[root, ("core/clippy.toml", "allow-a = false\n")], &["core/clippy.toml:1: has other"]);
    }
}

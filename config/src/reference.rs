//! The reference of all settings, `docs/config.md`, written from the same doc comments as the JSON Schema.

use crate::shape::{Inside, SETTINGS, Shape};
use crate::sources::{INJECTED, RESERVED};

/// The text of `docs/config.md`.
#[must_use]
pub fn reference() -> String {
    let code = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut out = format!(
        "# Configuration reference\n\n\
         Generated from the doc comments of `config/src/settings/` (`UPDATE=1 cargo test -p ambit-config` writes it anew); \
         `config/schema.json` is the same for an editor.\n\n\
         ## Where settings come from\n\n\
         Lowest first, each over all before it:\n\n\
         1. built-in defaults, as below;\n\
         2. `[default.*]` of the shipped profile `default`, then of your file (`ambit.toml`, `AMBIT_CONFIG` or `--config`);\n\
         3. the selected profile (`--profile` or `AMBIT_PROFILE`): of the shipped ones, then of your file;\n\
         4. variables: `AMBIT_LIMITS__DEADLINE=20s` is `limits.deadline` (two underscores between the parts of a key, lower case);\n\
         5. arguments: `--set limits.deadline=20s`.\n\n\
         `ambit config explain limits.deadline` says which of them won. Variables that are no settings: {}. Ignored with one line in the log, \
         since Kubernetes makes them: names that begin with {}.\n\n\
         ## Values\n\n\
         - A length of time is a number with `ms`, `s`, `m`, `h` or `d`, at most a day: `\"45s\"`, `\"1.5s\"`.\n\
         - A size is a whole number with `B`, `KiB`, `MiB` or `GiB`: `\"10KiB\"`. There is no \"unlimited\".\n\
         - A secret is a reference: `\"env:NAME\"` (a variable), `\"file:/run/secrets/x\"` (a file), `\"cred:name\"` (a credential of the systemd unit). \
         A value that arrives by variable may be the secret itself; so may one in a file, in profile `dev` only.\n\
         - A relative path starts at the folder of the file that says it, else at the working directory; \
         `root = \"sample:\"` is a folder shipped inside the binary.\n\
         - Names of models, chains, agents, tools and servers: 1 to 64 of `A-Z a-z 0-9 _ -`.\n\n\
         A key that is not listed here is an error, also where a later version will have it.\n",
        code(RESERVED),
        code(INJECTED),
    );
    table(&SETTINGS, "", &mut out);
    out
}

/// Writes one table with its keys, then the tables below it.
fn table(shape: &Shape, path: &str, out: &mut String) {
    let Inside::Table(entries) = shape.inside() else { return };
    let leaves: Vec<_> = entries.iter().filter(|(_, of)| inner(of).is_none()).collect();
    if !path.is_empty() {
        out.push_str(&format!("\n## `[{path}]`\n\n{}.{}\n", shape.title, after(&shape.meaning)));
    }
    if !leaves.is_empty() {
        out.push_str("\n| key | what | default | worst case of raising it |\n| --- | --- | --- | --- |\n");
    }
    for (key, of) in leaves {
        let allowed = match (&of.unit, of.allowed()) {
            (Some(unit), allowed) => format!("{unit}; {allowed}"),
            (None, allowed) => allowed,
        };
        let default = match (&of.default, &of.default_in_words) {
            (Some(default), _) => format!("`{default}`"),
            (None, Some(words)) => words.clone(),
            (None, None) if of.optional => "none".into(),
            (None, None) if matches!(of.inside(), Inside::Map(_)) => "empty".into(),
            (None, None) => "needed".into(),
        };
        let cells =
            [format!("`{key}`"), format!("{}.{} *{allowed}*", of.title, after(&of.meaning)), default, of.cost.clone().unwrap_or_default()];
        out.push_str(&format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
    }
    for (key, of) in entries {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match inner(of) {
            Some((of, true)) => table(of, &format!("{path}.NAME"), out),
            Some((of, false)) => table(of, &path, out),
            None => {}
        }
    }
}

/// The table that a key holds, itself or by name.
fn inner(shape: &Shape) -> Option<(&Shape, bool)> {
    match shape.inside() {
        Inside::Table(_) => Some((shape, false)),
        Inside::Map(of) if matches!(of.inside(), Inside::Table(_)) => Some((of, true)),
        Inside::Map(_) | Inside::Value => None,
    }
}

fn after(meaning: &str) -> String {
    if meaning.is_empty() { String::new() } else { format!(" {meaning}") }
}

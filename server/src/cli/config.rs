//! `ambit config`: check, show, explain, diff, schema.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use ambit_config::{Config, ConfigErrors, Explanation, File, Sources, load, schema};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::table::table;
use crate::exit;
use crate::output::{out, say};

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Says whether it can be used, and everything that is wrong with it.
    Check {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints every setting in force with its source; secrets as `***`.
    Show {
        /// As JSON, without sources.
        #[arg(long)]
        json: bool,
    },
    /// Prints a setting's value, its source, and every candidate that was overridden.
    Explain {
        /// For example `limits.deadline`.
        key: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints every setting that differs from another configuration's; from what is shipped, if none is named.
    Diff(Diff),
    /// Prints the JSON Schema of the file.
    Schema,
}

/// The other configuration: this one with another profile, with another file, or both.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The other profile.
    #[arg(long, value_name = "NAME")]
    with_profile: Option<String>,
    /// The other file.
    #[arg(long, value_name = "FILE")]
    with_config: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl ConfigCommand {
    pub(crate) fn execute(&self, sources: &Sources) -> ExitCode {
        if matches!(self, Self::Schema) {
            out!("{}", schema());
            return ExitCode::from(exit::DONE);
        }
        let config = match (load(sources), self) {
            (Ok(config), _) => config,
            (Err(errors), Self::Check { json: true }) => {
                out!("{}", serde_json::to_string_pretty(&refused(&errors)).unwrap_or_default());
                return ExitCode::from(exit::CONFIG);
            }
            (Err(errors), _) => return told(&errors),
        };
        match self {
            Self::Check { json: true } => {
                let agents: Vec<&String> = config.agents().keys().collect();
                let found = json!({
                    "ok": true, "profile": config.profile(), "config_revision": config.revision(), "agents": agents,
                    "notes": config.notices(), "problems": [],
                });
                out!("{}", serde_json::to_string_pretty(&found).unwrap_or_default());
            }
            Self::Check { json: false } => {
                for notice in config.notices() {
                    say!("note: {notice}");
                }
                out!("ok: profile {}, revision {}, agents: {}", config.profile(), config.revision(), names(config.agents().keys()));
            }
            Self::Show { json: true } => out!("{}", serde_json::to_string_pretty(config.show_json()).unwrap_or_default()),
            Self::Show { json: false } => out!("{}", config.show().trim_end()),
            Self::Explain { key, json } => match config.explain(key) {
                Ok(explanation) if *json => out!("{}", serde_json::to_string_pretty(&explanation).unwrap_or_default()),
                Ok(explanation) => explain(&explanation),
                Err(problem) => {
                    say!("error: {problem}");
                    return ExitCode::from(exit::USAGE);
                }
            },
            Self::Diff(diff) => match load(&diff.other(sources)) {
                Ok(other) => diff.show(&other, &config),
                Err(errors) => return told(&errors),
            },
            Self::Schema => {}
        }
        ExitCode::from(exit::DONE)
    }
}

/// Everything that is wrong, for a person.
fn told(errors: &ConfigErrors) -> ExitCode {
    say!("{errors}");
    ExitCode::from(exit::CONFIG)
}

/// Everything that is wrong, for a program.
fn refused(errors: &ConfigErrors) -> Value {
    let problems: Vec<Value> = errors
        .problems
        .iter()
        .map(|problem| {
            json!({
                "place": problem.place.as_ref().map(ToString::to_string), "key": problem.key, "value": problem.value,
                "reason": problem.reason, "hint": problem.hint,
            })
        })
        .collect();
    json!({"ok": false, "problems": problems, "more": errors.more})
}

impl Diff {
    fn other(&self, sources: &Sources) -> Sources {
        if self.with_profile.is_none() && self.with_config.is_none() {
            return Sources::default();
        }
        Sources {
            files: self.with_config.clone().map_or_else(|| sources.files.clone(), |file| vec![File::Path(file)]),
            profile: self.with_profile.clone().or_else(|| sources.profile.clone()),
            ..sources.clone()
        }
    }

    fn show(&self, there: &Config, here: &Config) {
        let (there, here) = (leaves(there.show_json()), leaves(here.show_json()));
        let keys: BTreeSet<&String> = there.keys().chain(here.keys()).filter(|key| there.get(*key) != here.get(*key)).collect();
        let sides = keys.into_iter().map(|key| (key, there.get(key), here.get(key)));
        if self.json {
            let all: Vec<Value> = sides.map(|(key, there, here)| json!({"key": key, "there": there, "here": here})).collect();
            out!("{}", serde_json::to_string_pretty(&all).unwrap_or_default());
            return;
        }
        let text = |value: Option<&&Value>| value.map(ToString::to_string).unwrap_or_default();
        let rows: Vec<_> = sides.map(|(key, there, here)| [key.clone(), text(there), text(here)]).collect();
        if rows.is_empty() {
            say!("no difference");
        } else {
            table(["KEY", "THERE", "HERE"], &rows);
        }
    }
}

/// Every value that is no table, by its key.
fn leaves(settings: &Value) -> BTreeMap<String, &Value> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), settings)];
    // Each round takes one value of a tree that a bounded file holds.
    while let Some((key, value)) = open.pop() {
        match value.as_object() {
            Some(entries) => open
                .extend(entries.iter().map(|(name, value)| (if key.is_empty() { name.clone() } else { format!("{key}.{name}") }, value))),
            None => drop(found.insert(key, value)),
        }
    }
    found
}

fn explain(explanation: &Explanation) {
    out!("{explanation}");
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

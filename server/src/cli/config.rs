//! `ambit config`: check, show, explain, schema.

use std::process::ExitCode;

use ambit_config::{Explanation, Sources, load, schema};
use clap::Subcommand;

use crate::exit;
use crate::output::{out, say};

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Says whether it can be used, and everything that is wrong with it.
    Check,
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
    /// Prints the JSON Schema of the file.
    Schema,
}

impl ConfigCommand {
    pub(crate) fn execute(&self, sources: &Sources) -> ExitCode {
        if matches!(self, Self::Schema) {
            out!("{}", schema());
            return ExitCode::from(exit::DONE);
        }
        let config = match load(sources) {
            Ok(config) => config,
            Err(errors) => {
                say!("{errors}");
                return ExitCode::from(exit::CONFIG);
            }
        };
        match self {
            Self::Check => {
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
            Self::Schema => {}
        }
        ExitCode::from(exit::DONE)
    }
}

fn explain(explanation: &Explanation) {
    out!("{explanation}");
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

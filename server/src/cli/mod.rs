//! The command line: data on stdout, the rest on stderr.

mod bounds;
mod config;
mod run;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ambit_config::{Config, Sources, load};
use clap::{Args, Parser, Subcommand};

use crate::app::AppError;
use crate::exit;
use crate::output::{out, say};

/// Runs tool-using agents that always stop.
#[derive(Debug, Parser)]
#[command(name = "ambit", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command may be told.
#[derive(Debug, Clone, Args)]
struct Global {
    /// The configuration file (otherwise AMBIT_CONFIG, else ./ambit.toml if it is there).
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The profile to select (otherwise AMBIT_PROFILE, else `default`).
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,
    /// Sets one key over file and environment; may be repeated.
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs one bounded session here and now: progress on stderr, the answer on stdout.
    Run(run::Run),
    /// Serves the HTTP API until it is told to stop.
    Serve,
    /// Shows the worst case of a session and of the process, with its arithmetic.
    Bounds(bounds::Bounds),
    /// Looks at the configuration.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Prints the OpenAPI document.
    Openapi,
}

impl Global {
    fn sources(&self) -> Sources {
        Sources::from_process(self.config.clone(), self.profile.clone(), self.sets.clone())
    }

    /// The configuration, or every problem on stderr and the exit code for it.
    fn load(&self) -> Result<Arc<Config>, ExitCode> {
        load(&self.sources()).map(Arc::new).map_err(|errors| {
            say!("{errors}");
            ExitCode::from(exit::CONFIG)
        })
    }
}

impl Cli {
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Run(run) => with_config(&self.global, |config| run.execute(config)),
            Command::Serve => {
                let global = self.global.clone();
                with_config(&self.global, |config| serve::serve(config, move || global.sources()))
            }
            Command::Bounds(bounds) => match self.global.load() {
                Ok(config) => bounds.execute(&config),
                Err(code) => code,
            },
            Command::Config(command) => command.execute(&self.global.sources()),
            Command::Openapi => {
                out!("{}", crate::http::openapi());
                ExitCode::from(exit::DONE)
            }
        }
    }
}

/// Loads the configuration and runs a future to its end on a runtime of its own.
fn with_config<F: Future<Output = ExitCode>>(global: &Global, then: impl FnOnce(Arc<Config>) -> F) -> ExitCode {
    let config = match global.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(then(config)),
        Err(failed) => {
            say!("error: the runtime cannot be started: {failed}");
            ExitCode::from(exit::FAILURE)
        }
    }
}

/// Says why the process cannot start, and what to do.
fn failed_to_start(failed: &AppError) -> ExitCode {
    say!("{}", explain(failed));
    if let Some(hint) = failed.hint() {
        say!("hint: {hint}");
    }
    ExitCode::from(exit::UNAVAILABLE)
}

/// An error with everything behind it, for a person.
pub(crate) fn explain(error: &dyn std::error::Error) -> String {
    let mut text = format!("error: {error}");
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!("\n  because: {source}"));
        next = source.source();
    }
    text
}

//! The command line: data on stdout, the rest on stderr.

mod bounds;
mod config;
mod doctor;
mod look;
mod pages;
mod progress;
mod replay;
mod run;
mod serve;
mod sessions;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ambit_config::{Config, Sources, load};
use clap::{Args, Parser, Subcommand};

use crate::app::AppError;
use crate::cli::look::Look;
use crate::exit;
use crate::output::{out, say};

/// Runs tool-using agents that always stop.
#[derive(Debug, Parser)]
#[command(name = "ambit", version, max_term_width = 100)]
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
    /// Looks at sessions, and stops them, beside the process that runs them.
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// Retells a session: every decision with its reason.
    Replay(replay::ReplayArgs),
    /// Checks whether everything that is needed is there, with a hint where it is not.
    Doctor(doctor::Doctor),
    /// Looks at the configuration.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Prints the OpenAPI document.
    Openapi,
    /// Prints completions for a shell.
    Completions(pages::Completions),
    /// Prints the manual page of a command.
    Man(pages::Man),
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
        let sources = self.global.sources();
        let look = Look::of(&sources.env);
        match self.command {
            Command::Run(run) => with_config(&self.global, |config| run.execute(config, look)),
            Command::Serve => {
                let global = self.global.clone();
                with_config(&self.global, |config| serve::serve(config, move || global.sources()))
            }
            Command::Bounds(bounds) => match self.global.load() {
                Ok(config) => bounds.execute(&config),
                Err(code) => code,
            },
            Command::Config(command) => command.execute(&sources),
            Command::Sessions(command) => with_config(&self.global, |config| command.execute(config, look)),
            Command::Replay(replay) => with_config(&self.global, |config| replay.execute(config, look)),
            Command::Doctor(doctor) => match load(&sources) {
                Ok(config) => on_runtime(doctor.execute(Arc::new(config), look)),
                Err(errors) => doctor.refuse(&errors, look),
            },
            Command::Completions(completions) => completions.execute(),
            Command::Man(man) => man.execute(),
            Command::Openapi => {
                out!("{}", crate::http::openapi());
                ExitCode::from(exit::DONE)
            }
        }
    }
}

/// Longest that leaving waits for threads that are in the middle of something, a name being looked up for example.
const THREADS: Duration = Duration::from_millis(500);

/// Loads the configuration and runs a future to its end on a runtime of its own.
fn with_config<F: Future<Output = ExitCode>>(global: &Global, then: impl FnOnce(Arc<Config>) -> F) -> ExitCode {
    match global.load() {
        Ok(config) => on_runtime(then(config)),
        Err(code) => code,
    }
}

/// Runs a future to its end on a runtime of its own.
fn on_runtime(future: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(future);
            runtime.shutdown_timeout(THREADS);
            code
        }
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

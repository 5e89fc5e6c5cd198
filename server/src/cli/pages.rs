//! What the command line says about itself: completions for shells, and manual pages.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit;
use crate::output::{out, say};

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Which page.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command, for example `sessions list`; the whole of `ambit` if left out.
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
    /// Write the pages of all commands into this folder instead.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

impl Completions {
    pub(crate) fn execute(&self) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ambit", &mut text);
        out!("{}", String::from_utf8_lossy(&text).trim_end());
        ExitCode::from(exit::DONE)
    }
}

impl Man {
    pub(crate) fn execute(&self) -> ExitCode {
        let mut root = without_help(Cli::command());
        // Names of pages and global arguments are known once the command is built.
        root.build();
        if let Some(dir) = &self.dir {
            return match clap_mangen::generate_to(root, dir) {
                Ok(()) => ExitCode::from(exit::DONE),
                Err(failed) => {
                    say!("error: the pages cannot be written to `{}`: {failed}\nhint: the folder has to be there", dir.display());
                    ExitCode::from(exit::FAILURE)
                }
            };
        }
        let mut command = &root;
        for name in &self.command {
            let Some(found) = command.find_subcommand(name) else {
                let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
                let hint = if known.is_empty() { "it has no commands".to_owned() } else { format!("there are: {}", known.join(", ")) };
                say!("error: `{}` has no command `{name}`\nhint: {hint}", command.get_name());
                return ExitCode::from(exit::USAGE);
            };
            command = found;
        }
        match page(command) {
            Ok(text) => {
                out!("{}", text.trim_end());
                ExitCode::from(exit::DONE)
            }
            Err(failed) => {
                say!("error: the page cannot be made: {failed}");
                ExitCode::from(exit::FAILURE)
            }
        }
    }
}

/// The command without `help` below it, of which every page would be a copy of another.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn page(command: &clap::Command) -> io::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

//! The gate: `cargo xtask check` is all that CI runs and all that a change must pass.
//!
//! Four stages that can be run alone: `lint` (form), `unit` (crates by themselves), `e2e` (the binary among real
//! processes), `docs` (what is written is true). Adding a test, a rule or a page adds no line here.
//!
//! It changes no file that git knows and installs nothing on the machine; each of its steps has a longest time.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]

mod check;
mod console;
mod deps;
mod exec;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask check [lint|unit|e2e|docs]...

  lint   rustfmt, clippy, tidy rules, licences and duplicates
  unit   the tests and benches of every crate by itself
  e2e    the binary among real processes (package ambit-tests)
  docs   rustdoc, doc tests, the commands of the documents

Without a stage all four run. Exit codes: 0 all passed, 1 something failed, 2 usage.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["check", stages @ ..] => match check::Stage::parse(stages) {
            Ok(stages) => check::run(&root(), &stages),
            Err(word) => usage(&format!("no stage `{word}`")),
        },
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => usage("no command"),
        [word, ..] => usage(&format!("no command `{word}`")),
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("error: {what}\n\n{USAGE}");
    ExitCode::from(2)
}

/// The folder of the workspace: the one above this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

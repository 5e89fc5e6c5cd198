//! The stages and their steps, and the table at the end.
//!
//! A step that fails does not keep the others from running, so that one run shows all there is to do.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::exec::Run;
use crate::suite::{Suite, Tally};
use crate::{console, deps, tidy};

/// A part of the gate that can be run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Form: rustfmt, clippy, tidy rules, dependencies.
    Lint,
    /// Every crate by itself.
    Unit,
    /// The binary among real processes.
    E2e,
    /// What is written is true.
    Docs,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Lint, Self::Unit, Self::E2e, Self::Docs];

    /// The stages named, in the order of the gate; all of them if none is named. The error is the unknown word.
    pub(crate) fn parse(words: &[&str]) -> Result<Vec<Self>, String> {
        if let Some(word) = words.iter().find(|word| !Self::ALL.iter().any(|stage| stage.name() == **word)) {
            return Err((*word).to_owned());
        }
        Ok(Self::ALL.into_iter().filter(|stage| words.is_empty() || words.contains(&stage.name())).collect())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::E2e => "e2e",
            Self::Docs => "docs",
        }
    }

    fn steps(self) -> &'static [Step] {
        match self {
            Self::Lint => LINT,
            Self::Unit => UNIT,
            Self::E2e => E2E,
            Self::Docs => DOCS,
        }
    }
}

/// One line of the table.
struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<Tally, String>,
}

// Limits are a few times what a cold build takes on two cores. `--workspace` everywhere: another selection of packages
// is another set of features, and rebuilds the heavy dependencies.
const LINT: &[Step] = &[
    Step { name: "rustfmt", run: |root| one(Run::cargo(root, &["fmt", "--all", "--check"], 2).status()) },
    Step { name: "tidy", run: |root| one(tidy::check(root)) },
    Step { name: "dependencies", run: |root| one(deps::check(root)) },
    Step {
        name: "clippy",
        run: |root| one(Run::cargo(root, &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"], 30).status()),
    },
];
const UNIT: &[Step] = &[BUILD, Step { name: "tests of the crates", run: |root| Suite::Unit.run(root) }];
const E2E: &[Step] = &[
    BUILD,
    // Real MCP servers, from their committed lock file, into a folder that git does not see.
    Step { name: "MCP servers", run: |root| one(Run::new(root, "tests/mcp/install.sh", &[], 5).status()) },
    Step { name: "schemathesis", run: |root| one(Run::new(root, "tests/schemathesis/install.sh", &[], 5).status()) },
    CLIENTS,
    // A real receiver of traces, likewise.
    Step { name: "OTLP receiver", run: |root| one(Run::new(root, "tests/otlp/install.sh", &[], 5).status()) },
    Step { name: "tests end to end", run: |root| Suite::E2e.run(root) },
];
const DOCS: &[Step] = &[
    BUILD,
    Step {
        name: "rustdoc",
        run: |root| {
            let doc = Run::cargo(root, &["doc", "--locked", "--workspace", "--no-deps"], 20);
            one(doc.env("RUSTDOCFLAGS", "-D warnings").status())
        },
    },
    Step { name: "doc tests", run: |root| one(Run::cargo(root, &["test", "--locked", "--workspace", "--doc", "--quiet"], 20).status()) },
    CLIENTS,
    Step { name: "commands of the documents", run: console::check },
];

/// All targets at once, tests and plain binaries: the one development set of artefacts.
const BUILD: Step =
    Step { name: "build", run: |root| one(Run::cargo(root, &["build", "--locked", "--workspace", "--all-targets"], 40).status()) };

/// The official OpenAI clients, from their committed lock files; does nothing where that is done.
const CLIENTS: Step = Step { name: "OpenAI clients", run: |root| one(Run::new(root, "tests/clients/install.sh", &[], 5).status()) };

/// A step that is one check.
fn one(end: Result<(), String>) -> Result<Tally, String> {
    end.map(|()| Tally { passed: 1, failed: 0 })
}

/// Runs `stages` and prints the table; its last line is `N passed, N failed`.
pub(crate) fn run(root: &Path, stages: &[Stage]) -> ExitCode {
    let mut total = Tally::default();
    let mut table = Vec::new();
    let mut built: Option<bool> = None;
    for stage in stages {
        for step in stage.steps() {
            if step.name == BUILD.name && built.is_some() {
                continue; // An earlier stage has built it.
            }
            if built == Some(false) {
                table.push(format!("  skip  {:<5} {} (the build failed)", stage.name(), step.name));
                continue;
            }
            eprintln!("\n== {}: {}", stage.name(), step.name);
            let begun = Instant::now();
            let end = (step.run)(root);
            if step.name == BUILD.name {
                built = Some(end.is_ok());
            }
            let (tally, line) = row(*stage, step.name, &end, begun.elapsed());
            total.add(tally);
            table.push(line);
        }
    }
    eprintln!();
    for line in table {
        println!("{line}");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a step adds to the total, and its line in the table.
fn row(stage: Stage, step: &str, end: &Result<Tally, String>, took: Duration) -> (Tally, String) {
    let (tally, mark, why) = match end {
        Ok(tally) if tally.failed == 0 => (*tally, "ok", String::new()),
        Ok(tally) => (*tally, "FAIL", format!(": {} of {} failed", tally.failed, tally.passed + tally.failed)),
        Err(why) => {
            eprintln!("error: {why}");
            (Tally { passed: 0, failed: 1 }, "FAIL", format!(": {}", why.lines().next().unwrap_or_default()))
        }
    };
    (tally, format!("  {mark:<4}  {:<5} {step}, {} checked in {} s{why}", stage.name(), tally.passed + tally.failed, took.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_run_in_the_order_of_the_gate() {
        let check = |words: &[&str], want: Result<Vec<Stage>, &str>| assert_eq!(Stage::parse(words), want.map_err(str::to_owned));
        check(&[], Ok(Stage::ALL.to_vec()));
        check(&["docs", "lint"], Ok(vec![Stage::Lint, Stage::Docs]));
        check(&["lint", "lnt"], Err("lnt"));
    }

    #[test]
    fn a_step_without_numbers_counts_as_one() {
        let took = Duration::from_secs(3);
        let check =
            |end: Result<Tally, String>, tally, line: &str| assert_eq!(row(Stage::Lint, "clippy", &end, took), (tally, line.to_owned()));
        check(Ok(Tally { passed: 1, failed: 0 }), Tally { passed: 1, failed: 0 }, "  ok    lint  clippy, 1 checked in 3 s");
        check(Ok(Tally { passed: 4, failed: 2 }), Tally { passed: 4, failed: 2 }, "  FAIL  lint  clippy, 6 checked in 3 s: 2 of 6 failed");
        check(Err("it\nbroke".to_owned()), Tally { passed: 0, failed: 1 }, "  FAIL  lint  clippy, 1 checked in 3 s: it");
    }
}

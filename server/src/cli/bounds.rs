//! `ambit bounds`: the envelope, before anything runs.

use std::process::ExitCode;

use ambit_config::{Config, Line, bounds};
use clap::Args;

use crate::exit;
use crate::output::{out, say};

/// Which envelope, and in which form.
#[derive(Debug, Args)]
pub(crate) struct Bounds {
    /// Only this agent's.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Bounds {
    pub(crate) fn execute(&self, config: &Config) -> ExitCode {
        let mut all = bounds(config);
        if let Some(name) = &self.agent {
            let known: Vec<String> = all.agents.iter().map(|agent| agent.agent.clone()).collect();
            all.agents.retain(|agent| agent.agent == *name);
            if all.agents.is_empty() {
                say!("error: agent `{name}` does not exist\nhint: there are: {}", known.join(", "));
                return ExitCode::from(exit::USAGE);
            }
        }
        if self.json {
            out!("{}", serde_json::to_string_pretty(&all).unwrap_or_default());
            return ExitCode::from(exit::DONE);
        }
        for agent in &all.agents {
            out!("agent {} (profile {}, revision {}): one session at most", agent.agent, all.profile, all.config_revision);
            lines(&agent.lines);
        }
        out!("process: {} sessions at once at most", all.process.sessions);
        lines(&all.process.lines);
        out!("not included: {}", all.excess);
        ExitCode::from(exit::DONE)
    }
}

fn lines(lines: &[Line]) {
    let name = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let value = lines.iter().map(|line| line.value.chars().count()).max().unwrap_or(0);
    for line in lines {
        out!("  {:name$}  {:>value$}  = {}", line.name, line.value, line.arithmetic);
    }
}

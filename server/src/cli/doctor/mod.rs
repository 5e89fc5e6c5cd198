//! `ambit doctor`: named checks, a hint each; what stays on this machine first, what reaches out only if asked.

mod here;
mod online;

use std::process::ExitCode;
use std::sync::Arc;

use ambit_config::{Config, ConfigErrors};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::look::{DIM, GREEN, Look, RED, YELLOW};
use crate::exit;
use crate::output::{out, plain};
use crate::telemetry::logs;

/// How far to look.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Also reach out: to models (their list costs nothing), MCP servers (started and listed) and hosts of HTTP tools.
    #[arg(long)]
    online: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What one check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    /// What was looked at, and which one of them.
    name: String,
    grade: Grade,
    /// What was found.
    said: String,
    /// What to do; on everything that is not well.
    hint: Option<String>,
}

/// How well it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Ok,
    Warn,
    Fail,
}

impl Grade {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl Check {
    fn ok(name: impl Into<String>, said: impl Into<String>) -> Self {
        Self { name: name.into(), grade: Grade::Ok, said: said.into(), hint: None }
    }

    fn warn(name: impl Into<String>, said: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name: name.into(), grade: Grade::Warn, said: said.into(), hint: Some(hint.into()) }
    }

    fn fail(name: impl Into<String>, said: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name: name.into(), grade: Grade::Fail, said: said.into(), hint: Some(hint.into()) }
    }
}

impl Doctor {
    pub(crate) async fn execute(self, config: Arc<Config>, look: Look) -> ExitCode {
        logs::init("error", false);
        let mut checks = here::checks(&config).await;
        if self.online {
            checks.extend(online::checks(&config).await);
        }
        let code = if checks.iter().any(|check| check.grade == Grade::Fail) { exit::FAILURE } else { exit::DONE };
        self.report(&checks, look);
        ExitCode::from(code)
    }

    /// A configuration that cannot be used: nothing else can be looked at.
    pub(crate) fn refuse(&self, errors: &ConfigErrors, look: Look) -> ExitCode {
        let checks: Vec<Check> = errors
            .problems
            .iter()
            .map(|problem| {
                let text = problem.to_string();
                let said = text.split_once("\n  hint: ").map_or(text.as_str(), |(said, _)| said).to_owned();
                Check::fail("config", said, problem.hint.clone().unwrap_or_else(|| "`ambit config check` says everything".into()))
            })
            .collect();
        self.report(&checks, look);
        ExitCode::from(exit::CONFIG)
    }

    fn report(&self, checks: &[Check], look: Look) {
        let worst = checks.iter().map(|check| check.grade).max().unwrap_or(Grade::Ok);
        if self.json {
            let checks: Vec<Value> = checks
                .iter()
                .map(|check| json!({"name": check.name, "status": check.grade.as_str(), "detail": check.said, "hint": check.hint}))
                .collect();
            let report = json!({"object": "doctor", "status": worst.as_str(), "checks": checks});
            out!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            return;
        }
        let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
        for check in checks {
            let colour = match check.grade {
                Grade::Ok => GREEN,
                Grade::Warn => YELLOW,
                Grade::Fail => RED,
            };
            let grade = look.out(colour, &format!("{:<4}", check.grade.as_str()));
            out!("{grade}  {:<width$}  {}", plain(&check.name), plain(&check.said));
            if let Some(hint) = &check.hint {
                out!("      {:<width$}  {}", "", look.out(DIM, &format!("hint: {}", plain(hint))));
            }
        }
    }
}

//! `ambit run`: one bounded session here and now.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ambit_config::Config;
use ambit_core::session::{Canceller, OnLimit};
use ambit_orchestrator::{Followed, LimitsWish, Running, Said, SessionRequest, SessionStream, SessionView, StartError};
use clap::Args;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Role};
use crate::cli::{explain, failed_to_start};
use crate::exit;
use crate::http::{local, session_json};
use crate::output::{out, say};
use crate::telemetry::logs;

/// Largest input read from stdin, bytes; the prompt limit in characters is checked later.
const STDIN_MAX: u64 = 1 << 20;
/// How long a settlement is waited for once the answer is there.
const SETTLE: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The agent (the only one, or `ops`, if left out).
    #[arg(value_name = "AGENT")]
    first: String,
    /// What to say to it; `-` reads stdin.
    #[arg(value_name = "INPUT")]
    second: Option<String>,
    /// Print the whole session as JSON instead of the answer.
    #[arg(long)]
    json: bool,
    /// No progress on stderr.
    #[arg(long, short)]
    quiet: bool,
}

impl Run {
    pub(crate) async fn execute(self, config: Arc<Config>) -> ExitCode {
        // Progress is for people, the log for operators: only warnings mix.
        logs::init("warn", false);
        let (agent, input) = match self.words(&config) {
            Ok(words) => words,
            Err(wrong) => {
                say!("error: {wrong}");
                return ExitCode::from(exit::USAGE);
            }
        };
        let input = if input == "-" { from_stdin().await } else { Ok(input) };
        let input = match input {
            Ok(input) if input.trim().is_empty() => {
                say!("error: the input is empty");
                return ExitCode::from(exit::USAGE);
            }
            Ok(input) => input,
            Err(failed) => {
                say!("error: stdin cannot be read: {failed}");
                return ExitCode::from(exit::USAGE);
            }
        };
        // From here on a signal is a cancellation, and the session still ends in order; a second one hurries its settlement.
        let stop = Arc::new(Stop::default());
        let (cancel, hurry) = (stop.cancel.clone(), stop.hurry.clone());
        let signals = listen(stop.clone());
        let work = async {
            let app = match App::start(config, Role::Runner(&agent)).await {
                Ok(app) => app,
                Err(failed) => return failed_to_start(&failed),
            };
            let code = self.session(&app, agent.clone(), input, &cancel).await;
            // The session is over: nothing is left to be waited for but its settlement.
            app.drain(SETTLE, &hurry).await;
            app.close().await;
            code
        };
        let code = tokio::select! {
            code = work => code,
            () = signals => ExitCode::from(exit::FAILURE),
        };
        if stop.terminated.load(Ordering::Acquire) { ExitCode::from(exit::TERMINATED) } else { code }
    }

    /// The agent and what to say to it, from one or two words.
    fn words(&self, config: &Config) -> Result<(String, String), String> {
        if let Some(input) = &self.second {
            return Ok((self.first.clone(), input.clone()));
        }
        let names: Vec<&str> = config.agents().keys().map(String::as_str).collect();
        if names.contains(&self.first.as_str()) {
            return Err(format!("the input is missing\nhint: ambit run {} \"what to say to it\"", self.first));
        }
        match names[..] {
            [] => Err("no agent is configured\nhint: add a table [default.agents.NAME]".to_owned()),
            [only] => Ok((only.to_owned(), self.first.clone())),
            _ if names.contains(&"ops") => Ok(("ops".to_owned(), self.first.clone())),
            _ => Err(format!("which agent?\nhint: there are: {}", names.join(", "))),
        }
    }

    async fn session(&self, app: &App, agent: String, input: String, cancel: &CancellationToken) -> ExitCode {
        let request = SessionRequest {
            agent,
            input: vec![input.into()],
            tainted: false,
            previous: None,
            idempotency: None,
            forget: false,
            trace: Some(app.traces.root(&mut *app.rng.lock().unwrap_or_else(PoisonError::into_inner))),
            limits: LimitsWish::default(),
            tools_allow: None,
            tools_deny: Vec::new(),
            on_limit: OnLimit::Answer,
            metadata: std::collections::BTreeMap::new(),
            principal: local(),
            arrived: Instant::now(),
            header_deadline_ms: None,
            heard: true,
            durable: false,
        };
        let running = match app.orchestrator.start(request).await {
            Ok(running) => running,
            Err(refused) => {
                say!("{}", explain(&refused));
                if let StartError::AgentNotFound { known, .. } = &refused {
                    say!("hint: there are: {}", known.join(", "));
                }
                return ExitCode::from(refusal_code(&refused));
            }
        };
        let Some(view) = self.follow(app, running, cancel).await else {
            say!("error: the session could not be followed to its end");
            return ExitCode::from(exit::UNAVAILABLE);
        };
        if self.json {
            out!("{}", session_json(&view));
        } else {
            summary(&view);
        }
        view.verdict.map_or(ExitCode::from(exit::FAILURE), |verdict| exit::of_verdict(&verdict))
    }

    /// Shows what happens until the verdict; Ctrl-C cancels the session, and it still ends in order.
    async fn follow(&self, app: &App, mut running: Running, cancel: &CancellationToken) -> Option<Arc<SessionView>> {
        let progress = Progress { quiet: self.quiet, started: Instant::now() };
        progress.line(&format!("session {}, deadline {} s", running.id, running.limits.deadline_ms / 1_000));
        let mut stream = app.orchestrator.follow(running.id, false).await.ok();
        let id = running.id;
        let shown = async {
            while let Some(event) = next(&mut stream).await {
                progress.show(&event);
                if event.terminal {
                    break;
                }
            }
        };
        let interrupted = async {
            cancel.cancelled().await;
            let _ = app.orchestrator.cancel(id, Canceller::Caller).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = shown => {}
            () = interrupted => {}
        }
        running.verdict(None).await
    }
}

/// What signals ask for.
#[derive(Default)]
struct Stop {
    cancel: CancellationToken,
    hurry: CancellationToken,
    terminated: AtomicBool,
}

/// Hears signals: the first cancels, the second hurries; ends only where signals cannot be heard.
async fn listen(stop: Arc<Stop>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else { return };
    for token in [&stop.cancel, &stop.hurry] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => stop.terminated.store(true, Ordering::Release),
        }
        token.cancel();
    }
    std::future::pending::<()>().await;
}

async fn next(stream: &mut Option<SessionStream>) -> Option<Followed> {
    match stream {
        Some(stream) => stream.next().await.ok().flatten(),
        None => None,
    }
}

async fn from_stdin() -> std::io::Result<String> {
    let mut text = String::new();
    tokio::io::stdin().take(STDIN_MAX).read_to_string(&mut text).await?;
    Ok(text)
}

fn refusal_code(refused: &StartError) -> u8 {
    match refused {
        StartError::Saturated(_) | StartError::Overloaded { .. } => exit::SATURATED,
        StartError::Store(_) | StartError::ShuttingDown => exit::UNAVAILABLE,
        StartError::DeadlineExceeded => exit::DEADLINE,
        StartError::AgentNotFound { .. }
        | StartError::UnknownTools { .. }
        | StartError::LimitsTooHigh(_)
        | StartError::PromptTooLarge { .. }
        | StartError::ContextTooLong { .. } => exit::USAGE,
        StartError::NoChain { .. } | StartError::Interrupted => exit::FAILURE,
    }
}

/// The answer, then what was spent: on stdout both, as the one is the other's price.
fn summary(view: &SessionView) {
    let Some(verdict) = view.verdict else { return };
    if let Some(answer) = view.output_text.as_deref().filter(|answer| !answer.is_empty()) {
        out!("{}", answer.trim_end());
        out!("");
    }
    if let Some(failure) = &view.failure {
        say!("error: {}", failure.detail);
    }
    let spent = &view.spent;
    let least = if spent.at_least { " at least" } else { "" };
    out!(
        "[{} ({}) in {:.1} s: {} of {} model calls, {} of {} tool calls, {} tokens, {}{least}]",
        verdict.status,
        verdict.reason,
        Duration::from_millis(view.elapsed_ms).as_secs_f64(),
        spent.model_calls,
        view.limits.model_calls,
        spent.tool_calls,
        view.limits.tool_calls,
        spent.tokens(),
        spent.cost,
    );
}

/// Live progress: a line an event, on stderr.
struct Progress {
    quiet: bool,
    started: Instant,
}

impl Progress {
    fn line(&self, text: &str) {
        if !self.quiet {
            let dim = std::io::stderr().is_terminal();
            let at = self.started.elapsed().as_secs_f64();
            if dim { say!("\x1b[2m{at:6.2}s\x1b[0m {text}") } else { say!("{at:6.2}s {text}") }
        }
    }

    fn show(&self, event: &Followed) {
        let left = format!(
            "left: {:.1} s, {} model calls, {} tool calls",
            millis(event.remaining.ms),
            event.remaining.model_calls,
            event.remaining.tool_calls
        );
        let Said::Value(data) = &event.said else { return };
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match event.kind {
            "model.started" => match data.get("last_because").and_then(Value::as_str) {
                Some(reason) => self.line(&format!("model, for the last time ({reason}); {left}")),
                None => self.line(&format!("model; {left}")),
            },
            "model.attempt_failed" => self.line(&format!("model: {} failed ({})", text("target"), text("code"))),
            "tool.started" => self.line(&format!("tool {}; {left}", text("tool"))),
            "tool.finished" => self.line(&format!("tool {}: {} after {} ms", text("tool"), text("code"), data["duration_ms"])),
            "tool.refused" => self.line(&format!("tool {} refused: {}", text("tool"), text("code"))),
            "session.limit_approaching" => self.line(&format!("{} is nearly used up", text("axis"))),
            _ => {}
        }
    }
}

fn millis(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

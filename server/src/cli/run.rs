//! `ambit run`: one bounded session here and now.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ambit_config::Config;
use ambit_core::Settlement;
use ambit_core::session::{Canceller, OnLimit};
use ambit_orchestrator::{Followed, LimitsWish, Running, Said, SessionRequest, SessionStream, SessionView, StartError};
use clap::Args;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::app::{App, AppError, Role};
use crate::cli::look::Look;
use crate::cli::progress::{Progress, TICK};
use crate::cli::{explain, failed_to_start};
use crate::exit;
use crate::http::{event_json, local, session_json};
use crate::output::{out, piece, plain, say};
use crate::telemetry::logs;

/// Largest input read from stdin, bytes; the prompt limit in characters is checked later.
const STDIN_MAX: u64 = 1 << 20;
/// How long leaving in order may take after the second signal.
const LEAVE: Duration = Duration::from_millis(500);
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
    /// Print the whole session as JSON instead of the answer; with `--stream` one object an event.
    #[arg(long)]
    json: bool,
    /// Print text as it comes.
    #[arg(long)]
    stream: bool,
    /// No progress on stderr.
    #[arg(long, short)]
    quiet: bool,
}

impl Run {
    pub(crate) async fn execute(self, config: Arc<Config>, look: Look) -> ExitCode {
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
        // From here on a signal is a cancellation, and the session still ends in order; at the second one we leave.
        let stop = Arc::new(Stop::default());
        let mut signals = JoinSet::new();
        signals.spawn(listen(stop.clone()));
        let work = async {
            let app = match App::start(config, Role::Runner(&agent), stop.cancel.clone().cancelled_owned()).await {
                Ok(app) => app,
                Err(AppError::Stopped) => {
                    say!("stopped before the session began");
                    return ExitCode::from(exit::INTERRUPTED);
                }
                Err(failed) => return failed_to_start(&failed),
            };
            let code = self.session(&app, agent.clone(), input, look, &stop.cancel).await;
            // The session is over: nothing is left to be waited for but its settlement.
            app.drain(SETTLE, &CancellationToken::new()).await;
            app.close().await;
            code
        };
        let code = tokio::select! {
            code = work => code,
            // What is out is dropped, as in a crash: the journal holds what is needed to go on.
            () = stop.leave.cancelled() => {
                say!("left at once: what was not settled is taken up by the next `ambit serve` on this file");
                ExitCode::from(exit::INTERRUPTED)
            }
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

    async fn session(&self, app: &App, agent: String, input: String, look: Look, cancel: &CancellationToken) -> ExitCode {
        let request = SessionRequest {
            agent,
            input: vec![input.into()],
            tainted: false,
            previous: None,
            idempotency: None,
            continues: false,
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
        let Some((view, whole)) = self.follow(app, running, look, cancel).await else {
            say!("error: the session could not be followed to its end");
            return ExitCode::from(exit::UNAVAILABLE);
        };
        if self.stream && !whole {
            say!("the stream broke off before its end; the whole answer follows");
        }
        match (self.json, self.stream && whole) {
            (true, false) => out!("{}", session_json(&view)),
            // The last event holds the session.
            (true, true) => {}
            (false, streamed) => summary(&view, streamed),
        }
        if view.settlement == Settlement::Pending && !self.quiet {
            say!("waiting for what was sent to end");
        }
        view.verdict.map_or(ExitCode::from(exit::FAILURE), |verdict| exit::of_verdict(&verdict))
    }

    /// Shows what happens until the verdict, and says whether all of it was shown; Ctrl-C cancels the session, and it still
    /// ends in order.
    async fn follow(&self, app: &App, mut running: Running, look: Look, cancel: &CancellationToken) -> Option<(Arc<SessionView>, bool)> {
        let mut progress = Progress::new(look, self.quiet, self.stream, &running.limits);
        progress.line(&format!("session {}, deadline {} s", running.id, running.limits.deadline_ms / 1_000));
        let mut stream = app.orchestrator.follow(running.id, false).await.ok();
        let id = running.id;
        let mut tick = interval(TICK);
        let mut text = Streamed::default();
        let (mut stopping, mut whole) = (false, false);
        // Ends with the stream, which ends with the session.
        loop {
            let event = tokio::select! {
                event = next(&mut stream) => event,
                _ = tick.tick() => {
                    progress.tick();
                    continue;
                }
                () = cancel.cancelled(), if !stopping => {
                    stopping = true;
                    progress.line("stopping; another signal leaves at once");
                    let _ = app.orchestrator.cancel(id, Canceller::Caller).await;
                    continue;
                }
            };
            let Some(event) = event else { break };
            progress.show(&event);
            if matches!(event.kind, "model.finished" | "tool.finished")
                && let Ok(view) = app.orchestrator.view(id, false).await
            {
                progress.spent(&view.spent);
            }
            match (self.stream, self.json) {
                (true, true) => out!("{}", event_json(&event, id)),
                (true, false) => {
                    text.show(&event);
                    progress.text_stands(text.open);
                }
                (false, _) => {}
            }
            if event.terminal {
                whole = true;
                break;
            }
        }
        text.end();
        drop(progress);
        // Where the stream broke off before the verdict, a signal still cancels.
        let asked = async {
            cancel.cancelled().await;
            let _ = app.orchestrator.cancel(id, Canceller::Caller).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            view = running.verdict(None) => view.map(|view| (view, whole)),
            () = asked, if !stopping => None,
        }
    }
}

/// Text of answers as it comes, on stdout.
#[derive(Default)]
struct Streamed {
    /// The model call whose text was written last.
    step: u64,
    open: bool,
}

impl Streamed {
    /// Writes an event's text, the text of each model call on lines of its own.
    fn show(&mut self, event: &Followed) {
        let Said::Value(data) = &event.said else { return };
        let (Some(delta), Some(step)) = (data.get("delta").and_then(Value::as_str), data.get("step").and_then(Value::as_u64)) else {
            return;
        };
        if step != self.step {
            self.end();
            self.step = step;
        }
        piece(&plain(delta));
        if !delta.is_empty() {
            self.open = !delta.ends_with('\n');
        }
    }

    /// Ends the line, if there is one.
    fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            piece("\n");
        }
    }
}

/// What signals ask for.
#[derive(Default)]
struct Stop {
    cancel: CancellationToken,
    leave: CancellationToken,
    terminated: AtomicBool,
}

/// Hears signals: the first cancels, at the second we leave.
async fn listen(stop: Arc<Stop>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else { return };
    for token in [&stop.cancel, &stop.leave] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => stop.terminated.store(true, Ordering::Release),
        }
        token.cancel();
    }
    // Whoever writes to a reader that takes nothing hears no token: leaving must not depend on it.
    sleep(LEAVE).await;
    let code = if stop.terminated.load(Ordering::Acquire) { exit::TERMINATED } else { exit::INTERRUPTED };
    #[expect(clippy::disallowed_methods, reason = "as in a crash: the journal holds what is needed to go on")]
    std::process::exit(code.into());
}

async fn next(stream: &mut Option<SessionStream>) -> Option<Followed> {
    match stream {
        Some(stream) => stream.next().await.ok().flatten(),
        None => None,
    }
}

async fn from_stdin() -> std::io::Result<String> {
    let mut bytes = Vec::new();
    tokio::io::stdin().take(STDIN_MAX + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > STDIN_MAX {
        return Err(std::io::Error::other(format!("more than {STDIN_MAX} bytes; an input is never cut")));
    }
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

fn refusal_code(refused: &StartError) -> u8 {
    match refused {
        StartError::Saturated(_) | StartError::Overloaded { .. } => exit::SATURATED,
        StartError::Store(_) | StartError::ShuttingDown => exit::UNAVAILABLE,
        StartError::DeadlineExceeded | StartError::DeadlineTooShort { .. } => exit::DEADLINE,
        StartError::AgentNotFound { .. }
        | StartError::UnknownTools { .. }
        | StartError::LimitsTooHigh(_)
        | StartError::PromptTooLarge { .. }
        | StartError::ContextTooLong { .. }
        | StartError::IdempotencyKeyReused
        | StartError::PreviousNotFound { .. }
        | StartError::PreviousUnusable { .. } => exit::USAGE,
        StartError::IdempotencyInProgress { .. } => exit::UNAVAILABLE,
        StartError::NoChain { .. } | StartError::Interrupted | StartError::Unreadable(_) => exit::FAILURE,
    }
}

/// The answer unless it was shown as it came, then what was spent: on stdout both, as the one is the other's price.
fn summary(view: &SessionView, streamed: bool) {
    let Some(verdict) = view.verdict else { return };
    if let Some(answer) = view.output_text.as_deref().filter(|answer| !answer.is_empty()) {
        if !streamed {
            out!("{}", plain(answer.trim_end()));
        }
        out!("");
    }
    if let Some(failure) = &view.failure {
        say!("error: {}", plain(&failure.detail));
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

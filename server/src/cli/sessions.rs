//! `ambit sessions`: list, show, tail, cancel, from the store of the configuration, beside whoever runs them.

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ambit_config::Config;
use ambit_core::SessionId;
use ambit_core::id::InvalidSessionId;
use ambit_core::session::Canceller;
use ambit_orchestrator::{Desk, Followed, LookupError, Posted, Said, SessionView, wall_ms};
use ambit_store::{Clock, Order, Page, SessionRow, StoreError};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::cli::explain;
use crate::cli::look::{DIM, Look};
use crate::cli::progress::describe;
use crate::cli::table::table;
use crate::exit;
use crate::http::{Include, SessionList, SessionObject, event_json, rfc3339};
use crate::output::{is_gone, out, plain, say};
use crate::telemetry::logs;

/// How often what others write is looked for.
const POLL: Duration = Duration::from_millis(100);
/// How long cancelling waits for the verdict that it causes.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Lists sessions, the youngest first.
    List(List),
    /// Shows one session.
    Show(Show),
    /// Shows what happens in a session: from its beginning, then as it happens, to its end.
    Tail(Tail),
    /// Asks a session to stop; what it began is still accounted for.
    Cancel(Cancel),
}

/// Which sessions.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only of this status.
    #[arg(long, value_parser = ["running", "awaiting_approval", "completed", "incomplete", "failed", "cancelled"])]
    status: Option<String>,
    /// Only of this agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// At most so many, 1 to 100.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Begin behind this session.
    #[arg(long, value_name = "ID")]
    after: Option<SessionId>,
    /// In which order.
    #[arg(long, value_enum, default_value_t = Sorted::Desc)]
    order: Sorted,
    /// As JSON, in the form of the API.
    #[arg(long)]
    json: bool,
}

/// An order of sessions.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sorted {
    /// The youngest first.
    Desc,
    /// The oldest first.
    Asc,
}

/// Which session, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The session, or `last` for the youngest.
    #[arg(value_name = "ID")]
    id: Which,
    /// With every step.
    #[arg(long)]
    steps: bool,
    /// With everything that was said.
    #[arg(long)]
    transcript: bool,
    /// As JSON, in the form of the API.
    #[arg(long)]
    json: bool,
}

/// Which session, and to which end.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// The session, or `last` for the youngest.
    #[arg(value_name = "ID")]
    id: Which,
    /// Also what comes after the verdict.
    #[arg(long)]
    settlement: bool,
    /// One JSON object an event, as the API's streams have it.
    #[arg(long)]
    json: bool,
}

/// Which session.
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The session.
    #[arg(value_name = "ID")]
    id: SessionId,
    /// The session as it then stands, as JSON.
    #[arg(long)]
    json: bool,
}

/// A session as a person names it. What acts on one takes its id alone: the youngest may be another by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// This one.
    Id(SessionId),
    /// The youngest.
    Last,
}

impl FromStr for Which {
    type Err = InvalidSessionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "last" { Ok(Self::Last) } else { text.parse().map(Self::Id) }
    }
}

impl Which {
    /// Its id; `None` if there is no session at all.
    pub(crate) async fn find(self, desk: &Desk) -> Result<Option<SessionId>, LookupError> {
        match self {
            Self::Id(id) => Ok(Some(id)),
            Self::Last => {
                let page = Page { after: None, limit: NonZeroU32::MIN, order: Order::NewestFirst, status: None, agent: None, tenant: None };
                let found = desk.list(page).await?.rows.first().map(|row| row.id);
                if found.is_none() {
                    say!("error: there is no session yet\nhint: `ambit run` makes one");
                }
                Ok(found)
            }
        }
    }
}

impl SessionsCommand {
    pub(crate) async fn execute(self, config: Arc<Config>, look: Look) -> ExitCode {
        logs::init("warn", false);
        let desk = match open(&config).await {
            Ok(desk) => desk,
            Err(code) => return code,
        };
        let done = match &self {
            Self::List(list) => list.execute(&desk).await,
            Self::Show(show) => show.execute(&desk).await,
            Self::Tail(tail) => tail.execute(&desk, look).await,
            Self::Cancel(cancel) => cancel.execute(&desk).await,
        };
        close(desk, done).await
    }
}

/// A desk at the configured store, or why not on stderr and the exit code for it.
pub(crate) async fn open(config: &Config) -> Result<Desk, ExitCode> {
    let mut options = config.store_options("desk", Clock::system());
    options.poll = POLL;
    Desk::open(options).await.map_err(|failed| {
        say!(
            "error: the store `{}` cannot be read\n  because: {}",
            config.settings().store.url,
            explain(&failed).trim_start_matches("error: ")
        );
        if let Some(hint) = failed.hint() {
            say!("hint: {hint}");
        }
        ExitCode::from(exit::UNAVAILABLE)
    })
}

/// Leaves the desk; an error is said, and becomes its exit code.
pub(crate) async fn close(desk: Desk, done: Result<ExitCode, LookupError>) -> ExitCode {
    // Only readers: whether they close in time changes nothing.
    let _ = desk.close().await;
    done.unwrap_or_else(|failed| {
        say!("{}", explain(&failed));
        let (hint, code) = match &failed {
            LookupError::NotFound(_) => {
                (Some("`ambit sessions list` lists them; `store.url` says in which file they are looked for"), exit::FAILURE)
            }
            LookupError::Store(failed) => (StoreError::hint(failed), exit::UNAVAILABLE),
            LookupError::Unreadable(_) => (Some("use the release that wrote it, or a newer one"), exit::FAILURE),
        };
        if let Some(hint) = hint {
            say!("hint: {hint}");
        }
        ExitCode::from(code)
    })
}

impl List {
    async fn execute(&self, desk: &Desk) -> Result<ExitCode, LookupError> {
        let page = Page {
            after: self.after,
            limit: NonZeroU32::new(self.limit).unwrap_or(NonZeroU32::MIN),
            order: match self.order {
                Sorted::Desc => Order::NewestFirst,
                Sorted::Asc => Order::OldestFirst,
            },
            status: self.status.clone(),
            agent: self.agent.clone(),
            tenant: None,
        };
        let found = desk.list(page).await?;
        let (first, last) = (found.rows.first().map(|row| row.id.to_string()), found.rows.last().map(|row| row.id.to_string()));
        if self.json {
            let mut data = Vec::with_capacity(found.rows.len());
            for row in &found.rows {
                match desk.view(row.id, false).await {
                    Ok(view) => data.push(SessionObject::of(&view, Include::default())),
                    // One damaged journal must not hide the others.
                    Err(LookupError::Unreadable(wrong)) => say!("warning: {} is left out: {wrong}", row.id),
                    Err(failed) => return Err(failed),
                }
            }
            let list = SessionList { object: "list", data, first_id: first, last_id: last, has_more: found.has_more };
            out!("{}", serde_json::to_string_pretty(&list).unwrap_or_default());
            return Ok(ExitCode::from(exit::DONE));
        }
        if found.rows.is_empty() {
            say!("no sessions");
            return Ok(ExitCode::from(exit::DONE));
        }
        let now = wall_ms();
        let rows: Vec<_> = found.rows.iter().map(|row| cells(row, now)).collect();
        table(["ID", "STATUS", "REASON", "AGENT", "CREATED", "TOOK", "SETTLEMENT"], &rows);
        if let (true, Some(last)) = (found.has_more, last) {
            say!("there are more: --after {last}");
        }
        Ok(ExitCode::from(exit::DONE))
    }
}

fn cells(row: &SessionRow, now: u64) -> [String; 7] {
    let took = row.verdict_ms.unwrap_or(now).saturating_sub(row.created_ms);
    [
        row.id.to_string(),
        row.status.clone(),
        row.reason.clone().unwrap_or_default(),
        plain(&row.agent),
        seconds_of(row.created_ms),
        format!("{:.1}s", Duration::from_millis(took).as_secs_f64()),
        row.settlement.clone().unwrap_or_default(),
    ]
}

/// A moment to the second.
pub(crate) fn seconds_of(ms: u64) -> String {
    rfc3339(ms - ms % 1_000)
}

impl Show {
    async fn execute(&self, desk: &Desk) -> Result<ExitCode, LookupError> {
        let Some(id) = self.id.find(desk).await? else { return Ok(ExitCode::from(exit::FAILURE)) };
        let view = desk.view(id, self.transcript).await?;
        if self.json {
            let object = SessionObject::of(&view, Include { steps: self.steps, transcript: self.transcript });
            out!("{}", serde_json::to_string_pretty(&object).unwrap_or_default());
        } else {
            self.show(&view);
        }
        Ok(ExitCode::from(exit::DONE))
    }

    fn show(&self, view: &SessionView) {
        let (spent, limits) = (&view.spent, &view.limits);
        let line = |name: &str, value: String| out!("{name:<12}{value}");
        line("session", view.id.to_string());
        line("agent", format!("{} ({}, config {})", plain(&view.agent), short(&view.agent_version), view.config_revision));
        line("status", ended(view));
        line("settlement", view.settlement.to_string());
        line("created", seconds_of(view.created_ms));
        line("time", format!("{:.1} s of {:.1} s", secs(view.elapsed_ms), secs(limits.deadline_ms)));
        line("model calls", format!("{} of {} ({} requests)", spent.model_calls, limits.model_calls, spent.model_attempts));
        line("tool calls", format!("{} of {} ({} requests)", spent.tool_calls, limits.tool_calls, spent.tool_attempts));
        let least = if spent.at_least { ", at least" } else { "" };
        line("tokens", format!("{} of {}{least}", spent.tokens(), limits.total_tokens));
        line("money", format!("{} of {}{least}", spent.cost, limits.cost_usd));
        let effects = &view.effects;
        line(
            "effects",
            format!(
                "{} done, {} pending, {} compensated, {} unknown, {} need a person",
                effects.done, effects.pending, effects.compensated, effects.unknown, effects.needs_attention
            ),
        );
        for lost in &view.degraded {
            line("degraded", format!("{} {}: {}", plain(&lost.capability), lost.mode, plain(&lost.reason)));
        }
        if let Some(failure) = &view.failure {
            line("failure", plain(&failure.detail));
        }
        if self.steps {
            out!("");
            let rows: Vec<_> = view
                .steps
                .iter()
                .map(|step| {
                    let took = step.ended_at.map(|ended| format!("{}ms", ended.saturating_sub(step.started_at)));
                    [
                        step.step.to_string(),
                        step.kind.to_owned(),
                        plain(step.tool.as_deref().unwrap_or_default()),
                        format!("{:.2}s", secs(step.started_at)),
                        took.unwrap_or_default(),
                        plain(step.outcome.as_deref().unwrap_or_default()),
                        step.attempts.to_string(),
                    ]
                })
                .collect();
            table(["STEP", "KIND", "TOOL", "AT", "TOOK", "OUTCOME", "REQUESTS"], &rows);
        }
        for said in &view.transcript {
            let of = [said.tool.as_deref(), said.code].into_iter().flatten().map(plain).collect::<Vec<_>>().join(" ");
            out!("\n[{}{}{of}]\n{}", said.role, if of.is_empty() { "" } else { " " }, plain(said.text.trim_end()));
        }
        if let (true, Some(answer)) = (view.transcript.is_empty(), view.output_text.as_deref().filter(|answer| !answer.is_empty())) {
            out!("\n{}", plain(answer.trim_end()));
        }
    }
}

impl Tail {
    async fn execute(&self, desk: &Desk, look: Look) -> Result<ExitCode, LookupError> {
        let Some(id) = self.id.find(desk).await? else { return Ok(ExitCode::from(exit::FAILURE)) };
        let mut stream = desk.follow(id, self.settlement).await?;
        let mut text = String::new();
        // Ends with the session's last event, or with whoever reads.
        while let Some(event) = stream.next().await? {
            if self.json {
                out!("{}", event_json(&event, id));
            } else {
                lines(&event, &mut text, look);
            }
            if event.terminal || is_gone() {
                break;
            }
        }
        Ok(ExitCode::from(exit::DONE))
    }
}

/// Shows an event. Text is kept until its line ends, or until something else happens.
fn lines(event: &Followed, text: &mut String, look: Look) {
    let at = look.out(DIM, &format!("{:7.2}s", secs(event.at)));
    if let (Said::Value(data), "output_text.delta") = (&event.said, event.kind) {
        text.push_str(data.get("delta").and_then(Value::as_str).unwrap_or_default());
        while let Some((line, rest)) = text.split_once('\n') {
            out!("{at} | {}", plain(line));
            *text = rest.to_owned();
        }
        return;
    }
    if !text.is_empty() {
        out!("{at} | {}", plain(&std::mem::take(text)));
    }
    match (&event.said, event.kind) {
        (Said::Session(view), kind) if kind.starts_with("settlement.") => out!("{at} {}", view.settlement),
        (Said::Session(view), _) => out!("{at} {}", ended(view)),
        (Said::Value(_), "session.started") => out!("{at} started"),
        (Said::Value(_), _) => {
            if let Some(said) = describe(event) {
                out!("{at} {said}");
            }
        }
    }
}

/// Status and reason.
fn ended(view: &SessionView) -> String {
    let reason = view.verdict.map(|verdict| format!(" ({})", verdict.reason)).unwrap_or_default();
    format!("{}{reason}", view.status)
}

impl Cancel {
    async fn execute(&self, desk: &Desk) -> Result<ExitCode, LookupError> {
        let posted = desk.cancel(self.id, Canceller::Operator).await?;
        let until = Instant::now() + CANCEL_WAIT;
        // A few looks: the owner hears within its own poll.
        let view = loop {
            let view = desk.view(self.id, false).await?;
            if view.verdict.is_some() || posted != Posted::Heard || Instant::now() >= until {
                break view;
            }
            sleep(POLL).await;
        };
        match posted {
            Posted::Closed => say!("it had ended before; nothing was changed"),
            Posted::Waits => say!("no process runs it: the next `ambit serve` on this file takes it up and cancels it"),
            Posted::Heard if view.verdict.is_none() => {
                say!("it was asked to stop, and has not ended yet; `ambit sessions tail {}` follows it", self.id)
            }
            Posted::Heard => {}
        }
        if self.json {
            out!("{}", serde_json::to_string_pretty(&SessionObject::of(&view, Include::default())).unwrap_or_default());
        } else {
            out!("{} {}", view.id, ended(&view));
        }
        Ok(ExitCode::from(exit::DONE))
    }
}

/// As much of a digest as a person compares.
pub(crate) fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// Milliseconds as seconds.
pub(crate) fn secs(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

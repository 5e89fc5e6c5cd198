//! What a running session shows on stderr: bars and the steps above them on a terminal, a plain line an event elsewhere.

use std::time::Duration;

use ambit_core::Limits;
use ambit_core::session::Spent;
use ambit_orchestrator::{Followed, Said};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::look::{DIM, Look};
use crate::output::{plain, say};

/// How often bars move while nothing happens.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Most times a second that bars are drawn.
const DRAWN_PER_SECOND: u8 = 10;
/// Widest that a bar is drawn, columns.
const BAR: &str = "{prefix:>11} [{bar:24}] {msg}";

/// Shows what happens.
pub(crate) enum Progress {
    /// Nothing.
    Quiet,
    /// A line an event.
    Lines(Lines),
    /// Bars, and steps above them.
    Bars(Box<Bars>),
}

/// A line an event, with the time in front.
pub(crate) struct Lines {
    look: Look,
    began: Instant,
    /// True if text of an answer stands on the line that a terminal shows last.
    mid_line: bool,
}

/// One bar a budget, the steps that are out, and what happened above them.
pub(crate) struct Bars {
    all: MultiProgress,
    look: Look,
    began: Instant,
    now: ProgressBar,
    time: ProgressBar,
    model_calls: ProgressBar,
    tool_calls: ProgressBar,
    tokens: ProgressBar,
    money: ProgressBar,
    limits: Limits,
    /// Steps that are out, each with its name.
    out: Vec<(u64, String)>,
}

impl Progress {
    /// For a session of these limits; `streaming` if its text goes to stdout as it comes.
    pub(crate) fn new(look: Look, quiet: bool, streaming: bool, limits: &Limits) -> Self {
        // Text that comes in pieces and bars that are drawn again cannot share a screen.
        match (quiet, look.live && !(streaming && look.out_terminal)) {
            (true, _) => Self::Quiet,
            (false, false) => Self::Lines(Lines { look, began: Instant::now(), mid_line: false }),
            (false, true) => Self::Bars(Box::new(Bars::new(look, limits))),
        }
    }

    /// Says something by itself.
    pub(crate) fn line(&mut self, text: &str) {
        match self {
            Self::Quiet => {}
            Self::Lines(lines) => lines.line(text),
            Self::Bars(bars) => bars.line(text),
        }
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, event: &Followed) {
        match self {
            Self::Quiet => {}
            Self::Lines(lines) => {
                if let Some(text) = describe(event) {
                    lines.line(&format!("{text}{}", left(event)));
                }
            }
            Self::Bars(bars) => bars.show(event),
        }
    }

    /// Shows what was spent by now.
    pub(crate) fn spent(&mut self, spent: &Spent) {
        match self {
            Self::Quiet | Self::Lines(_) => {}
            Self::Bars(bars) => bars.spent(spent),
        }
    }

    /// Text of the answer was written to stdout; `open` if its line has not ended.
    pub(crate) fn text_stands(&mut self, open: bool) {
        match self {
            Self::Lines(lines) => lines.mid_line = lines.look.out_terminal && open,
            Self::Quiet | Self::Bars(_) => {}
        }
    }

    /// Moves what moves by itself.
    pub(crate) fn tick(&mut self) {
        match self {
            Self::Quiet | Self::Lines(_) => {}
            Self::Bars(bars) => bars.tick(),
        }
    }
}

impl Lines {
    fn line(&mut self, text: &str) {
        if std::mem::take(&mut self.mid_line) {
            say!("");
        }
        let at = format!("{:6.2}s", self.began.elapsed().as_secs_f64());
        say!("{} {text}", self.look.err(DIM, &at));
    }
}

impl Bars {
    fn new(look: Look, limits: &Limits) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWN_PER_SECOND));
        // A template of ours that does not parse would be a mistake of ours; the bars then have the library's own form.
        let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
        let now = all.add(ProgressBar::no_length());
        now.set_style(ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let bar = |name: &'static str, length: u64| all.add(ProgressBar::new(length).with_style(style.clone()).with_prefix(name));
        let mut bars = Self {
            look,
            began: Instant::now(),
            now,
            time: bar("time", limits.deadline_ms),
            model_calls: bar("model calls", limits.model_calls.into()),
            tool_calls: bar("tool calls", limits.tool_calls.into()),
            tokens: bar("tokens", limits.total_tokens),
            money: bar("money", limits.cost_usd.0),
            limits: *limits,
            out: Vec::new(),
            all,
        };
        bars.spent(&Spent::default());
        bars.tick();
        bars
    }

    fn line(&self, text: &str) {
        let at = format!("{:6.2}s", self.began.elapsed().as_secs_f64());
        // A terminal that is gone shows nothing any more; the session goes on.
        let _ = self.all.println(format!("{} {text}", self.look.err(DIM, &at)));
    }

    fn show(&mut self, event: &Followed) {
        if let Some(text) = describe(event) {
            self.line(&text);
        }
        let Said::Value(data) = &event.said else { return };
        let step = data.get("step").and_then(Value::as_u64);
        match (event.kind, step) {
            ("model.started", Some(step)) => {
                // Model calls never overlap: one that was abandoned is over.
                self.out.retain(|(_, name)| name != "model");
                self.out.push((step, "model".to_owned()));
            }
            ("tool.started", Some(step)) => self.out.push((step, format!("tool {}", text(data, "tool")))),
            ("model.finished" | "tool.finished", Some(step)) => self.out.retain(|(out, _)| *out != step),
            _ => {}
        }
        self.counted(event.remaining.model_calls, event.remaining.tool_calls);
        self.tick();
    }

    fn counted(&self, model_calls_left: u32, tool_calls_left: u32) {
        let bars =
            [(&self.model_calls, self.limits.model_calls, model_calls_left), (&self.tool_calls, self.limits.tool_calls, tool_calls_left)];
        for (bar, limit, left) in bars {
            // What is read and what is followed come in their own order; no budget comes back.
            let used = u64::from(limit.saturating_sub(left)).max(bar.position());
            bar.set_position(used);
            bar.set_message(format!("{used} of {limit}"));
        }
    }

    fn spent(&mut self, spent: &Spent) {
        let limits = &self.limits;
        self.counted(limits.model_calls.saturating_sub(spent.model_calls), limits.tool_calls.saturating_sub(spent.tool_calls));
        self.tokens.set_position(spent.tokens().min(limits.total_tokens));
        self.tokens.set_message(format!("{} of {}", spent.tokens(), limits.total_tokens));
        self.money.set_position(spent.cost.0.min(limits.cost_usd.0));
        self.money.set_message(format!("{} of {}", spent.cost, limits.cost_usd));
    }

    fn tick(&self) {
        let elapsed = self.began.elapsed();
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.time.set_position(ms.min(self.limits.deadline_ms));
        self.time.set_message(format!("{:.1} s of {:.1} s", elapsed.as_secs_f64(), millis(self.limits.deadline_ms)));
        let names: Vec<&str> = self.out.iter().map(|(_, name)| name.as_str()).collect();
        self.now.set_message(if names.is_empty() { "..".to_owned() } else { names.join(", ") });
        self.now.tick();
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        // What stays on the screen is what happened, not how far it was.
        let _ = self.all.clear();
        // Each bar would draw the others once more when it goes.
        self.all.set_draw_target(ProgressDrawTarget::hidden());
    }
}

/// An event in words; `None` for one that says nothing to a person.
pub(crate) fn describe(event: &Followed) -> Option<String> {
    let Said::Value(data) = &event.said else { return None };
    let text = |key: &str| text(data, key);
    Some(match event.kind {
        "model.started" => match data.get("last_because").and_then(Value::as_str) {
            Some(reason) => format!("model, for the last time ({reason})"),
            None => "model".to_owned(),
        },
        "model.attempt_failed" => format!("model: {} failed ({})", text("target"), text("code")),
        "model.fell_back" => format!("model: fell back to {}", text("target")),
        "tool.started" => format!("tool {}", text("tool")),
        "tool.finished" => format!("tool {}: {} after {} ms", text("tool"), text("code"), data["duration_ms"]),
        "tool.refused" => format!("tool {} refused: {}", text("tool"), text("code")),
        "session.limit_approaching" => format!("{} is nearly used up", text("axis")),
        "session.degraded" => format!("{} is {}: {}", text("capability"), text("mode"), text("reason")),
        "session.awaiting_approval" => format!("tool {} waits for a person's yes", text("tool")),
        "settlement.reconciled" => format!("step {}: asked the other side, {}", data["step"], text("finding")),
        "settlement.compensated" if data["undone"] == true => format!("step {}: undone", data["step"]),
        "settlement.compensated" => format!("step {}: could not be undone", data["step"]),
        _ => return None,
    })
}

/// What is left, behind an event that begins something.
fn left(event: &Followed) -> String {
    match event.kind {
        "model.started" | "tool.started" => format!(
            "; left: {:.1} s, {} model calls, {} tool calls",
            millis(event.remaining.ms),
            event.remaining.model_calls,
            event.remaining.tool_calls
        ),
        _ => String::new(),
    }
}

fn text(data: &Value, key: &str) -> String {
    plain(data.get(key).and_then(Value::as_str).unwrap_or_default())
}

fn millis(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

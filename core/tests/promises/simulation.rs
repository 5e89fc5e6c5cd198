//! The driver that the bytes steer: it deals a session and then lets things happen in it, in any order.
//!
//! Honest answers tell the truth about attempts always, about usage nearly always. What the machine waits for it must hear.

use std::collections::BTreeMap;

use ambit_core::money::Price;
use ambit_core::session::{
    Canceller, Command, Decision, Event, Finding, FinishReason, Heard, ModelFault, OnLimit, PreparedCall, Reply, Saga, Started, TaintRule,
};
use ambit_core::{Allowance, AttemptRecord, Cause, Gate, Limits, Money, Status, Step, ToolCode, ToolResult};

use super::{Reference, Seen};
use crate::kit::{Asked, Driver, Open, attempts, body, is_local, prepared, started};

/// Every kind of tool that the kit knows.
const TOOLS: [&str; 12] = ["r", "u", "g", "p", "w", "k", "i", "q", "c", "d", "b", "m"];

/// Deals numbers from the bytes of the case, noughts once they are used up.
pub(super) struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Mostly `usual`, else one of the others.
    fn rarely<T: Copy>(&mut self, usual: T, others: &[T]) -> T {
        match self.below(16) {
            0..=14 => usual,
            _ => self.pick(others),
        }
    }

    /// A share of `whole`.
    fn share(&mut self, whole: u64) -> u64 {
        whole / 255 * u64::from(self.byte()) + whole % 255
    }

    fn is_used_up(&self) -> bool {
        self.0.is_empty()
    }
}

/// What may happen in a session besides honest answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// Answers, in time.
    Calm,
    /// Time passes, somebody cancels.
    Windy,
    /// Crashes, garbage, lies about usage, limits that shrink.
    Stormy,
}

pub(super) struct Simulation<'a, R> {
    dice: Dice<'a>,
    weather: Weather,
    driver: Driver,
    lent: BTreeMap<Step, Allowance>,
    max_output: u32,
    last: bool,
    trouble: Option<ModelFault>,
    fresh: u32,
    reference: R,
    trace: Trace,
}

pub(super) fn simulate(bytes: &[u8], mut reference: impl Reference, trace: Trace) {
    let mut dice = Dice(bytes);
    let weather = dice.pick(&[Weather::Calm, Weather::Windy, Weather::Stormy]);
    let session = session(&mut dice);
    let driver = Driver::start(session.clone());
    reference.begin(&session, &driver.first);
    let mut simulation = Simulation {
        dice,
        weather,
        lent: BTreeMap::new(),
        max_output: 0,
        last: false,
        trouble: None,
        fresh: 1_000,
        reference,
        driver,
        trace,
    };
    simulation.say(&format!("{:?} {:?}", weather, session.limits));
    simulation.remember(&simulation.driver.first.clone());
    simulation.driver.first.iter().for_each(|command| simulation.say(&format!("    {command}")));
    while !simulation.dice.is_used_up() && !simulation.driver.machine.is_closed() {
        simulation.something_happens();
    }
    simulation.bring_to_an_end();
    simulation.reference.end(&simulation.driver);
}

pub(super) fn session(dice: &mut Dice<'_>) -> Started {
    let mut session = started();
    let limits = &mut session.limits;
    limits.model_calls = dice.rarely(12, &[1, 2, 3, 5]);
    limits.tool_calls = dice.rarely(24, &[0, 1, 2, 5]);
    limits.parallel_tools = dice.pick(&[4, 1, 2]);
    limits.model_attempts = dice.rarely(40, &[1, 2, 3, 4]);
    limits.tool_attempts = dice.rarely(60, &[0, 1, 3, 6]);
    limits.total_tokens = dice.rarely(200_000, &[300, 3_000, 6_000, 12_000]);
    limits.cost_usd = Money(dice.rarely(1_000_000_000, &[3_000, 60_000, 200_000]));
    limits.transcript = dice.rarely(1 << 20, &[2_000, 8_000]);
    limits.answer_reserve_ms = dice.rarely(8_000, &[0, 20_000, 30_000]);
    limits.events = dice.rarely(limits.events_needed(), &[512, 12]);
    session.on_limit = dice.pick(&[OnLimit::Answer, OnLimit::Answer, OnLimit::Stop]);
    session.taint = dice.pick(&[TaintRule::Allow, TaintRule::Approve, TaintRule::Refuse]);
    session.tainted = dice.below(8) == 7;
    session.retrieval = dice.below(4) == 3;
    session.ceiling.attempts = dice.pick(&[2, 1, 3]);
    session.ceiling.price = Price { input: Money(dice.pick(&[0, 10])), output: Money(dice.pick(&[0, 20])), cached: Money::ZERO };
    session.ceiling.context_window = dice.rarely(None, &[Some(2_600), Some(5_000)]);
    let on = dice.pick(&[
        &[][..],
        &[Status::Cancelled, Status::Failed],
        &[Status::Cancelled, Status::Failed, Status::Incomplete, Status::Completed],
    ]);
    let groups = if dice.below(2) == 1 { vec![vec!["c".into(), "d".into()]] } else { Vec::new() };
    session.saga = (!on.is_empty()).then(|| Saga { on: on.to_vec(), groups });
    session
}

impl<R: Reference> Simulation<'_, R> {
    fn something_happens(&mut self) {
        let storm = usize::from(self.weather == Weather::Stormy);
        let wind = usize::from(self.weather != Weather::Calm);
        // What happens, and how likely: out of the sum of all.
        let chances = [60, 40, 10, 3 * wind, 5 * wind, wind, 14 * storm, 3 * storm, 8 * storm, 8 * storm];
        let mut roll = self.dice.below(chances.iter().sum());
        let what = chances.iter().position(|&chance| {
            if roll < chance {
                true
            } else {
                roll -= chance;
                false
            }
        });
        match what {
            Some(0) => self.answer_something(),
            Some(1) => self.send_something(),
            Some(2) => self.driver.at += self.dice.pick(&[0, 1, 50, 900]),
            Some(3) => self.driver.at += self.dice.pick(&[4_000, 9_000, 20_000]),
            Some(4) => {
                // Mostly when it asked for it.
                let wake = self.driver.machine.wake_at().map_or(0, |(at, _)| at);
                self.driver.at = self.driver.at.max(self.dice.pick(&[wake, wake, 0]));
                self.tell(Event::Woke, false);
            }
            Some(5) => {
                let by = self.dice.pick(&[Canceller::Disconnect, Canceller::Caller, Canceller::Operator, Canceller::Shutdown]);
                self.tell(Event::Cancelled { by }, false);
            }
            Some(6) => self.tell(Event::Resumed, false),
            Some(7) => {
                let limits = self.tighter();
                self.tell(Event::LimitsTightened { limits }, false);
            }
            Some(8) => {
                // Something that was heard already.
                let place = self.dice.below(self.driver.journal.len());
                if let Some(entry) = self.driver.journal.get(place) {
                    let event = entry.event.clone();
                    self.tell(event, false);
                }
            }
            _ => {
                let event = self.garbage();
                self.tell(event, false);
            }
        }
    }

    /// Answers all that is open, and waits where nothing is, until the session is closed.
    fn bring_to_an_end(&mut self) {
        // Each round applies an event, and they are bounded; `Ends` checks by how many.
        let rounds = self.driver.machine.started().limits.events_needed() + 64;
        for _ in 0..rounds {
            if self.driver.machine.is_closed() {
                return;
            }
            let before = self.driver.journal.len();
            match self.driver.open.iter().find(|open| !open.dropped).copied() {
                Some(open) => {
                    if open.asked == (Asked::Tool { write: true, sent: false })
                        && self.driver.at < self.driver.machine.limits().reserve_at()
                    {
                        self.tell(Event::Dispatched { step: open.step }, false);
                    }
                    if let Some(open) = self.driver.open.iter().find(|other| other.step == open.step).copied() {
                        self.answer(open);
                    }
                }
                None => {
                    let Some((at, _)) = self.driver.machine.wake_at() else { panic!("it waits for nothing and is not closed") };
                    self.driver.at = self.driver.at.max(at);
                    self.tell(Event::Woke, false);
                }
            }
            assert!(self.driver.journal.len() > before, "a round that changes nothing");
        }
        panic!("it does not end");
    }

    fn answer_something(&mut self) {
        let place = self.dice.below(self.driver.open.len());
        if let Some(open) = self.driver.open.get(place).copied() {
            self.answer(open);
        }
    }

    fn send_something(&mut self) {
        let unsent = |open: &&Open| open.asked == Asked::Tool { write: true, sent: false };
        if let Some(open) = self.driver.open.iter().find(unsent).copied() {
            let expected = !open.dropped && self.driver.at < self.driver.machine.limits().reserve_at();
            self.tell(Event::Dispatched { step: open.step }, false);
            let sent = self.driver.journal.last().is_some_and(|entry| entry.event == Event::Dispatched { step: open.step });
            assert_eq!(sent, expected, "a write leaves if it is awaited and has time");
        }
    }

    /// Gives the one answer to `open`. What the machine waits for, it hears.
    fn answer(&mut self, open: Open) {
        self.driver.open.retain(|other| other.step != open.step);
        let (event, dishonest) = self.honest_answer(open);
        let before = self.driver.journal.len();
        self.tell(event, dishonest);
        assert!(open.dropped || self.driver.journal.len() > before, "{open:?} was awaited, its answer was not heard");
    }

    fn honest_answer(&mut self, open: Open) -> (Event, bool) {
        let step = open.step;
        let event = match open.asked {
            Asked::Retrieval => {
                let passages = self.dice.pick(&[None, Some(body(2, 500))]);
                Event::Retrieved { step, passages, tainting: self.dice.below(2) == 1 }
            }
            Asked::Model => return self.model_answer(step),
            Asked::Tool { write, sent } => self.tool_answer(step, write, sent),
            Asked::Approval => {
                let decision = self.dice.rarely(Decision::Approve, &[Decision::Deny, Decision::Expired]);
                Event::ApprovalDecided { step, decision }
            }
            Asked::Reconciliation => {
                Event::Reconciled { step, finding: self.dice.pick(&[Finding::Found, Finding::Absent, Finding::Unknown]) }
            }
            Asked::Compensation => Event::Compensated { step, undone: self.dice.below(3) < 2 },
        };
        (event, false)
    }

    fn model_answer(&mut self, step: Step) -> (Event, bool) {
        let allowance = self.lent[&step];
        let lies = self.weather == Weather::Stormy && self.dice.below(8) == 7;
        let faults = [
            ModelFault::Saturated,
            ModelFault::Mistake,
            ModelFault::Deadline,
            ModelFault::Allowance,
            ModelFault::Context,
            ModelFault::Unavailable(Cause::Overloaded),
            ModelFault::Rejected,
            ModelFault::ContentFiltered,
            ModelFault::Internal,
        ];
        // Troubles seldom come alone.
        let fault = match self.trouble {
            Some(again) => (self.dice.below(3) == 2).then_some(again),
            None => (self.dice.below(16) == 15).then(|| self.dice.pick(&faults)),
        };
        self.trouble = fault;
        let attempts = self.usage(&allowance, fault == Some(ModelFault::Saturated), lies);
        if let Some(fault) = fault {
            let partial = (self.dice.below(4) == 3).then(|| body(3, 40));
            return (Event::ModelFailed { step, attempts, fault, partial }, lies);
        }
        // The last call mostly answers, the others mostly ask.
        let roll = self.dice.below(16);
        let calls_again = if self.last { roll >= 13 } else { roll < 13 };
        let calls = if calls_again { self.calls() } else { Vec::new() };
        let text = (!calls_again && self.dice.below(8) < 7).then(|| body(self.fresh(), self.max_output));
        let odd = self.dice.below(24) == 23;
        let finish = if odd {
            self.dice.pick(&[FinishReason::Length, FinishReason::Refusal, FinishReason::ContentFilter])
        } else {
            FinishReason::Stop
        };
        let tokens_per_kchar = if lies { Some(u32::MAX) } else { self.dice.pick(&[None, Some(250)]) };
        (Event::ModelReplied { step, attempts, reply: Reply { text, calls, carry: None, finish, tokens_per_kchar } }, lies)
    }

    fn calls(&mut self) -> Vec<PreparedCall> {
        let limits = self.driver.machine.limits();
        let left = limits.tool_calls.saturating_sub(self.driver.machine.spent().tool_calls);
        let most = if self.weather == Weather::Stormy && self.dice.below(32) == 31 { 70 } else { self.dice.pick(&[1, 2, left + 1, 4]) };
        (0..most.min(if most == 70 { 70 } else { left + 1 }))
            .map(|_| {
                let tool = self.dice.pick(&TOOLS);
                // Few arguments, so that some calls are the same.
                let arguments = self.dice.pick(&[0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
                let gate = self.dice.pick(&[
                    Gate::Go,
                    Gate::Go,
                    Gate::Go,
                    Gate::Go,
                    Gate::Go,
                    Gate::Go,
                    Gate::Ask,
                    Gate::Refuse(ToolCode::NotPermitted),
                ]);
                prepared(tool, arguments, gate, self.fresh())
            })
            .collect()
    }

    /// At most what was lent, unless it lies: attempts are counted before each leg and never lie.
    fn usage(&mut self, allowance: &Allowance, none: bool, lies: bool) -> Vec<AttemptRecord> {
        if none {
            return Vec::new();
        }
        let legs = 1 + u32::try_from(self.dice.below(allowance.attempts as usize)).unwrap();
        let input = self.dice.share(allowance.tokens);
        let output = self.dice.share(allowance.tokens - input);
        let factor = if lies { 3 } else { 1 };
        let mut attempts = attempts(legs, input * factor, output * factor, Price::default());
        if let Some(last) = attempts.last_mut() {
            last.cost = Money(self.dice.share(allowance.cost.0) * factor);
        }
        attempts
    }

    fn tool_answer(&mut self, step: Step, write: bool, sent: bool) -> Event {
        let code = if write && !sent {
            self.dice.pick(&[ToolCode::NotAttempted, ToolCode::Saturated, ToolCode::AuditUnavailable])
        } else {
            self.dice.pick(&[
                ToolCode::Ok,
                ToolCode::Ok,
                ToolCode::Ok,
                ToolCode::ToolError,
                ToolCode::Saturated,
                ToolCode::UpstreamUnavailable,
                if write { ToolCode::OutcomeUnknown } else { ToolCode::UpstreamTimeout },
            ])
        };
        let most = self.lent[&step].attempts as usize;
        let legs = if is_local(code) { 0 } else { 1 + u32::try_from(self.dice.below(most)).unwrap() };
        let size = self.dice.pick(&[50, 2_000, 20_000]);
        let result = ToolResult { code, body: Some(body(self.dice.pick(&[10, 11, 12]), size)), truncated: false };
        Event::ToolFinished { step, attempts: attempts(legs, 0, 0, Price::default()), result }
    }

    fn tighter(&mut self) -> Limits {
        let mut limits = *self.driver.machine.limits();
        match self.dice.below(8) {
            0 => limits.model_calls = self.dice.pick(&[0, 1, 2]),
            1 => limits.tool_calls = self.dice.pick(&[0, 1, 2]),
            2 => limits.model_attempts = self.dice.pick(&[0, 1, 2]),
            3 => limits.tool_attempts = self.dice.pick(&[0, 1, 2]),
            4 => limits.total_tokens = self.dice.pick(&[0, 400, 3_000]),
            5 => limits.deadline_ms = self.dice.pick(&[0, 10_000, 30_000]),
            6 => limits.parallel_tools = self.dice.pick(&[0, 1]),
            _ => limits = Limits { model_calls: u32::MAX, deadline_ms: u64::MAX, ..limits },
        }
        limits
    }

    /// An event that no honest driver would tell now: about a step that is not open, or of another kind than was asked.
    fn garbage(&mut self) -> Event {
        let known = self.lent.keys().next_back().map_or(0, |step| step.0) + 2;
        let step = Step(self.dice.pick(&[u32::try_from(self.dice.0.len()).unwrap() % known, 0, known, u32::MAX]));
        let open = |asked: fn(Asked) -> bool| self.driver.open.iter().any(|open| open.step == step && asked(open.asked));
        let attempts = attempts(9, u64::MAX / 2, u64::MAX / 2, Price::default());
        let result = ToolResult { code: ToolCode::Ok, body: Some(body(u32::MAX, u32::MAX)), truncated: true };
        let reply =
            Reply { text: Some(body(9, u32::MAX)), calls: Vec::new(), carry: None, finish: FinishReason::Stop, tokens_per_kchar: Some(0) };
        match self.dice.below(8) {
            0 if !open(|asked| asked == Asked::Retrieval) => Event::Retrieved { step, passages: Some(body(9, 9)), tainting: true },
            1 if !open(|asked| asked == Asked::Model) => Event::ModelReplied { step, attempts, reply },
            2 if !open(|asked| asked == Asked::Model) => {
                Event::ModelFailed { step, attempts, fault: ModelFault::Internal, partial: Some(body(9, 9)) }
            }
            3 if !open(|asked| matches!(asked, Asked::Tool { .. })) => Event::ToolFinished { step, attempts, result },
            4 if !open(|asked| asked == Asked::Approval) => Event::ApprovalDecided { step, decision: Decision::Approve },
            5 if !open(|asked| asked == Asked::Reconciliation) => Event::Reconciled { step, finding: Finding::Absent },
            6 if !open(|asked| asked == Asked::Compensation) => Event::Compensated { step, undone: true },
            _ if !open(|asked| matches!(asked, Asked::Tool { write: true, .. })) => Event::Dispatched { step },
            _ => Event::Woke,
        }
    }

    fn tell(&mut self, event: Event, dishonest: bool) {
        let settling = self.driver.machine.verdict().is_some();
        let limits = *self.driver.machine.limits();
        let open = self.driver.open.len();
        let (heard, commands) = self.driver.tell(event.clone());
        if settling && event == Event::Woke && heard == Heard::Applied {
            // The settlement's patience was over: what was open then is nobody's any more.
            self.driver.open.iter_mut().take(open).for_each(|open| open.dropped = true);
        }
        self.remember(&commands);
        self.say(&format!("{} -> {heard:?}", short(&event)));
        commands.iter().for_each(|command| self.say(&format!("    {command}")));
        let seen =
            Seen { at: self.driver.at, event: &event, heard, commands: &commands, driver: &self.driver, settling, limits, dishonest };
        self.reference.see(&seen);
    }

    fn remember(&mut self, commands: &[Command]) {
        for command in commands {
            if let Some((step, allowance)) = allowance(command) {
                self.lent.insert(step, allowance);
            }
            if let Command::CallModel { max_output, last, .. } = command {
                (self.max_output, self.last) = (*max_output, last.is_some());
            }
        }
    }

    fn fresh(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh
    }

    fn say(&self, line: &str) {
        if self.trace == Trace::On {
            eprintln!("{:>6} {line}", self.driver.at);
        }
    }
}

/// An event without what does not matter to a reader.
pub(super) fn short(event: &Event) -> String {
    match event {
        Event::ModelReplied { step, attempts, reply } => {
            let calls: Vec<String> =
                reply.calls.iter().map(|call| format!("{}={}{}", call.tool, call.arguments.digest.0[3], gate(call.gate))).collect();
            format!(
                "ModelReplied {step} legs={} text={} calls=[{}] {:?}",
                attempts.len(),
                reply.text.is_some(),
                calls.join(" "),
                reply.finish
            )
        }
        Event::ToolFinished { step, attempts, result } => format!("ToolFinished {step} legs={} {}", attempts.len(), result.code.as_str()),
        event => format!("{event:?}").chars().take(160).collect(),
    }
}

pub(super) const fn gate(gate: Gate) -> &'static str {
    match gate {
        Gate::Go => "",
        Gate::Ask => "?",
        Gate::Refuse(_) => "!",
    }
}

pub(super) fn allowance(command: &Command) -> Option<(Step, Allowance)> {
    match command {
        Command::Retrieve { step, allowance }
        | Command::CallModel { step, allowance, .. }
        | Command::CallTool { step, allowance, .. }
        | Command::Reconcile { step, allowance, .. }
        | Command::Compensate { step, allowance, .. } => Some((*step, *allowance)),
        Command::AskApproval { .. } | Command::Abandon { .. } | Command::Finish(_) => None,
    }
}

/// Whether a case is told step by step while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trace {
    On,
    Off,
}

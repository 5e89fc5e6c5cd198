//! The kit: makes sessions and events from words, plays the driver, and prints what the machine decides.
//!
//! A script is one line. It opens with settings (`model_calls=3`, `stop`, `retrieval`, `saga=failed`) and goes on with
//! what happens:
//!
//! | word | what happens |
//! | --- | --- |
//! | `passages` `passages:tainting` `nothing` | the retrieval answers |
//! | `answer` `empty` `cut` `filtered` `declined` | the model answers without calls, for that reason |
//! | `model:3` `model:r,w1?,i` | the model asks for three reads, or for the calls named (see [`call`]); `cut:..`, `filtered:..` and `declined:..` likewise |
//! | `fail:KIND` `fail:KIND+partial` | the model call fails, after some text |
//! | `sent` `tool` `tool:CODE` `tool:=7` `tools` | a write leaves; a call ends well, badly, with result 7; all end well |
//! | `yes` `no` `expired` | a person decides |
//! | `found` `absent` `unknown` `undone` `stuck` | the downstream answers the settlement |
//! | `wait:11` `late:11` | 11 s pass, with or without the wake-ups the machine asked for; `wake` wakes it now |
//! | `crash` `cancel:WHO` `tighten:model_calls=2` | from outside |
//! | `usage:IN,OUT,LEGS` `size:N` `ratio:N` | how the model and the tools answer from here on |
//!
//! `@2` picks the second of several open calls. A word is expected to be *applied*; `~` in front expects *late* (and picks
//! calls that were dropped), `!` expects *invalid*.

use std::sync::Arc;

use ambit_core::limit::{Limits, REPEATS_DEFAULT};
use ambit_core::money::Price;
use ambit_core::session::{
    CallCeiling, CallClass, Canceller, Command, Decision, Event, Finding, FinishReason, Heard, InputItem, Machine, ModelFault, OfferedTool,
    OnLimit, PreparedCall, Principal, Reply, Saga, Speaker, Started, TaintRule,
};
use ambit_core::{AttemptKind, AttemptRecord, Body, Cause, Digest, Effect, Gate, Money, SessionId, Status, Step, ToolCode, ToolResult};

/// Most wake-ups that one `wait` may bring: more would be a machine that never sleeps.
const WAKES_IN_ONE_WAIT: usize = 8;

/// A text that nobody needs to see: number `n`, so many characters of one byte.
pub(crate) fn body(n: u32, chars: u32) -> Body {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&n.to_be_bytes());
    Body { digest: Digest(digest), bytes: chars, chars }
}

/// A session with default limits, one tool on offer, and nothing to pay.
pub(crate) fn started() -> Started {
    Started {
        machine: ambit_core::session::MACHINE_VERSION,
        session: "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse::<SessionId>().unwrap(),
        agent: "ops".into(),
        agent_version: Digest([1; 32]),
        principal: Principal { id: "ada".into(), tenant: "acme".into(), roles: vec!["user".into()] },
        limits: Limits::DEFAULT,
        on_limit: OnLimit::Answer,
        taint: TaintRule::Refuse,
        tainted: false,
        saga: None,
        retrieval: false,
        instructions: body(0, 300),
        input: vec![InputItem { speaker: Speaker::User, body: body(1, 300) }],
        continues: None,
        targets: Vec::new(),
        tools: vec![OfferedTool { name: "r".into(), schema: Digest([2; 32]), effect: Effect::Read }],
        ceiling: CallCeiling { attempts: 2, context_window: None, price: Price::default(), tools_chars: 100 },
        wall_ms: 1_767_225_600_000,
        config_revision: "rev-1".into(),
        trace: None,
    }
}

/// What the registry says about a tool, from the first letter of its name: `r` read, `u` untrusted read, `g` egress read,
/// `p` poller, `w` write, `k` keyed, `i` irreversible, `q` reconcilable, `c` compensable (keyed), `d` compensable but not keyed,
/// `b` compensable from its arguments alone, `m` keyed, reconcilable and compensable.
pub(crate) fn class(tool: &str) -> CallClass {
    let kind = tool.chars().next().unwrap();
    let effect = match kind {
        'r' | 'u' | 'g' | 'p' => Effect::Read,
        'i' => Effect::Irreversible,
        _ => Effect::Write,
    };
    CallClass {
        effect,
        keyed: matches!(kind, 'k' | 'm'),
        compensable: matches!(kind, 'c' | 'd' | 'b' | 'm'),
        compensable_blind: kind == 'b',
        compensation_keyed: matches!(kind, 'c' | 'm'),
        reconcilable: matches!(kind, 'q' | 'm'),
        trusted: kind != 'u',
        egress: kind == 'g',
        repeats: if kind == 'p' { 0 } else { REPEATS_DEFAULT },
        attempts: if effect == Effect::Read { 2 } else { 1 },
    }
}

/// A call from its word: the tool, `=7` for arguments number 7, `?` if a person must be asked, `!` if it was refused.
fn call(word: &str, fresh: u32) -> PreparedCall {
    let (word, gate) = match word.strip_suffix(['?', '!']) {
        Some(rest) if word.ends_with('?') => (rest, Gate::Ask),
        Some(rest) => (rest, Gate::Refuse(ToolCode::InvalidArguments)),
        None => (word, Gate::Go),
    };
    let (tool, arguments) = word.split_once('=').map_or((word, fresh), |(tool, n)| (tool, n.parse().unwrap()));
    prepared(tool, arguments, gate, fresh)
}

pub(crate) fn prepared(tool: &str, arguments: u32, gate: Gate, id: u32) -> PreparedCall {
    let arguments = body(arguments, 20);
    PreparedCall {
        id: format!("call_{id}").into(),
        tool: tool.into(),
        arguments,
        canonical: arguments.digest,
        gate,
        refusal: None,
        class: class(tool),
    }
}

/// `legs` requests on the wire that together used so much.
pub(crate) fn attempts(legs: u32, input: u64, output: u64, price: Price) -> Vec<AttemptRecord> {
    (0..legs)
        .map(|leg| {
            let last = leg + 1 == legs;
            let (input_tokens, output_tokens) = if last { (input, output) } else { (0, 0) };
            AttemptRecord {
                kind: if leg == 0 { AttemptKind::First } else { AttemptKind::Retry },
                target: "primary".into(),
                code: if last { "ok".into() } else { "http_503".into() },
                input_tokens,
                output_tokens,
                cost: price.of(input_tokens, 0, output_tokens),
                at_least: false,
                ms: 5,
            }
        })
        .collect()
}

/// What a driver has been asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Retrieval,
    Model,
    Tool { write: bool, sent: bool },
    Approval,
    Reconciliation,
    Compensation,
}

/// One command that the driver has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) step: Step,
    pub(crate) asked: Asked,
    /// True once the machine does not wait for it any more.
    pub(crate) dropped: bool,
}

/// One journalled event and what it caused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) event: Event,
    pub(crate) commands: Vec<Command>,
}

/// A driver that keeps the books a driver keeps: what is open, and the journal.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    pub(crate) at: u64,
    pub(crate) first: Vec<Command>,
    pub(crate) journal: Vec<Entry>,
    pub(crate) open: Vec<Open>,
    /// Tool and effect of each step that ran a call.
    tools: Vec<(Step, Arc<str>)>,
}

impl Driver {
    pub(crate) fn start(started: Started) -> Self {
        let (machine, first) = Machine::start(Arc::new(started), 0);
        let mut driver = Self { machine, at: 0, first: first.clone(), journal: Vec::new(), open: Vec::new(), tools: Vec::new() };
        driver.take(&first);
        driver
    }

    /// Tells the machine and journals what it applied.
    pub(crate) fn tell(&mut self, event: Event) -> (Heard, Vec<Command>) {
        let (heard, commands) = self.machine.handle(event.clone(), self.at);
        if heard == Heard::Applied {
            match &event {
                // Whatever ran in the process that is gone will answer nobody.
                Event::Resumed => self.open.clear(),
                Event::Dispatched { step } => {
                    for open in &mut self.open {
                        if let Open { step: own, asked: Asked::Tool { sent, .. }, .. } = open
                            && own == step
                        {
                            *sent = true;
                        }
                    }
                }
                _ => {}
            }
            self.journal.push(Entry { at: self.at, event, commands: commands.clone() });
        }
        self.take(&commands);
        (heard, commands)
    }

    fn take(&mut self, commands: &[Command]) {
        let mut add = |step, asked| self.open.push(Open { step, asked, dropped: false });
        for command in commands {
            match command {
                Command::Retrieve { step, .. } => add(*step, Asked::Retrieval),
                Command::CallModel { step, .. } => add(*step, Asked::Model),
                Command::CallTool { step, tool, again, .. } => {
                    add(*step, Asked::Tool { write: class(tool).effect.is_write(), sent: *again });
                    self.tools.push((*step, tool.clone()));
                }
                Command::AskApproval { step, .. } => add(*step, Asked::Approval),
                Command::Reconcile { step, .. } => add(*step, Asked::Reconciliation),
                Command::Compensate { step, .. } => add(*step, Asked::Compensation),
                Command::Abandon { .. } | Command::Finish(_) => {}
            }
        }
        for command in commands {
            if let Command::Abandon { step } = command {
                self.open.iter_mut().filter(|open| open.step == *step).for_each(|open| open.dropped = true);
            }
        }
        // Writes that had not left are told not to go when they ask, not before; a driver that looks knows already.
        if self.machine.verdict().is_some() || commands.iter().any(|command| matches!(command, Command::CallModel { .. })) {
            for open in &mut self.open {
                open.dropped |= matches!(open.asked, Asked::Tool { write: true, sent: false } | Asked::Approval);
            }
        }
    }

    pub(crate) fn tool_of(&self, step: Step) -> &str {
        self.tools.iter().find(|(own, _)| *own == step).map_or("?", |(_, tool)| tool)
    }

    /// One command as a script expects it.
    pub(crate) fn print(&self, command: &Command) -> String {
        match command {
            Command::CallModel { last, nudge, .. } => {
                let last = last.map(|reason| format!("last {reason}"));
                let words: Vec<String> = last.into_iter().chain(nudge.then(|| "nudge".to_owned())).collect();
                if words.is_empty() { "CallModel".to_owned() } else { format!("CallModel({})", words.join(", ")) }
            }
            Command::CallTool { tool, again, .. } => match (class(tool).effect, again) {
                (Effect::Read, _) => "CallTool".to_owned(),
                (_, false) => format!("CallTool({tool})"),
                (_, true) => format!("CallTool({tool}, again)"),
            },
            Command::AskApproval { tool, .. } => format!("AskApproval({tool})"),
            Command::Reconcile { of, .. } => format!("Reconcile({})", self.tool_of(*of)),
            Command::Compensate { of, .. } => format!("Compensate({})", self.tool_of(*of)),
            Command::Finish(verdict) => match verdict.cause {
                Some(cause) => format!("Finish({}, {}, {})", verdict.status, verdict.reason, cause.as_str()),
                None => format!("Finish({}, {})", verdict.status, verdict.reason),
            },
            Command::Retrieve { .. } | Command::Abandon { .. } => command.name().to_owned(),
        }
    }

    /// The results in the transcript, in the order in which their calls were asked.
    pub(crate) fn results(&self) -> String {
        let turns = self.machine.transcript().turns();
        let code = |result: Option<ToolResult>| result.map_or("-", |result| result.code.as_str());
        turns.iter().flat_map(|turn| &turn.calls).map(|call| code(call.result)).collect::<Vec<_>>().join(" ")
    }
}

/// A script on its way.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) driver: Driver,
    pub(crate) printed: Vec<String>,
    fresh: u32,
    usage: (u64, u64, u32),
    size: u32,
    ratio: Option<u32>,
}

/// Plays a script to its end.
pub(crate) fn play(script: &str) -> Play {
    let mut words = script.split_whitespace().peekable();
    let mut session = started();
    while words.next_if(|word| set(&mut session, word)).is_some() {}
    let driver = Driver::start(session);
    let mut play = Play { printed: Vec::new(), driver, fresh: 100, usage: (30, 10, 1), size: 50, ratio: None };
    play.note(&play.driver.first.clone());
    for word in words {
        play.word(word);
    }
    play
}

impl Play {
    fn note(&mut self, commands: &[Command]) {
        let printed = commands.iter().map(|command| self.driver.print(command));
        self.printed.extend(printed.collect::<Vec<_>>());
    }

    fn word(&mut self, word: &str) {
        let (expected, rest) = match word.as_bytes()[0] {
            b'~' => (Heard::Late, &word[1..]),
            b'!' => (Heard::Invalid, &word[1..]),
            _ => (Heard::Applied, word),
        };
        let (rest, place) = rest.split_once('@').map_or((rest, 1), |(rest, place)| (rest, place.parse().unwrap()));
        let (name, argument) = rest.split_once(':').unwrap_or((rest, ""));
        let numbers = || argument.split(',').map(|n| n.parse::<u32>().unwrap());
        match name {
            "usage" => {
                let [input, output, legs] = numbers().collect::<Vec<_>>()[..] else { panic!("{word}") };
                self.usage = (input.into(), output.into(), legs);
            }
            "size" => self.size = numbers().next().unwrap(),
            "ratio" => self.ratio = numbers().next(),
            "late" => self.driver.at += u64::from(numbers().next().unwrap()) * 1_000,
            "wait" => self.wait(u64::from(numbers().next().unwrap()) * 1_000),
            "tools" => {
                while let Some(open) = self.driver.open.iter().find(|open| matches!(open.asked, Asked::Tool { .. }) && !open.dropped) {
                    let Asked::Tool { write, sent } = open.asked else { break };
                    self.word(if write && !sent { "sent" } else { "tool" });
                }
            }
            _ => {
                let event = self.event(name, argument, place, expected);
                let (heard, commands) = self.driver.tell(event);
                assert_eq!(heard, expected, "`{word}` after {}", self.printed.join(" "));
                self.note(&commands);
            }
        }
    }

    fn wait(&mut self, ms: u64) {
        let until = self.driver.at + ms;
        for _ in 0..WAKES_IN_ONE_WAIT {
            let Some((wake, _)) = self.driver.machine.wake_at().filter(|(wake, _)| *wake <= until) else { break };
            self.driver.at = self.driver.at.max(wake);
            let (heard, commands) = self.driver.tell(Event::Woke);
            assert_eq!(heard, Heard::Applied, "a wake-up that the machine asked for");
            self.note(&commands);
        }
        self.driver.at = until;
    }

    fn event(&mut self, name: &str, argument: &str, place: usize, expected: Heard) -> Event {
        let pick = |open: &mut Vec<Open>, wanted: &dyn Fn(Asked) -> bool, take: bool| {
            let fits = |one: &Open| wanted(one.asked) && (expected != Heard::Applied || !one.dropped);
            // What is expected late goes to a dropped one first.
            let dropped_first = open.iter().position(|one| fits(one) && one.dropped && expected == Heard::Late);
            let index =
                dropped_first.or_else(|| open.iter().enumerate().filter(|(_, one)| fits(one)).nth(place - 1).map(|(index, _)| index));
            let index = index.unwrap_or_else(|| panic!("nothing open for `{name}`: {open:?}"));
            if take { open.remove(index).step } else { open[index].step }
        };
        let open = &mut self.driver.open;
        match name {
            "passages" => {
                let step = pick(open, &|asked| asked == Asked::Retrieval, true);
                Event::Retrieved { step, passages: Some(body(2, 500)), tainting: argument == "tainting" }
            }
            "nothing" => Event::Retrieved { step: pick(open, &|asked| asked == Asked::Retrieval, true), passages: None, tainting: false },
            "model" | "answer" | "empty" | "cut" | "filtered" | "declined" => {
                let step = pick(open, &|asked| asked == Asked::Model, true);
                let reply = self.reply(name, argument);
                let (input, output, legs) = self.usage;
                Event::ModelReplied { step, attempts: attempts(legs, input, output, self.driver.machine.started().ceiling.price), reply }
            }
            "fail" => {
                let step = pick(open, &|asked| asked == Asked::Model, true);
                let (kind, partial) = argument.strip_suffix("+partial").map_or((argument, None), |kind| (kind, Some(body(3, 40))));
                let sent = u32::from(!matches!(kind, "saturated" | "context_local"));
                let attempts = attempts(sent, 0, 0, Price::default());
                Event::ModelFailed { step, attempts, fault: fault(kind), partial }
            }
            "sent" => Event::Dispatched { step: pick(open, &|asked| matches!(asked, Asked::Tool { write: true, sent: false }), false) },
            "tool" => {
                let step = pick(open, &|asked| matches!(asked, Asked::Tool { .. }), true);
                let (code, result) = match argument.strip_prefix('=') {
                    Some(n) => (ToolCode::Ok, n.parse().unwrap()),
                    None => (code(argument), self.fresh()),
                };
                let legs = u32::from(!is_local(code));
                let result = ToolResult { code, body: Some(body(result, self.size)), truncated: false };
                Event::ToolFinished { step, attempts: attempts(legs, 0, 0, Price::default()), result }
            }
            "yes" | "no" | "expired" => {
                let step = pick(open, &|asked| asked == Asked::Approval, true);
                let decision = match name {
                    "yes" => Decision::Approve,
                    "no" => Decision::Deny,
                    _ => Decision::Expired,
                };
                Event::ApprovalDecided { step, decision }
            }
            "found" | "absent" | "unknown" => {
                let step = pick(open, &|asked| asked == Asked::Reconciliation, true);
                let finding = match name {
                    "found" => Finding::Found,
                    "absent" => Finding::Absent,
                    _ => Finding::Unknown,
                };
                Event::Reconciled { step, finding }
            }
            "undone" | "stuck" => {
                Event::Compensated { step: pick(open, &|asked| asked == Asked::Compensation, true), undone: name == "undone" }
            }
            "crash" => Event::Resumed,
            "wake" => Event::Woke,
            "cancel" => Event::Cancelled { by: canceller(argument) },
            "tighten" => {
                let mut limits = *self.driver.machine.limits();
                argument.split(',').for_each(|word| assert!(set_limit(&mut limits, word), "{word}"));
                Event::LimitsTightened { limits }
            }
            _ => panic!("no such word: `{name}`"),
        }
    }

    fn reply(&mut self, name: &str, argument: &str) -> Reply {
        let finish = match name {
            "cut" => FinishReason::Length,
            "filtered" => FinishReason::ContentFilter,
            "declined" => FinishReason::Refusal,
            _ => FinishReason::Stop,
        };
        let calls = match argument.parse::<usize>() {
            Ok(count) => (0..count).map(|_| call("r", self.fresh())).collect(),
            Err(_) => argument.split(',').filter(|word| !word.is_empty()).map(|word| call(word, self.fresh())).collect::<Vec<_>>(),
        };
        let silent = name == "empty" || !calls.is_empty();
        let text = (!silent).then(|| body(self.fresh(), 30));
        Reply { text, calls, carry: None, finish, tokens_per_kchar: self.ratio }
    }

    fn fresh(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh
    }
}

/// True if nothing was sent where a call ends like this.
pub(crate) fn is_local(code: ToolCode) -> bool {
    let sent = [ToolCode::Ok, ToolCode::ToolError, ToolCode::UpstreamUnavailable, ToolCode::UpstreamTimeout, ToolCode::UpstreamRejected];
    !sent.contains(&code) && code != ToolCode::OutcomeUnknown && code != ToolCode::OutputInvalid
}

fn code(word: &str) -> ToolCode {
    if word.is_empty() { ToolCode::Ok } else { from_name(&word.to_uppercase()) }
}

fn from_name<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).unwrap_or_else(|_| panic!("no such name: `{name}`"))
}

fn canceller(word: &str) -> Canceller {
    from_name(word)
}

fn fault(word: &str) -> ModelFault {
    match word {
        "rejected" => ModelFault::Rejected,
        "context" => ModelFault::Context,
        "filtered" => ModelFault::ContentFiltered,
        "mistake" => ModelFault::Mistake,
        "saturated" => ModelFault::Saturated,
        "deadline" => ModelFault::Deadline,
        "allowance" => ModelFault::Allowance,
        "abandoned" => ModelFault::Abandoned,
        "internal" => ModelFault::Internal,
        cause => ModelFault::Unavailable(from_name::<Cause>(cause)),
    }
}

/// Applies a setting; false if the word is none.
fn set(session: &mut Started, word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let number = || value.parse::<u64>().unwrap();
    match name {
        "stop" => session.on_limit = OnLimit::Stop,
        "retrieval" => session.retrieval = true,
        "no_tools" => session.tools.clear(),
        "tainted" => session.tainted = true,
        "taint" => session.taint = from_name(value),
        "saga" => session.saga = Some(Saga { on: value.split(',').map(from_name::<Status>).collect(), groups: Vec::new() }),
        "group" => session.saga.as_mut().unwrap().groups.push(value.split(',').map(Into::into).collect()),
        "window" => session.ceiling.context_window = Some(number()),
        "attempts" => session.ceiling.attempts = number().try_into().unwrap(),
        "price" => {
            let (input, output) = value.split_once(',').unwrap();
            session.ceiling.price =
                Price { input: Money(input.parse().unwrap()), output: Money(output.parse().unwrap()), cached: Money::ZERO };
        }
        "input" => session.input[0].body = body(1, number().try_into().unwrap()),
        _ => return set_limit(&mut session.limits, word),
    }
    true
}

fn set_limit(limits: &mut Limits, word: &str) -> bool {
    let Some((name, Ok(value))) = word.split_once('=').map(|(name, value)| (name, value.parse::<u64>())) else { return false };
    let small = || u32::try_from(value).unwrap();
    match name {
        "deadline_ms" => limits.deadline_ms = value,
        "answer_reserve_ms" => limits.answer_reserve_ms = value,
        "model_calls" => limits.model_calls = small(),
        "tool_calls" => limits.tool_calls = small(),
        "parallel_tools" => limits.parallel_tools = small(),
        "model_attempts" => limits.model_attempts = small(),
        "tool_attempts" => limits.tool_attempts = small(),
        "output_tokens_per_call" => limits.output_tokens_per_call = small(),
        "total_tokens" => limits.total_tokens = value,
        "cost_usd" => limits.cost_usd = Money(value),
        "transcript" => limits.transcript = value,
        "events" => limits.events = small(),
        _ => return false,
    }
    true
}

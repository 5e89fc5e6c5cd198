//! What one decision of the session machine costs. Goal: under a microsecond a step.
//!
//! `cargo bench -p ambit-core`. In the gate each function runs once, so that none can rot.

use std::hint::black_box;
use std::sync::Arc;

use ambit_core::limit::{Limits, REPEATS_DEFAULT};
use ambit_core::money::Price;
use ambit_core::session::{
    CallCeiling, CallClass, Event, FinishReason, Heard, InputItem, Machine, OfferedTool, OnLimit, PreparedCall, Principal, Reply, Speaker,
    Started, TaintRule,
};
use ambit_core::{AttemptKind, AttemptRecord, Body, Digest, Effect, Gate, Money, SessionId, Step, ToolCode, ToolResult};
use criterion::{BatchSize, Criterion, Throughput};

/// Sizes of the sessions that are measured: model calls, tool calls in each turn but the last.
const SHAPES: [(u32, u32); 3] = [(1, 0), (3, 1), (8, 4)];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (turns, calls) in SHAPES {
        whole_session(&mut criterion, turns, calls);
    }
    one_step(&mut criterion);
    criterion.final_summary();
}

/// A session from its start to its verdict; the time an element is the time of one event with its commands.
fn whole_session(criterion: &mut Criterion, turns: u32, calls: u32) {
    let started = started(turns, calls);
    let journal = journal(turns, calls);
    let mut group = criterion.benchmark_group("session");
    group.throughput(Throughput::Elements(journal.len() as u64));
    group.bench_function(format!("model_calls={turns} tool_calls_each={calls} events={}", journal.len()), |bencher| {
        bencher.iter_batched(
            || journal.clone(),
            |journal| {
                let (mut machine, commands) = Machine::start(started.clone(), 0);
                black_box(commands);
                for event in journal {
                    black_box(machine.handle(event, 1));
                }
                machine
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// Single steps in the middle of the largest session: an answer of a tool, a turn with four calls, an event that is late.
fn one_step(criterion: &mut Criterion) {
    let (turns, calls) = SHAPES[2];
    let (machine, _) = Machine::start(started(turns, calls), 0);
    let mut machine = machine;
    let journal = journal(turns, calls);
    let middle = journal.len() / 2;
    let mut group = criterion.benchmark_group("step");
    for (at, event) in journal.into_iter().enumerate() {
        if at >= middle && at < middle + 6 {
            let name = format!("event={at} {} after={} events", event.name(), machine.events());
            let before = machine.clone();
            group.bench_function(name, |bencher| {
                // The machine that was stepped is handed back, so that dropping it is not measured.
                bencher.iter_batched(
                    || (before.clone(), event.clone()),
                    |(mut machine, event)| (machine.handle(event, 1), machine),
                    BatchSize::SmallInput,
                );
            });
        }
        let (heard, commands) = machine.handle(event, 1);
        assert!(heard == Heard::Applied && !commands.is_empty() || machine.verdict().is_none(), "the journal fits the machine");
    }
    assert!(machine.is_closed(), "the session came to its end");
    let late = Event::Dispatched { step: Step(1) };
    group.bench_function("late", |bencher| bencher.iter(|| black_box(machine.handle(late.clone(), 1))));
    group.finish();
}

fn body(n: u32, chars: u32) -> Body {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&n.to_be_bytes());
    Body { digest: Digest(digest), bytes: chars, chars }
}

fn started(turns: u32, calls: u32) -> Arc<Started> {
    let limits =
        Limits { model_calls: turns + 1, tool_calls: turns * calls + 1, model_attempts: 64, tool_attempts: 128, ..Limits::DEFAULT };
    #[expect(clippy::expect_used, reason = "a literal that is an id")]
    let session = "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse::<SessionId>().expect("an id");
    Arc::new(Started {
        machine: ambit_core::session::MACHINE_VERSION,
        session,
        agent: "bench".into(),
        agent_version: Digest([1; 32]),
        principal: Principal { id: "ada".into(), tenant: "acme".into(), roles: Vec::new() },
        limits,
        on_limit: OnLimit::Answer,
        taint: TaintRule::Refuse,
        tainted: false,
        saga: None,
        retrieval: false,
        instructions: body(0, 800),
        input: vec![InputItem { speaker: Speaker::User, body: body(1, 400) }],
        continues: None,
        targets: Vec::new(),
        tools: vec![OfferedTool { name: "read".into(), schema: Digest([2; 32]), effect: Effect::Read }],
        ceiling: CallCeiling {
            attempts: 2,
            context_window: Some(128_000),
            price: Price { input: Money(150), output: Money(600), cached: Money(75) },
            tools_chars: 600,
        },
        wall_ms: 0,
        config_revision: "bench".into(),
        trace: None,
    })
}

/// The answers that a driver brings to such a session, in the order in which the machine numbers its steps.
fn journal(turns: u32, calls: u32) -> Vec<Event> {
    let mut events = Vec::new();
    let mut step = 0;
    let mut next = || {
        step += 1;
        Step(step)
    };
    for turn in 1..=turns {
        let calls = if turn == turns { 0 } else { calls };
        let text = (calls == 0).then(|| body(turn, 300));
        let prepared = (0..calls).map(|call| prepared(turn * 100 + call)).collect();
        let reply = Reply { text, calls: prepared, carry: None, finish: FinishReason::Stop, tokens_per_kchar: Some(250) };
        events.push(Event::ModelReplied { step: next(), attempts: vec![attempt(500, 100)], reply });
        events.extend((0..calls).map(|call| {
            let result = ToolResult { code: ToolCode::Ok, body: Some(body(turn * 1_000 + call, 700)), truncated: false };
            Event::ToolFinished { step: next(), attempts: vec![attempt(0, 0)], result }
        }));
    }
    events
}

fn prepared(n: u32) -> PreparedCall {
    let arguments = body(n, 60);
    let class = CallClass {
        effect: Effect::Read,
        keyed: false,
        compensable: false,
        compensable_blind: false,
        compensation_keyed: false,
        reconcilable: false,
        trusted: true,
        egress: false,
        repeats: REPEATS_DEFAULT,
        attempts: 2,
    };
    PreparedCall {
        id: format!("call_{n}").into(),
        tool: "read".into(),
        arguments,
        canonical: arguments.digest,
        gate: Gate::Go,
        refusal: None,
        class,
    }
}

fn attempt(input_tokens: u64, output_tokens: u64) -> AttemptRecord {
    AttemptRecord {
        kind: AttemptKind::First,
        target: "primary".into(),
        code: "ok".into(),
        input_tokens,
        output_tokens,
        cost: Money(input_tokens * 150 + output_tokens * 600),
        at_least: false,
        ms: 1,
    }
}

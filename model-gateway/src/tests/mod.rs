//! The gateway as others use it, over a raw server that plays scripts, and over the scripted dialect on paused time.

mod answers;
mod anthropic;
mod failures;
mod held;
mod permits;
mod responses;
mod upstream;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ambit_core::money::Price;
use ambit_core::port::TextSink;
use ambit_core::signal::{DependencyKind, Signal, SignalSink, Subject};
use ambit_core::{Allowance, Money};
use ambit_resilience::{BulkheadOptions, RetryOptions};
use serde_json::json;
use tokio::time::Instant;

use crate::*;

/// What a token costs here.
const PRICE: Price = Price { input: Money(2), output: Money(10), cached: Money(1) };
/// Seconds since 1970 at which every test begins.
const WALL: u64 = 1_800_000_000;

/// A gateway with one target, and everything that it emitted.
struct Kit {
    gateway: Gateway,
    signals: Arc<Signals>,
    conversation: Conversation,
    tools: Tools,
    heard: Heard,
}

/// Pieces of text in the order in which they were passed on, and when.
#[derive(Default)]
struct Heard(Mutex<Vec<(String, Instant)>>);

#[derive(Default)]
struct Signals(Mutex<Vec<Signal>>);

/// Options of a target, to be changed by a test.
struct Build {
    target: TargetOptions,
    hold: Duration,
}

impl Build {
    fn of(dialect: DialectOptions) -> Self {
        let target = TargetOptions {
            name: "primary".into(),
            dialect,
            model: "m".into(),
            context_window: Some(8_192),
            max_output_tokens: None,
            price: PRICE,
            request: Duration::from_secs(30),
            attempt: Duration::from_secs(20),
            chunk: Duration::from_secs(15),
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            min_useful: Duration::from_millis(100),
            margin: Duration::from_millis(150),
            retry: RetryOptions {
                base: Duration::from_millis(2),
                min_delay: Duration::from_millis(1),
                ..RetryOptions::attempts(NonZeroU32::new(2).unwrap())
            },
            bulkhead: BulkheadOptions {
                pool: "primary".into(),
                kind: DependencyKind::Model,
                permits: NonZeroU32::new(2).unwrap(),
                queue: 2,
                fresh_wait: Duration::ZERO,
                continuing_wait: Duration::from_secs(2),
            },
        };
        Self { target, hold: HOLD_DEFAULT }
    }

    /// A provider of chat completions at these addresses.
    fn chat(base_urls: Vec<String>) -> Self {
        Self::of(DialectOptions::OpenAiChat(provider(base_urls)))
    }

    /// A provider of the Messages API.
    fn anthropic(base_urls: Vec<String>) -> Self {
        Self::of(DialectOptions::Anthropic(provider(base_urls)))
    }

    /// A provider of the Responses API.
    fn responses(base_urls: Vec<String>) -> Self {
        Self::of(DialectOptions::OpenAiResponses(provider(base_urls)))
    }

    fn script(text: &str) -> Self {
        Self::of(DialectOptions::Scripted(ScriptedOptions { source: "script".into(), text: text.into() }))
    }

    fn options(self) -> GatewayOptions {
        GatewayOptions {
            chains: vec![ChainOptions { name: "default".into(), targets: vec![Arc::clone(&self.target.name)] }],
            targets: vec![self.target],
            clock: WallClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(WALL), Instant::now()),
            seed: 1,
            hold: self.hold,
        }
    }

    fn kit(self) -> Kit {
        let signals = Arc::new(Signals::default());
        let gateway = Gateway::new(self.options(), signals.clone()).unwrap();
        let mut conversation = Conversation::new("be brief");
        conversation.push_user("hello");
        Kit { gateway, signals, conversation, tools: Tools::none(), heard: Heard::default() }
    }
}

impl Kit {
    fn with_tools(mut self) -> Self {
        let schema = Arc::new(json!({"type": "object"}));
        self.tools = Tools::new(vec![ToolDeclaration { name: "look".into(), description: "looks".into(), schema }]);
        self
    }

    fn chain(&self) -> &Arc<Chain> {
        self.gateway.chain("default").unwrap()
    }

    /// A call that nobody listens to, with ample means.
    fn call(&self) -> ModelCall<'_> {
        ModelCall {
            conversation: &self.conversation,
            tools: &self.tools,
            tool_choice: ToolChoice::Auto,
            notice: None,
            nudge: false,
            max_output: 100,
            allowance: Allowance { attempts: 4, tokens: 10_000, cost: Money(1_000_000), deadline: 0 },
            deadline: Instant::now() + Duration::from_secs(40),
            subject: Subject::default(),
            trace_state: None,
            admission: None,
            text: None,
        }
    }

    fn heard_call(&self) -> ModelCall<'_> {
        ModelCall { text: Some(&self.heard), ..self.call() }
    }

    /// Makes a call, and checks what has to hold after every one.
    async fn run(&self, call: ModelCall<'_>) -> ModelOutcome {
        let allowance = call.allowance;
        let outcome = self.chain().call(call).await;
        assert!(self.gateway.is_quiescent(), "a permit is still out");
        assert!(outcome.attempts.len() <= allowance.attempts as usize);
        let started = self.signals.count(|signal| matches!(signal, Signal::AttemptStarted { .. }));
        let finished = self.signals.count(|signal| matches!(signal, Signal::AttemptFinished { .. }));
        assert_eq!(started, finished);
        outcome
    }
}

impl Heard {
    fn text(&self) -> String {
        self.0.lock().unwrap().iter().map(|(piece, _)| piece.as_str()).collect()
    }
}

impl TextSink for Heard {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push((piece.to_owned(), Instant::now()));
    }
}

impl Signals {
    fn count(&self, of: impl Fn(&Signal) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|signal| of(signal)).count()
    }
}

impl SignalSink for Signals {
    fn emit(&self, _subject: Subject, signal: &Signal) {
        self.0.lock().unwrap().push(signal.clone());
    }
}

fn provider(base_urls: Vec<String>) -> ProviderOptions {
    ProviderOptions {
        base_urls,
        api_key: Some("sk-test".into()),
        headers: vec![("x-extra".into(), "more".into())],
        streaming: Streaming::WhenHeard,
        sse_line: 4 << 10,
        response: 8 << 10,
    }
}

/// The codes of a call's records, in order.
fn codes(outcome: &ModelOutcome) -> String {
    outcome.attempts.iter().map(|record| &*record.code).collect::<Vec<_>>().join(" ")
}

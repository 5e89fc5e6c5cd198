//! An orchestrator over a real store, with a model that plays a script, and short ways to ask it something.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ambit_core::money::Price;
use ambit_core::session::{OnLimit, Principal, TaintRule};
use ambit_core::signal::{DependencyKind, Silent};
use ambit_core::{Digest, Limits, SessionId};
use ambit_model_gateway::{ChainOptions, DialectOptions, Gateway, GatewayOptions, HOLD_DEFAULT, ScriptedOptions, TargetOptions, WallClock};
use ambit_orchestrator::{Agent, IdempotencyKey, LimitsWish, Orchestrator, OrchestratorOptions, SessionRequest, Setup, Timeline};
use ambit_resilience::{BulkheadOptions, RetryOptions};
use ambit_store::{Clock, Order, Page, Store, StoreOptions, TextFate};
use ambit_tool_executor::{Executor, ExecutorOptions, HttpOptions};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

/// Answers at once.
pub(crate) const QUICK: &str = "[pace]\nfirst = \"0ms\"\npiece = \"0ms\"\n[default]\nreply = \"you said {last}\"\n";
/// Says nothing for as long as a test may take.
pub(crate) const SLOW: &str = "[pace]\nfirst = \"10s\"\n[default]\nreply = \"late\"\n";
/// Longest wait for anything.
pub(crate) const WAIT: Duration = Duration::from_secs(30);

pub(crate) struct Kit {
    pub(crate) folder: TempDir,
    pub(crate) orchestrator: Orchestrator,
}

impl Kit {
    pub(crate) async fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let orchestrator = open(folder.path(), "a", script, false).await;
        Self { folder, orchestrator }
    }

    pub(crate) fn store(&self) -> &Store {
        self.orchestrator.store()
    }

    /// Runs a session to its end.
    pub(crate) async fn run(&self, request: SessionRequest) -> SessionId {
        let mut running = self.orchestrator.start(request).await.unwrap();
        let view = running.verdict(Some(Instant::now() + WAIT)).await.unwrap();
        assert_eq!(view.status, "completed");
        running.id
    }

    pub(crate) async fn listed(&self) -> usize {
        let page = Page { after: None, limit: NonZeroU32::MAX, order: Order::NewestFirst, status: None, agent: None, tenant: None };
        self.orchestrator.list(page).await.unwrap().rows.len()
    }

    pub(crate) async fn text(&self, id: SessionId) -> Option<String> {
        let view = self.orchestrator.view(id, true).await.unwrap();
        assert_eq!(view.transcript.is_empty(), view.output_text.as_deref() == Some(""));
        view.output_text.map(|text| text.to_string()).filter(|text| !text.is_empty())
    }

    pub(crate) async fn close(self) {
        let Self { folder, orchestrator } = self;
        orchestrator.drain(WAIT, &tokio_util::sync::CancellationToken::new()).await;
        let quiet = orchestrator.quiescence();
        assert_eq!((quiet.sessions, quiet.store_queue), (0, 0));
        orchestrator.store().close().await.unwrap();
        drop(folder);
    }
}

pub(crate) async fn open(folder: &Path, node: &str, script: &str, take_over: bool) -> Orchestrator {
    let options = StoreOptions {
        lease: Duration::from_millis(300),
        renew: Duration::from_millis(100),
        ..StoreOptions::new(folder.join("ambit.db"), node, Clock::system())
    };
    let store = Store::open(options).await.unwrap();
    let timeline = Arc::new(Timeline::before(Arc::new(Silent)));
    let executor = ExecutorOptions {
        tools: BTreeMap::new(),
        mcp: BTreeMap::new(),
        http: HttpOptions {
            allow: Vec::new(),
            hosts: BTreeMap::new(),
            tool_body: NonZeroUsize::new(1 << 20).unwrap(),
            margin: Duration::from_millis(150),
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(60),
        },
        seed: 1,
    };
    let agent = Agent {
        name: "clerk".into(),
        description: "".into(),
        instructions: "Answer.".into(),
        chain: "default".into(),
        tools: Vec::new(),
        limits: Limits::DEFAULT,
        taint: TaintRule::Refuse,
    };
    let options = OrchestratorOptions { max_in_flight: 8, seed: rand::random(), take_over };
    let gateway = Gateway::new(gateway(script), timeline.clone()).unwrap();
    let executor = Executor::new(executor, timeline.clone()).unwrap();
    Orchestrator::open(options, Setup::new("rev".into(), vec![agent], gateway, executor), store, timeline)
}

pub(crate) fn gateway(script: &str) -> GatewayOptions {
    let target = TargetOptions {
        name: "primary".into(),
        dialect: DialectOptions::Scripted(ScriptedOptions { source: "script".into(), text: script.into() }),
        model: "m".into(),
        context_window: None,
        max_output_tokens: None,
        price: Price::default(),
        request: Duration::from_secs(30),
        attempt: Duration::from_secs(20),
        chunk: Duration::from_secs(20),
        connect: Duration::from_secs(5),
        idle: Duration::from_secs(60),
        min_useful: Duration::from_secs(3),
        margin: Duration::from_millis(150),
        retry: RetryOptions::attempts(NonZeroU32::MIN),
        bulkhead: BulkheadOptions {
            pool: "primary".into(),
            kind: DependencyKind::Model,
            permits: NonZeroU32::new(8).unwrap(),
            queue: 8,
            fresh_wait: Duration::from_secs(5),
            continuing_wait: Duration::from_secs(2),
        },
    };
    GatewayOptions {
        chains: vec![ChainOptions { name: "default".into(), targets: vec![target.name.clone()] }],
        targets: vec![target],
        clock: WallClock::new(SystemTime::UNIX_EPOCH, Instant::now()),
        seed: 1,
        hold: HOLD_DEFAULT,
    }
}

pub(crate) fn who(id: &str) -> Principal {
    Principal { id: id.into(), tenant: "acme".into(), roles: Vec::new() }
}

pub(crate) fn ask(input: &str) -> SessionRequest {
    SessionRequest {
        agent: "clerk".to_owned(),
        input: vec![input.into()],
        tainted: false,
        previous: None,
        idempotency: None,
        continues: false,
        forget: false,
        trace: None,
        limits: LimitsWish::default(),
        tools_allow: None,
        tools_deny: Vec::new(),
        on_limit: OnLimit::Answer,
        metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        principal: who("ann"),
        arrived: Instant::now(),
        header_deadline_ms: None,
        heard: true,
        durable: false,
    }
}

pub(crate) fn keyed(input: &str) -> SessionRequest {
    SessionRequest { idempotency: Some(IdempotencyKey { key: "k".into(), hash: Digest([7; 32]) }), ..ask(input) }
}

pub(crate) async fn until_gone(store: &Store, id: SessionId) {
    let gone = async {
        loop {
            let row = store.session(id).await.unwrap().unwrap();
            if row.texts == TextFate::Gone {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT, gone).await.expect("the texts stay");
    assert!(store.contents(id).await.unwrap().is_empty());
    assert!(!store.entries(id, 0, 10).await.unwrap().is_empty(), "the journal stays");
}

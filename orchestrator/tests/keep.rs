//! What is kept of a session, and what is forgotten of it: over a real store, with a model that plays a script.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ambit_core::money::Price;
use ambit_core::session::{Canceller, OnLimit, Principal, TaintRule};
use ambit_core::signal::{DependencyKind, Silent};
use ambit_core::{Digest, Limits, SessionId};
use ambit_model_gateway::{ChainOptions, DialectOptions, Gateway, GatewayOptions, HOLD_DEFAULT, ScriptedOptions, TargetOptions, WallClock};
use ambit_orchestrator::{
    Agent, IdempotencyKey, LimitsWish, LookupError, Orchestrator, OrchestratorOptions, Said, SessionRequest, StartError, Timeline,
};
use ambit_resilience::{BulkheadOptions, RetryOptions};
use ambit_store::{Clock, Order, Page, Store, StoreOptions, TextFate};
use ambit_tool_executor::{Executor, ExecutorOptions, HttpOptions};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

/// Answers at once.
const QUICK: &str = "[pace]\nfirst = \"0ms\"\npiece = \"0ms\"\n[default]\nreply = \"you said {last}\"\n";
/// Says nothing for as long as a test may take.
const SLOW: &str = "[pace]\nfirst = \"10s\"\n[default]\nreply = \"late\"\n";
/// Longest wait for anything.
const WAIT: Duration = Duration::from_secs(30);

struct Kit {
    folder: TempDir,
    orchestrator: Orchestrator,
}

impl Kit {
    async fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let orchestrator = open(folder.path(), "a", script, false).await;
        Self { folder, orchestrator }
    }

    fn store(&self) -> &Store {
        self.orchestrator.store()
    }

    /// Runs a session to its end.
    async fn run(&self, request: SessionRequest) -> SessionId {
        let mut running = self.orchestrator.start(request).await.unwrap();
        let view = running.verdict(Some(Instant::now() + WAIT)).await.unwrap();
        assert_eq!(view.status, "completed");
        running.id
    }

    async fn listed(&self) -> usize {
        let page = Page { after: None, limit: NonZeroU32::MAX, order: Order::NewestFirst, status: None, agent: None, tenant: None };
        self.orchestrator.list(page).await.unwrap().rows.len()
    }

    async fn text(&self, id: SessionId) -> Option<String> {
        let view = self.orchestrator.view(id, true).await.unwrap();
        assert_eq!(view.transcript.is_empty(), view.output_text.as_deref() == Some(""));
        view.output_text.map(|text| text.to_string()).filter(|text| !text.is_empty())
    }

    async fn close(self) {
        let Self { folder, orchestrator } = self;
        orchestrator.drain(WAIT, &tokio_util::sync::CancellationToken::new()).await;
        let quiet = orchestrator.quiescence();
        assert_eq!((quiet.sessions, quiet.store_queue), (0, 0));
        orchestrator.store().close().await.unwrap();
        drop(folder);
    }
}

async fn open(folder: &Path, node: &str, script: &str, take_over: bool) -> Orchestrator {
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
    let options =
        OrchestratorOptions { max_in_flight: 8, agents: vec![agent], config_revision: "rev".into(), seed: rand::random(), take_over };
    let gateway = Gateway::new(gateway(script), timeline.clone()).unwrap();
    let executor = Executor::new(executor, timeline.clone()).unwrap();
    Orchestrator::open(options, store, Arc::new(gateway), Arc::new(executor), timeline)
}

fn gateway(script: &str) -> GatewayOptions {
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
            fresh_wait: Duration::ZERO,
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

fn who(id: &str) -> Principal {
    Principal { id: id.into(), tenant: "acme".into(), roles: Vec::new() }
}

fn ask(input: &str) -> SessionRequest {
    SessionRequest {
        agent: "clerk".to_owned(),
        input: vec![input.into()],
        tainted: false,
        previous: None,
        idempotency: None,
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

fn keyed(input: &str) -> SessionRequest {
    SessionRequest { idempotency: Some(IdempotencyKey { key: "k".into(), hash: Digest([7; 32]) }), ..ask(input) }
}

async fn until_gone(store: &Store, id: SessionId) {
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

#[tokio::test]
async fn a_running_session_that_is_deleted_is_cancelled_and_found_no_more() {
    let kit = Kit::new(SLOW).await;
    let running = kit.orchestrator.start(keyed("secret")).await.unwrap();
    let id = running.id;
    kit.orchestrator.delete(id).await.unwrap();
    let not_found = |result: Result<(), LookupError>| assert!(matches!(result, Err(LookupError::NotFound(_))), "{result:?}");
    not_found(kit.orchestrator.view(id, false).await.map(drop));
    not_found(kit.orchestrator.follow(id, false).await.map(drop));
    not_found(kit.orchestrator.cancel(id, Canceller::Caller).await);
    not_found(kit.orchestrator.delete(id).await);
    assert_eq!(kit.listed().await, 0);
    until_gone(kit.store(), id).await;
    let row = kit.store().session(id).await.unwrap().unwrap();
    assert_eq!((row.status.as_str(), row.metadata.as_str()), ("cancelled", "{}"));
    // Its key is free.
    let again = kit.orchestrator.start(keyed("secret")).await.unwrap();
    assert!(!again.replayed && again.id != id);
    kit.orchestrator.delete(again.id).await.unwrap();
    until_gone(kit.store(), again.id).await;
    kit.close().await;
}

#[tokio::test]
async fn what_continued_a_deleted_session_keeps_its_own_copies() {
    let kit = Kit::new(QUICK).await;
    let first = kit.run(keyed("one")).await;
    let second = kit.run(SessionRequest { previous: Some(first), ..ask("two") }).await;
    kit.orchestrator.delete(first).await.unwrap();
    until_gone(kit.store(), first).await;
    let view = kit.orchestrator.view(second, true).await.unwrap();
    assert_eq!((view.previous, view.transcript.len()), (Some(first), 4));
    assert_eq!((&*view.transcript[0].text, &*view.transcript[1].text), ("one", "you said one"));
    let third = kit.run(SessionRequest { previous: Some(second), ..ask("three") }).await;
    assert_eq!(kit.orchestrator.view(third, true).await.unwrap().transcript.len(), 6);
    let refused = kit.orchestrator.start(SessionRequest { previous: Some(first), ..ask("four") }).await;
    assert!(matches!(refused, Err(StartError::PreviousNotFound { id }) if id == first));
    assert!(!kit.orchestrator.start(keyed("one")).await.unwrap().replayed, "its key is free");
    kit.close().await;
}

#[tokio::test]
async fn a_session_of_somebody_else_is_not_there() {
    let kit = Kit::new(QUICK).await;
    let anns = kit.run(ask("one")).await;
    let other_tenant = Principal { tenant: "umbrella".into(), ..who("ann") };
    for principal in [who("bob"), other_tenant] {
        let refused = kit.orchestrator.start(SessionRequest { previous: Some(anns), principal, ..ask("two") }).await;
        assert!(matches!(refused, Err(StartError::PreviousNotFound { .. })));
    }
    // Nor is a key.
    kit.run(keyed("one")).await;
    let bobs = kit.orchestrator.start(SessionRequest { principal: who("bob"), ..keyed("one") }).await.unwrap();
    assert!(!bobs.replayed);
    kit.close().await;
}

#[tokio::test]
async fn a_session_to_be_forgotten_tells_its_answer_once() {
    let kit = Kit::new(QUICK).await;
    let request = || SessionRequest { forget: true, ..keyed("secret") };
    let mut running = kit.orchestrator.start(request()).await.unwrap();
    let mut stream = kit.orchestrator.follow(running.id, false).await.unwrap();
    let view = running.verdict(None).await.unwrap();
    assert_eq!(view.output_text.as_deref(), Some("you said secret"));
    // Who reads its stream reads it to the end.
    let last = loop {
        let event = stream.next().await.unwrap().unwrap();
        if event.terminal {
            break event;
        }
    };
    assert!(matches!(&last.said, Said::Session(view) if view.output_text.as_deref() == Some("you said secret")), "{last:?}");
    // Who comes later is told that it was, and not what was said.
    assert_eq!(kit.text(running.id).await, None);
    let mut again = kit.orchestrator.start(request()).await.unwrap();
    assert!(again.replayed && again.id == running.id);
    let told = again.verdict(None).await.unwrap();
    assert_eq!((told.status, told.output_text.as_deref()), ("completed", Some("")));
    let refused = kit.orchestrator.start(SessionRequest { previous: Some(running.id), ..ask("go on") }).await;
    assert!(matches!(refused, Err(StartError::PreviousUnusable { .. })));
    let kept = kit.run(ask("not secret")).await;
    assert_eq!(kit.text(kept).await.as_deref(), Some("you said not secret"));
    kit.close().await;
}

#[tokio::test]
async fn what_others_said_taints_from_the_first_record_on() {
    let kit = Kit::new(QUICK).await;
    for tainted in [false, true] {
        let id = kit.run(SessionRequest { tainted, ..ask("hi") }).await;
        let first = kit.store().entries(id, 0, 1).await.unwrap().remove(0).body;
        assert!(first.contains(&format!("\"tainted\":{tainted}")), "{first}");
        let next = kit.run(SessionRequest { previous: Some(id), ..ask("go on") }).await;
        let first = kit.store().entries(next, 0, 1).await.unwrap().remove(0).body;
        assert!(first.contains(&format!("\"tainted\":{tainted}")), "and so do those that go on: {first}");
    }
    kit.close().await;
}

/// The process dies between the deletion and the cancellation that it asks for.
#[test]
fn a_deletion_is_completed_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let first = runtime();
    let id = first.block_on(async {
        let orchestrator = open(folder.path(), "a", SLOW, false).await;
        let running = orchestrator.start(ask("secret")).await.unwrap();
        assert!(!orchestrator.store().delete(running.id).await.unwrap(), "it runs");
        running.id
    });
    first.shutdown_background();
    let second = runtime();
    second.block_on(async {
        let orchestrator = open(folder.path(), "b", SLOW, true).await;
        until_gone(orchestrator.store(), id).await;
        let row = orchestrator.store().session(id).await.unwrap().unwrap();
        assert_eq!((row.status.as_str(), row.owner), ("cancelled", None));
        let kit = Kit { folder, orchestrator };
        kit.close().await;
    });
}

//! Callers who go away while their session is being let in.

use ambit_core::signal::Subject;
use ambit_orchestrator::SessionRequest;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::kit::{Kit, QUICK, WAIT, ask};

/// A caller waits for a permit and leaves; then there is one. Gives how many sessions there are afterwards.
async fn sessions_after(request: SessionRequest) -> usize {
    let kit = Kit::new(QUICK).await;
    let setup = kit.orchestrator.setup();
    let chain = setup.gateway().chain("default").unwrap().clone();
    let mut held = Vec::new();
    while let Ok(admission) = chain.admit(Subject::default(), Instant::now()).await {
        held.push(admission);
    }
    let orchestrator = kit.orchestrator.clone();
    let mut callers = JoinSet::new();
    callers.spawn(async move { orchestrator.start(request).await.map(|running| running.id) });
    let until = |queued: u32| {
        let setup = &setup;
        let there = async move {
            while setup.gateway().pools().any(|pool| pool.queued != queued) {
                tokio::task::yield_now().await;
            }
        };
        timeout(WAIT, there)
    };
    until(1).await.unwrap();
    callers.abort_all();
    assert!(callers.join_next().await.unwrap().unwrap_err().is_cancelled());
    drop(held);
    until(0).await.unwrap();
    let idle = async {
        while kit.orchestrator.quiescence().sessions > 0 || setup.gateway().pools().any(|pool| pool.in_use > 0) {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT, idle).await.unwrap();
    let found = kit.listed().await;
    kit.close().await;
    found
}

#[tokio::test]
async fn who_left_before_there_was_a_permit_has_no_session() {
    assert_eq!(sessions_after(ask("hi")).await, 0);
}

#[tokio::test]
async fn who_wants_it_to_go_on_has_one() {
    assert_eq!(sessions_after(SessionRequest { continues: true, ..ask("hi") }).await, 1);
}

//! What is kept of a session, and what is forgotten of it.

use ambit_core::session::{Canceller, Principal};
use ambit_orchestrator::{LookupError, Said, SessionRequest, StartError};

use crate::kit::{Kit, QUICK, SLOW, ask, keyed, open, until_gone, who};

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

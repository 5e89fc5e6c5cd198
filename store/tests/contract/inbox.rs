//! Messages: from anybody, to the owner, once, and again if the owner died over them.

use std::num::NonZeroU32;
use std::time::Duration;

use ambit_store::{Append, INBOX_MAX, MESSAGE_BYTES_MAX, MessageId, Need, Store, StoreError};
use tokio::time::timeout;

use crate::kit::{Kit, closing, create, events, id, row};

async fn put(store: &Store, n: u64, kind: &'static str) -> Result<(), StoreError> {
    store.inbox_put(id(n), kind, "{}".to_owned(), Need::Applied).await
}

async fn kinds(store: &Store) -> Vec<String> {
    store.inbox_take().await.unwrap().into_iter().map(|message| message.kind).collect()
}

#[tokio::test]
async fn a_message_reaches_the_owner_in_another_process() {
    let kit = Kit::new();
    let (owner, other) = (kit.open("a").await, kit.open("b").await);
    let lease = create(&owner, 1).await;
    create(&other, 2).await;
    put(&other, 1, "cancel").await.unwrap();
    put(&owner, 2, "tighten").await.unwrap();

    let messages = timeout(Duration::from_secs(5), owner.inbox_next()).await.unwrap().unwrap();
    assert_eq!(messages.iter().map(|m| (m.session, m.epoch, m.kind.as_str())).collect::<Vec<_>>(), [(id(1), 1, "cancel")]);
    assert_eq!(messages[0].at_ms, crate::kit::START_MS);
    assert_eq!(kinds(&other).await, ["tighten"]);
    // Handed out once.
    assert!(kinds(&owner).await.is_empty());

    // Gone with the append that answers it.
    owner.append(&lease, Append { heard: vec![messages[0].id], ..events([2]) }, Need::Applied).await.unwrap();
    let left: Vec<i64> = sqlx::query_scalar("SELECT id FROM inbox").fetch_all(&mut kit.stranger().await).await.unwrap();
    assert_eq!(left.len(), 1, "only the other session's");
}

#[tokio::test]
async fn a_message_in_the_same_process_comes_without_a_poll() {
    let kit = Kit::new();
    let hour = Duration::from_secs(3_600);
    let owner = Store::open(ambit_store::StoreOptions { poll: hour, ..kit.options("a") }).await.unwrap();
    create(&owner, 1).await;
    let (messages, put) = tokio::join!(timeout(Duration::from_secs(20), owner.inbox_next()), put(&owner, 1, "cancel"));
    put.unwrap();
    assert_eq!(messages.expect("it waits for a poll").unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_dead_owner_did_not_journal_is_handed_to_the_next() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    let lease = create(&owner, 1).await;
    for kind in ["one", "two"] {
        put(&owner, 1, kind).await.unwrap();
    }
    let messages = owner.inbox_take().await.unwrap();
    owner.append(&lease, Append { heard: vec![messages[0].id], ..events([2]) }, Need::Applied).await.unwrap();
    kit.pass(10_000);
    let heir = kit.open("b").await;
    heir.take_over(NonZeroU32::MIN).await.unwrap();
    assert_eq!(kinds(&heir).await, ["two"]);
    // The former owner cannot take it away any more.
    let stale = Append { heard: vec![messages[1].id], ..Append::default() };
    assert!(matches!(owner.append(&lease, stale, Need::Applied).await, Err(StoreError::NotOwner { .. })));
    let left: Vec<String> = sqlx::query_scalar("SELECT kind FROM inbox").fetch_all(&mut kit.stranger().await).await.unwrap();
    assert_eq!(left, ["two"]);
}

#[tokio::test]
async fn an_inbox_is_bounded() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    create(&store, 1).await;
    let lease = create(&store, 2).await;
    for _ in 0..INBOX_MAX {
        put(&store, 1, "cancel").await.unwrap();
    }
    assert!(matches!(put(&store, 1, "cancel").await, Err(StoreError::InboxFull { session }) if session == id(1)));
    put(&store, 2, "cancel").await.unwrap();
    assert_eq!(store.inbox_take().await.unwrap().len(), INBOX_MAX as usize + 1);

    store.append(&lease, row(closing()), Need::Applied).await.unwrap();
    assert!(matches!(put(&store, 2, "cancel").await, Err(StoreError::SessionClosed { .. })));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM inbox").fetch_one(&mut kit.stranger().await).await.unwrap();
    assert_eq!(left, i64::from(INBOX_MAX), "what a closed session did not hear is gone");
    assert!(matches!(put(&store, 3, "cancel").await, Err(StoreError::NotFound { .. })));

    let body = |bytes| store.inbox_put(id(2), "tighten", "x".repeat(bytes), Need::Applied);
    assert!(matches!(body(MESSAGE_BYTES_MAX + 1).await, Err(StoreError::TooLarge { .. })));
    assert!(matches!(body(MESSAGE_BYTES_MAX).await, Err(StoreError::SessionClosed { .. })));
}

#[tokio::test]
async fn a_durable_message_is_synced() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    store.inbox_put(id(1), "approve", "{}".to_owned(), Need::Durable).await.unwrap();
    // The next append is not: the connection went back.
    store.append(&lease, events([2]), Need::Applied).await.unwrap();
    assert_eq!(kit.ops.commits(), (2, 0));
    assert_eq!(kinds(&store).await, ["approve"]);
    let ids: Vec<MessageId> = store.inbox_take().await.unwrap().into_iter().map(|message| message.id).collect();
    assert!(ids.is_empty());
}

//! Forgetting: texts go when they are to, at once or with the close, and the journal stays.

use std::num::NonZeroU32;

use ambit_store::{Append, KeyKind, KeyName, Lease, Need, NewKey, NewSession, Order, Page, RowUpdate, Store, StoreError, TextFate};
use sqlx::Row as _;

use crate::kit::{Kit, START_MS, closing, content, digest, events, id, new_session, row, seqs};

const MANY: NonZeroU32 = NonZeroU32::new(100).unwrap();

async fn begin(store: &Store, n: u64, forget: bool) -> Lease {
    let session =
        NewSession { forget, metadata: "{\"who\":\"me\"}".to_owned(), contents: vec![content(1, "secret words")], ..new_session(n) };
    store.create(session, Need::Applied).await.unwrap()
}

async fn close(store: &Store, lease: &Lease, closed_ms: u64) {
    let append = Append { contents: vec![content(2, "more secret words")], ..events([2]) };
    let row = Some(RowUpdate { closed_ms: Some(closed_ms), ..closing() });
    store.append(lease, Append { row, ..append }, Need::Applied).await.unwrap();
}

async fn check(store: &Store, n: u64, texts: usize, fate: TextFate) {
    let row = store.session(id(n)).await.unwrap().unwrap();
    assert_eq!((store.contents(id(n)).await.unwrap().len(), row.texts), (texts, fate), "{n}");
}

async fn listed(store: &Store) -> Vec<ambit_core::SessionId> {
    let page = Page { after: None, limit: MANY, order: Order::OldestFirst, status: None, agent: None, tenant: None };
    store.sessions(page).await.unwrap().rows.into_iter().map(|row| row.id).collect()
}

#[tokio::test]
async fn what_is_to_be_forgotten_goes_some_time_after_the_close() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let leases = [begin(&store, 1, true).await, begin(&store, 2, true).await, begin(&store, 3, false).await];
    let open = begin(&store, 4, true).await;
    for (lease, closed) in leases.iter().zip([10, 11, 10]) {
        close(&store, lease, START_MS + closed).await;
    }
    assert_eq!(store.sweep_texts(START_MS + 9, MANY).await.unwrap(), 0);
    assert_eq!(store.sweep_texts(START_MS + 10, MANY).await.unwrap(), 1);
    check(&store, 1, 0, TextFate::Gone).await;
    check(&store, 2, 2, TextFate::ToGo).await;
    check(&store, 3, 2, TextFate::Kept).await;
    check(&store, 4, 1, TextFate::ToGo).await;
    assert_eq!(seqs(&store, 1).await, [1, 2], "the journal stays");
    assert_eq!(store.sweep_texts(u64::MAX >> 1, MANY).await.unwrap(), 1);
    assert_eq!(store.sweep_texts(u64::MAX >> 1, MANY).await.unwrap(), 0, "once is enough");
    assert_eq!(listed(&store).await.len(), 4);
    drop(open);
}

#[tokio::test]
async fn texts_are_swept_in_batches() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    for n in 1..=5 {
        let lease = begin(&store, n, true).await;
        close(&store, &lease, START_MS).await;
    }
    let three = NonZeroU32::new(3).unwrap();
    assert_eq!((store.sweep_texts(START_MS, three).await.unwrap(), store.sweep_texts(START_MS, three).await.unwrap()), (3, 2));
}

#[tokio::test]
async fn a_closed_session_is_deleted_at_once() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let key = KeyName { tenant: "acme".into(), kind: KeyKind::Session, scope: "ann".into(), key: "k".into() };
    let session =
        NewSession { key: Some(NewKey { name: key.clone(), hash: digest(1) }), contents: vec![content(1, "x")], ..new_session(1) };
    let lease = store.create(session, Need::Applied).await.unwrap();
    close(&store, &lease, START_MS).await;
    begin(&store, 2, false).await;
    assert!(store.delete(id(1)).await.unwrap(), "it is closed");
    check(&store, 1, 0, TextFate::Gone).await;
    let row = store.session(id(1)).await.unwrap().unwrap();
    assert_eq!((row.deleted_ms, row.metadata.as_str()), (Some(START_MS), "{}"));
    assert_eq!((seqs(&store, 1).await, listed(&store).await), (vec![1, 2], vec![id(2)]));
    assert_eq!(store.key(&key, START_MS).await.unwrap(), None);
    assert_eq!(store.contents(id(2)).await.unwrap().len(), 1, "nobody else's text is touched");
    for n in [1, 7] {
        assert!(matches!(store.delete(id(n)).await, Err(StoreError::NotFound { .. })), "{n}");
    }
}

#[tokio::test]
async fn a_running_session_loses_its_texts_with_the_append_that_closes_it() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = begin(&store, 1, false).await;
    assert!(!store.delete(id(1)).await.unwrap(), "it runs");
    check(&store, 1, 1, TextFate::ToGo).await;
    assert!(listed(&store).await.is_empty());
    // It is driven to its end all the same, by whoever owns it by then.
    let heir = kit.open("b").await;
    kit.pass(10_000);
    store.close().await.unwrap();
    let lease = heir.take_over(MANY).await.unwrap().into_iter().find(|heirs| heirs.session == lease.session).unwrap();
    heir.append(&lease, row(RowUpdate { verdict_ms: Some(START_MS), ..RowUpdate::default() }), Need::Applied).await.unwrap();
    check(&heir, 1, 1, TextFate::ToGo).await;
    close(&heir, &lease, START_MS).await;
    check(&heir, 1, 0, TextFate::Gone).await;
}

#[tokio::test]
async fn deleted_texts_are_overwritten_in_the_file() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = begin(&store, 1, false).await;
    close(&store, &lease, START_MS).await;
    store.delete(id(1)).await.unwrap();
    store.close().await.unwrap();
    let mut stranger = kit.stranger().await;
    let kept: i64 = sqlx::query("SELECT count(*) FROM content").fetch_one(&mut stranger).await.unwrap().get(0);
    assert_eq!(kept, 0);
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut stranger).await.unwrap();
    let file = std::fs::read(kit.path()).unwrap();
    assert!(!file.windows(12).any(|bytes| bytes == b"secret words"));
}

//! Keys: taken once whoever asks, together with their session or not at all, and free again when their time is over.

use std::num::NonZeroU32;

use ambit_core::Digest;
use ambit_store::{Append, KeyFate, KeyKind, KeyName, KeyRecord, KeyState, Need, NewKey, NewSession, RowUpdate, Store, StoreError};
use futures_util::future::join_all;

use crate::kit::{Kit, START_MS, closing, digest, events, id, new_session, row};

const DAY_MS: u64 = 86_400_000;
const MANY: NonZeroU32 = NonZeroU32::new(100).unwrap();

fn name(key: &str) -> KeyName {
    KeyName { tenant: "acme".into(), kind: KeyKind::Session, scope: "ann".into(), key: key.into() }
}

fn keyed(n: u64, key: &str) -> NewSession {
    NewSession { key: Some(NewKey { name: name(key), hash: digest(1) }), ..new_session(n) }
}

async fn record(store: &Store, key: &str, now_ms: u64) -> Option<KeyRecord> {
    store.key(&name(key), now_ms).await.unwrap()
}

fn fate(key: KeyFate) -> Append {
    row(RowUpdate { key: Some(key), ..RowUpdate::default() })
}

#[tokio::test]
async fn a_key_runs_is_done_and_ends() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    assert_eq!(record(&store, "k", START_MS).await, None);
    let lease = store.create(keyed(1, "k"), Need::Durable).await.unwrap();
    let expected = KeyRecord {
        hash: digest(1),
        generation: 1,
        state: KeyState::Running,
        session: Some(id(1)),
        created_ms: START_MS,
        expires_ms: None,
    };
    assert_eq!(record(&store, "k", u64::MAX >> 1).await, Some(expected.clone()), "an open session's key does not end");
    store.append(&lease, fate(KeyFate::Done { until_ms: None }), Need::Applied).await.unwrap();
    let expected = KeyRecord { state: KeyState::Done, ..expected };
    assert_eq!(record(&store, "k", START_MS).await, Some(expected.clone()));
    let end = RowUpdate { key: Some(KeyFate::Done { until_ms: Some(START_MS + DAY_MS) }), ..closing() };
    store.append(&lease, row(end), Need::Applied).await.unwrap();
    let expected = KeyRecord { expires_ms: Some(START_MS + DAY_MS), ..expected };
    assert_eq!(record(&store, "k", START_MS + DAY_MS - 1).await, Some(expected));
    assert_eq!(record(&store, "k", START_MS + DAY_MS).await, None, "one past its time");
}

#[tokio::test]
async fn of_many_that_ask_at_once_one_begins() {
    let kit = Kit::new();
    let (one, other) = (kit.open("a").await, kit.open("b").await);
    let all =
        (1..=50).map(|n| if n % 2 == 0 { one.create(keyed(n, "k"), Need::Durable) } else { other.create(keyed(n, "k"), Need::Durable) });
    let results = join_all(all).await;
    let (begun, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((begun.len(), refused.len()), (1, 49));
    assert!(refused.into_iter().all(|result| matches!(result, Err(StoreError::KeyTaken))));
    let session = begun.into_iter().next().unwrap().unwrap().session;
    assert_eq!(record(&one, "k", START_MS).await.unwrap().session, Some(session));
    for n in 1..=50 {
        // Session and key stand or fall together: of the others there is nothing.
        assert_eq!(one.session(id(n)).await.unwrap().is_some(), id(n) == session, "{n}");
        assert_eq!(one.entries(id(n), 0, 10).await.unwrap().len(), usize::from(id(n) == session));
    }
}

#[tokio::test]
async fn a_taken_key_fails_alone() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let first = store.create(keyed(1, "k"), Need::Applied).await.unwrap();
    let (second, third, fourth) = tokio::join!(
        store.create(keyed(2, "k"), Need::Applied),
        store.create(keyed(3, "other"), Need::Applied),
        store.append(&first, events([2]), Need::Applied),
    );
    assert!(matches!(second, Err(StoreError::KeyTaken)));
    assert!(third.is_ok() && fourth.is_ok());
}

#[tokio::test]
async fn each_part_of_its_name_makes_a_key_another() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    store.create(keyed(1, "k"), Need::Applied).await.unwrap();
    let names = [
        KeyName { tenant: "umbrella".into(), ..name("k") },
        KeyName { scope: "bob".into(), ..name("k") },
        KeyName { key: "K".into(), ..name("k") },
    ];
    for (n, name) in (2..).zip(names) {
        assert_eq!(store.key(&name, START_MS).await.unwrap(), None);
        let session = NewSession { key: Some(NewKey { name, hash: Digest([9; 32]) }), ..new_session(n) };
        store.create(session, Need::Applied).await.unwrap();
    }
}

#[tokio::test]
async fn a_released_key_is_free_at_once() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = store.create(keyed(1, "k"), Need::Applied).await.unwrap();
    store.append(&lease, row(RowUpdate { key: Some(KeyFate::Released), ..closing() }), Need::Applied).await.unwrap();
    assert_eq!(record(&store, "k", START_MS).await, None);
    store.create(keyed(2, "k"), Need::Applied).await.unwrap();
    assert_eq!(record(&store, "k", START_MS).await.unwrap().session, Some(id(2)));
    assert!(store.session(id(1)).await.unwrap().is_some(), "its session stays");
}

#[tokio::test]
async fn a_key_past_its_time_is_taken_anew_also_before_it_is_swept() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = store.create(keyed(1, "k"), Need::Applied).await.unwrap();
    let until = KeyFate::Done { until_ms: Some(START_MS + DAY_MS) };
    store.append(&lease, row(RowUpdate { key: Some(until), ..closing() }), Need::Applied).await.unwrap();
    let at = |created_ms| NewSession { created_ms, ..keyed(2, "k") };
    assert!(matches!(store.create(at(START_MS + DAY_MS - 1), Need::Applied).await, Err(StoreError::KeyTaken)));
    store.create(at(START_MS + DAY_MS), Need::Applied).await.unwrap();
    assert_eq!(record(&store, "k", START_MS + DAY_MS).await.unwrap().session, Some(id(2)));
}

#[tokio::test]
async fn keys_are_swept_in_batches_once_their_time_is_over() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    for n in 1..=5 {
        let lease = store.create(keyed(n, &n.to_string()), Need::Applied).await.unwrap();
        if n < 5 {
            let until = KeyFate::Done { until_ms: Some(START_MS + DAY_MS) };
            store.append(&lease, row(RowUpdate { key: Some(until), ..closing() }), Need::Applied).await.unwrap();
        }
    }
    kit.pass(DAY_MS - 1);
    assert_eq!(store.sweep_keys(MANY).await.unwrap(), 0);
    kit.pass(1);
    let three = NonZeroU32::new(3).unwrap();
    assert_eq!((store.sweep_keys(three).await.unwrap(), store.sweep_keys(three).await.unwrap()), (3, 1));
    assert_eq!(store.sweep_keys(three).await.unwrap(), 0);
    assert!(record(&store, "5", u64::MAX >> 1).await.is_some(), "the key of an open session is never swept");
}

#[tokio::test]
async fn a_key_survives_a_kill_and_the_change_of_its_owner() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    store.create(keyed(1, "k"), Need::Durable).await.unwrap();
    let after = Kit::new();
    for suffix in ["", "-wal"] {
        let file = format!("ambit.db{suffix}");
        std::fs::copy(kit.folder.path().join(&file), after.folder.path().join(&file)).unwrap();
    }
    let again = after.open("b").await;
    assert!(matches!(again.create(keyed(2, "k"), Need::Durable).await, Err(StoreError::KeyTaken)));
    after.pass(10_000);
    let lease = again.take_over(MANY).await.unwrap().remove(0);
    again.append(&lease, fate(KeyFate::Done { until_ms: None }), Need::Applied).await.unwrap();
    assert_eq!(record(&again, "k", START_MS).await.unwrap().state, KeyState::Done);
}

//! Ownership: one at a time, taken over only from the dead, and checked in the transaction that writes.

use std::num::NonZeroU32;
use std::time::Duration;

use ambit_store::{Append, Need, RowUpdate, Store, StoreError, StoreOptions};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::kit::{Kit, START_MS, closing, content, create, event, events, id, new_session, row, seqs};

const MANY: NonZeroU32 = NonZeroU32::new(100).unwrap();

#[tokio::test]
async fn only_an_expired_lease_is_taken_over() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    create(&owner, 1).await;
    let heir = kit.open("b").await;
    kit.pass(9_999);
    assert!(heir.take_over(MANY).await.unwrap().is_empty());
    kit.pass(1);
    let leases = heir.take_over(MANY).await.unwrap();
    assert_eq!(leases.iter().map(|lease| (lease.session, lease.epoch)).collect::<Vec<_>>(), [(id(1), 2)]);
    let row = heir.session(id(1)).await.unwrap().unwrap();
    assert_eq!((row.owner.as_deref(), row.epoch), (Some("b"), 2));
    // What is mine is not taken over by me, and what is taken has a living owner.
    assert!(heir.take_over(MANY).await.unwrap().is_empty());
    assert!(owner.take_over(MANY).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_living_owner_renews() {
    let kit = Kit::new();
    let (lease, renew) = (Duration::from_millis(60), Duration::from_millis(20));
    let owner = Store::open(StoreOptions { lease, renew, ..kit.options("a") }).await.unwrap();
    create(&owner, 1).await;
    let heir = kit.open("b").await;
    for round in 1..=5 {
        kit.pass(59);
        let renewed = async { while heir.session(id(1)).await.unwrap().unwrap().lease_until_ms < Some(START_MS + 59 * round + 60) {} };
        timeout(Duration::from_secs(20), renewed).await.expect("the lease is not renewed");
        assert!(heir.take_over(MANY).await.unwrap().is_empty());
    }
    assert!(heir.session(id(1)).await.unwrap().unwrap().epoch == 1);
}

#[tokio::test]
async fn an_owner_that_slept_renews_before_it_writes() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    let lease = create(&owner, 1).await;
    let heir = kit.open("b").await;
    kit.pass(60_000);
    owner.append(&lease, events([2]), Need::Applied).await.unwrap();
    assert!(heir.take_over(MANY).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_stale_epoch_appends_nothing_and_harms_nobody() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    let (lost, kept) = (create(&owner, 1).await, create(&owner, 2).await);
    let heir = kit.open("b").await;
    kit.pass(10_000);
    let heirs = heir.take_over(NonZeroU32::MIN).await.unwrap();
    assert_eq!(heirs[0].session, id(1));

    let before = kit.ops.commits();
    let stale = Append {
        contents: vec![content(1, "stale")],
        row: Some(RowUpdate { status: Some("completed"), release: true, ..RowUpdate::default() }),
        ..events([2])
    };
    let results = join_all([
        owner.append(&kept, events([2]), Need::Applied),
        owner.append(&lost, stale, Need::Applied),
        owner.append(&kept, events([3]), Need::Applied),
    ])
    .await;
    assert!(results[0].is_ok() && results[2].is_ok());
    assert!(matches!(results[1], Err(StoreError::NotOwner { session, epoch: 1 }) if session == id(1)));
    assert_eq!(kit.ops.commits().0, before.0 + 2, "a group with a stale lease is taken apart");
    assert_eq!((seqs(&owner, 1).await, seqs(&owner, 2).await), (vec![1], vec![1, 2, 3]));
    assert!(owner.contents(id(1)).await.unwrap().is_empty());
    let row = owner.session(id(1)).await.unwrap().unwrap();
    assert_eq!((row.status.as_str(), row.owner.as_deref()), ("running", Some("b")));

    // The place that the stale one wanted is free for the new owner.
    heir.append(&heirs[0], events([2]), Need::Applied).await.unwrap();
    assert_eq!(seqs(&owner, 1).await, [1, 2]);
}

#[tokio::test]
async fn an_owner_that_comes_back_does_not_come_back_under_its_old_epoch() {
    let kit = Kit::new();
    let (owner, heir) = (kit.open("a").await, kit.open("b").await);
    let old = create(&owner, 1).await;
    kit.pass(10_000);
    assert_eq!(heir.take_over(MANY).await.unwrap()[0].epoch, 2);
    kit.pass(10_000);
    let new = owner.take_over(MANY).await.unwrap().remove(0);
    assert_eq!(new.epoch, 3);
    assert!(matches!(owner.append(&old, events([2]), Need::Applied).await, Err(StoreError::NotOwner { epoch: 1, .. })));
    owner.append(&new, events([2]), Need::Applied).await.unwrap();
}

#[tokio::test]
async fn a_released_session_belongs_to_nobody() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let (one, two) = (create(&store, 1).await, create(&store, 2).await);
    // In one group: what comes after the release comes too late.
    let results = join_all([
        store.append(&one, Append { row: Some(closing()), ..events([2]) }, Need::Applied),
        store.append(&one, events([3]), Need::Applied),
    ])
    .await;
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(StoreError::NotOwner { .. })));
    store.release(&two).await.unwrap();
    assert!(matches!(store.append(&two, events([2]), Need::Applied).await, Err(StoreError::NotOwner { .. })));
    assert_eq!((seqs(&store, 1).await, seqs(&store, 2).await), (vec![1, 2], vec![1]));
    kit.pass(60_000);
    let heir = kit.open("b").await;
    assert!(heir.take_over(MANY).await.unwrap().is_empty());
    assert_eq!(heir.session(id(1)).await.unwrap().unwrap().owner, None);
}

#[tokio::test]
async fn a_process_that_leaves_in_order_leaves_its_sessions_to_others_at_once() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    for n in 1..=5 {
        create(&owner, n).await;
    }
    owner.close().await.unwrap();
    let heir = kit.open("b").await;
    let two = NonZeroU32::new(2).unwrap();
    let mut taken = Vec::new();
    for expected in [2, 2, 1, 0] {
        let leases = heir.take_over(two).await.unwrap();
        assert_eq!(leases.len(), expected);
        taken.extend(leases.into_iter().map(|lease| lease.session));
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=5).map(id).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_name_is_used_by_one_process_and_forgotten_after_it() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    let twin = Store::open(kit.options("a")).await;
    assert!(matches!(twin, Err(StoreError::NodeInUse { node }) if &*node == "a"));
    // A dead node is forgotten once nothing belongs to it any more.
    create(&owner, 1).await;
    kit.pass(10_000);
    let heir = kit.open("b").await;
    assert_eq!(heir.take_over(MANY).await.unwrap().len(), 1);
    let nodes: Vec<String> = sqlx::query_scalar("SELECT id FROM node ORDER BY id").fetch_all(&mut kit.stranger().await).await.unwrap();
    assert_eq!(nodes, ["b"]);
    // It was merely asleep: it goes on under its name, with what is left to it.
    let lease = create(&owner, 2).await;
    kit.pass(9_000);
    assert!(heir.take_over(MANY).await.unwrap().is_empty());
    owner.append(&lease, row(closing()), Need::Applied).await.unwrap();
}

#[tokio::test]
async fn a_session_is_its_creators_from_the_first_record_on() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = store.create(new_session(1), Need::Durable).await.unwrap();
    assert_eq!((lease.session, lease.epoch), (id(1), 1));
    assert_eq!(store.entries(id(1), 0, 10).await.unwrap(), [event(1)]);
}

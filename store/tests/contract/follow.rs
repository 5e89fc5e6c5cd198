//! Following: every record once, in order, from whichever process, however slow the follower.

use std::num::NonZeroU32;
use std::time::Duration;

use ambit_store::{Append, Follower, Need, OpKind, Store, StoreOptions};
use tokio::time::timeout;

use crate::kit::{Kit, closing, create, events, id, note};

/// Follows to the end; gives up after a while so that a lost record is a failure and no hang.
async fn all(mut follower: Follower) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(records) = timeout(Duration::from_secs(20), follower.next()).await.expect("the follower waits for ever") {
        let records = records.unwrap();
        assert!(!records.is_empty());
        seqs.extend(records.into_iter().map(|record| record.seq));
    }
    seqs
}

/// Waits until a follower, after so many reads `before` it was polled, has found nothing, has looked whether the session
/// is closed, and listens.
async fn listening(kit: &Kit, before: usize) {
    let listens = async {
        while kit.ops.count(OpKind::Read) < before + 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), listens).await.expect("the follower does not look");
}

/// Writes a session to its end, a commit a record.
async fn write(store: &Store, lease: &ambit_store::Lease, seqs: std::ops::Range<u64>) {
    for seq in seqs.clone() {
        store.append(lease, events([seq]), Need::Applied).await.unwrap();
    }
    store.append(lease, Append { row: Some(closing()), ..events([seqs.end]) }, Need::Applied).await.unwrap();
}

#[tokio::test]
async fn followers_in_and_out_of_the_process_see_all_of_it() {
    let kit = Kit::new();
    let (owner, other) = (kit.open("a").await, kit.open("b").await);
    let lease = create(&owner, 1).await;
    let ((), inside, outside, late) = tokio::join!(
        write(&owner, &lease, 2..300),
        all(owner.follow(id(1), 0)),
        all(other.follow(id(1), 0)),
        all(other.follow(id(1), 150))
    );
    assert_eq!(inside, (1..=300).collect::<Vec<_>>());
    assert_eq!(outside, (1..=300).collect::<Vec<_>>());
    assert_eq!(late, (151..=300).collect::<Vec<_>>());
    assert_eq!(owner.gauges().followed + other.gauges().followed, 0);
}

#[tokio::test]
async fn a_follower_that_sleeps_through_hundreds_of_commits_loses_none() {
    let kit = Kit::new();
    let hour = Duration::from_secs(3_600);
    let store = Store::open(StoreOptions { poll: hour, ..kit.options("a") }).await.unwrap();
    let lease = create(&store, 1).await;
    let mut follower = store.follow(id(1), 0);
    assert_eq!(follower.next().await.unwrap().unwrap().len(), 1);
    // The first commit that it hears of sends it to the table once more; the second comes live.
    for (seq, reads) in [(2, 3), (3, 2)] {
        let before = kit.ops.count(OpKind::Read);
        let write = async {
            listening(&kit, before).await;
            store.append(&lease, events([seq]), Need::Applied).await.unwrap();
        };
        let (records, ()) = tokio::join!(follower.next(), write);
        assert_eq!(records.unwrap().unwrap(), events([seq]).records);
        assert_eq!(kit.ops.count(OpKind::Read) - before, reads, "record {seq}");
    }
    // Far behind: the channel has forgotten most of it.
    write(&store, &lease, 4..400).await;
    assert_eq!(all(follower).await, (4..=400).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_change_of_owner_is_followed_through() {
    let kit = Kit::new();
    let (first, second) = (kit.open("a").await, kit.open("b").await);
    let lease = create(&first, 1).await;
    let mut followers = [first.follow(id(1), 0), second.follow(id(1), 0)];
    for follower in &mut followers {
        assert_eq!(follower.next().await.unwrap().unwrap()[0].seq, 1);
    }
    first.append(&lease, events([2]), Need::Applied).await.unwrap();
    kit.pass(10_000);
    let lease = second.take_over(NonZeroU32::MIN).await.unwrap().remove(0);
    write(&second, &lease, 3..20).await;
    for follower in followers {
        assert_eq!(all(follower).await, (2..=20).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_another_owner_wrote_comes_before_what_this_process_goes_on_with() {
    let kit = Kit::new();
    let hour = Duration::from_secs(3_600);
    let (first, second) = (kit.open("a").await, Store::open(StoreOptions { poll: hour, ..kit.options("b") }).await.unwrap());
    let lease = create(&first, 1).await;
    let mut follower = second.follow(id(1), 0);
    assert_eq!(follower.next().await.unwrap().unwrap()[0].seq, 1);
    let before = kit.ops.count(OpKind::Read);
    let write = async {
        listening(&kit, before).await;
        first.append(&lease, events([2]), Need::Applied).await.unwrap();
        kit.pass(10_000);
        let lease = second.take_over(NonZeroU32::MIN).await.unwrap().remove(0);
        second.append(&lease, events([3]), Need::Applied).await.unwrap();
    };
    let (records, ()) = tokio::join!(timeout(Duration::from_secs(20), follower.next()), write);
    let records = records.expect("it waits for a poll").unwrap().unwrap();
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn what_this_process_commits_comes_without_a_poll() {
    let kit = Kit::new();
    let hour = Duration::from_secs(3_600);
    let store = Store::open(StoreOptions { poll: hour, ..kit.options("a") }).await.unwrap();
    let lease = create(&store, 1).await;
    let mut follower = store.follow(id(1), 1);
    let patience = Duration::from_secs(20);
    for seq in 2..10 {
        let next = timeout(patience, follower.next());
        let (records, appended) = tokio::join!(next, store.append(&lease, events([seq]), Need::Applied));
        appended.unwrap();
        let records = records.expect("it waits for a poll").unwrap().unwrap();
        assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [seq]);
    }
    store.note(&lease, note(10), Vec::new());
    assert_eq!(timeout(patience, follower.next()).await.expect("it waits for a poll").unwrap().unwrap(), [note(10)]);
}

#[tokio::test]
async fn a_follower_ends_with_its_session_or_with_the_store() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    assert!(all(store.follow(id(9), 0)).await.is_empty(), "no such session");

    let lease = create(&store, 1).await;
    write(&store, &lease, 2..3).await;
    assert_eq!(all(store.follow(id(1), 0)).await, [1, 2, 3], "closed before");
    assert!(all(store.follow(id(1), 3)).await.is_empty(), "closed and read");

    create(&store, 2).await;
    let mut follower = store.follow(id(2), 0);
    assert_eq!(follower.next().await.unwrap().unwrap()[0].seq, 1);
    let (next, closed) = tokio::join!(follower.next(), store.close());
    closed.unwrap();
    assert!(next.is_none());
    assert!(follower.next().await.is_none());
}

#[tokio::test]
async fn the_channel_of_a_session_goes_with_its_last_follower() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let (one, two, other) = (store.follow(id(1), 0), store.follow(id(1), 0), store.follow(id(2), 0));
    assert_eq!(store.gauges().followed, 2);
    drop(one);
    assert_eq!(store.gauges().followed, 2);
    drop(two);
    assert_eq!(store.gauges().followed, 1);
    drop(other);
    assert_eq!(store.gauges().followed, 0);
}

//! Appends: grouped, whole, kept as promised, read back as they went in.

use std::num::NonZeroU32;

use ambit_core::limit::NOTES_MAX;
use ambit_store::{
    APPEND_BYTES_MAX, Append, BATCH_MAX, Content, ENTRIES_PAGE_MAX, Need, Noted, Record, RecordKind, RowUpdate, Store, StoreError,
};
use futures_util::future::join_all;

use crate::kit::{Kit, content, create, digest, event, events, id, new_session, note, seqs};

#[tokio::test]
async fn what_is_appended_is_read_back_as_it_was() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let odd = "quote \" backslash \\ zero \0 emoji 🦀 newline \n";
    let records = vec![
        Record { seq: 7, kind: RecordKind::Event, at_ms: 0, body: odd.to_owned(), fingerprint: u64::MAX },
        Record { seq: 8, kind: RecordKind::Note, at_ms: u64::from(u32::MAX), body: String::new(), fingerprint: 0 },
    ];
    let contents = vec![content(1, odd), content(2, ""), content(3, "plain")];
    let append = Append { records: records.clone(), contents: contents.clone(), ..Append::default() };
    store.append(&lease, append, Need::Applied).await.unwrap();

    assert_eq!(store.entries(id(1), 1, 100).await.unwrap(), records);
    assert_eq!(store.contents(id(1)).await.unwrap(), contents);
    for Content { digest, text } in contents {
        assert_eq!(store.content(id(1), digest).await.unwrap(), Some(text));
    }
    assert_eq!(store.content(id(1), digest(9)).await.unwrap(), None);
    assert_eq!(store.content(id(2), digest(1)).await.unwrap(), None);
    assert_eq!(store.session(id(1)).await.unwrap().unwrap().last_seq, 8);
}

#[tokio::test]
async fn entries_are_read_in_pages() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let many = u64::from(ENTRIES_PAGE_MAX) + 1;
    store.append(&lease, events(2..=many), Need::Applied).await.unwrap();
    let check = async |after, limit, expected: Vec<u64>| {
        let seqs: Vec<_> = store.entries(id(1), after, limit).await.unwrap().iter().map(|r| r.seq).collect();
        assert_eq!(seqs, expected, "after {after} limit {limit}");
    };
    check(0, 2, vec![1, 2]).await;
    check(2, 2, vec![3, 4]).await;
    check(0, u32::MAX, (1..many).collect()).await;
    check(many - 1, 10, vec![many]).await;
    check(many, 10, vec![]).await;
    check(0, 0, vec![]).await;
}

#[tokio::test]
async fn what_waits_is_committed_in_groups_of_the_bound() {
    // The test's one thread queues all before the writer runs, so that groups are as large as they may be.
    let check = async |appends: u64, commits: usize| {
        let kit = Kit::new();
        let store = kit.open("a").await;
        let lease = create(&store, 1).await;
        let waits: Vec<_> = (0..appends).map(|n| store.append(&lease, events([n + 2]), Need::Applied)).collect();
        assert_eq!(u64::try_from(store.gauges().queued).unwrap(), appends);
        for result in join_all(waits).await {
            result.unwrap();
        }
        assert_eq!(kit.ops.commits(), (1 + commits, 0), "{appends} appends");
        assert_eq!(store.session(id(1)).await.unwrap().unwrap().last_seq, appends + 1);
        assert_eq!(store.gauges().queued, 0);
    };
    check(1, 1).await;
    check(u64::from(BATCH_MAX), 1).await;
    check(u64::from(BATCH_MAX) + 1, 2).await;
}

#[tokio::test]
async fn a_group_is_durable_if_one_of_it_asks_for_it() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    assert_eq!(kit.ops.commits(), (1, 0));
    store.append(&lease, events([2]), Need::Durable).await.unwrap();
    assert_eq!(kit.ops.commits(), (1, 1));
    store.append(&lease, events([3]), Need::Applied).await.unwrap();
    assert_eq!(kit.ops.commits(), (2, 1));
    let needs = [(4, Need::Applied), (5, Need::Durable), (6, Need::Applied)];
    let waits = needs.map(|(seq, need)| store.append(&lease, events([seq]), need));
    assert!(join_all(waits).await.iter().all(Result::is_ok));
    assert_eq!(kit.ops.commits(), (2, 2));
    assert_eq!(seqs(&store, 1).await, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn an_append_is_written_also_if_nobody_waits() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    drop(store.append(&lease, events([2]), Need::Durable));
    drop(store.append(&lease, events([3]), Need::Applied));
    store.close().await.unwrap();
    let again = kit.open("b").await;
    assert_eq!(seqs(&again, 1).await, [1, 2, 3]);
}

#[tokio::test]
async fn the_last_store_to_go_leaves_nothing_behind_in_the_queue() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let waits: Vec<_> = (2..40).map(|seq| store.append(&lease, events([seq]), Need::Applied)).collect();
    drop(store);
    assert!(join_all(waits).await.iter().all(Result::is_ok));
    let again = kit.open("b").await;
    assert_eq!(seqs(&again, 1).await.len(), 39);
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    for seq in 2..20 {
        let append = Append { contents: vec![content(u8::try_from(seq).unwrap(), "text")], ..events([seq]) };
        store.append(&lease, append, Need::Applied).await.unwrap();
    }
    // What a killed process leaves is what the system has of its files; nobody closes, nobody checkpoints.
    let after = Kit::new();
    for suffix in ["", "-wal"] {
        let name = format!("ambit.db{suffix}");
        std::fs::copy(kit.folder.path().join(&name), after.folder.path().join(&name)).unwrap();
    }
    let again = after.open("b").await;
    assert_eq!(seqs(&again, 1).await, (1..20).collect::<Vec<_>>());
    assert_eq!(again.contents(id(1)).await.unwrap().len(), 18);
    // The dead owner's lease is still there, and runs out.
    let one = NonZeroU32::MIN;
    assert!(again.take_over(one).await.unwrap().is_empty());
    after.pass(10_000);
    assert_eq!(again.take_over(one).await.unwrap()[0].epoch, 2);
}

#[tokio::test]
async fn an_impossible_append_fails_alone() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let other = create(&store, 2).await;
    let half_new = Append { contents: vec![content(1, "never")], ..events([5, 1]) };
    let results = join_all([
        store.append(&lease, events([2]), Need::Applied),
        store.append(&lease, half_new, Need::Applied),
        store.append(&other, events([2]), Need::Applied),
    ])
    .await;
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(StoreError::Exists { session }) if session == id(1)));
    assert!(results[2].is_ok());
    assert_eq!((seqs(&store, 1).await, seqs(&store, 2).await), (vec![1, 2], vec![1, 2]));
    assert!(store.contents(id(1)).await.unwrap().is_empty());
    assert!(matches!(store.create(new_session(2), Need::Applied).await, Err(StoreError::Exists { .. })));
}

#[tokio::test]
async fn a_text_is_kept_once_a_session() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let (one, other) = (create(&store, 1).await, create(&store, 2).await);
    let append = |seq| Append { contents: vec![content(1, "same"), content(1, "same")], ..events([seq]) };
    for result in join_all([
        store.append(&one, append(2), Need::Applied),
        store.append(&one, append(3), Need::Applied),
        store.append(&other, append(2), Need::Applied),
    ])
    .await
    {
        result.unwrap();
    }
    store.append(&one, append(4), Need::Applied).await.unwrap();
    assert_eq!(store.contents(id(1)).await.unwrap(), [content(1, "same")]);
    assert_eq!(store.contents(id(2)).await.unwrap(), [content(1, "same")]);
}

#[tokio::test]
async fn a_session_has_so_many_notes_and_not_one_more() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let noted: Vec<_> = (0..=u64::from(NOTES_MAX)).map(|n| store.note(&lease, note(n + 2), Vec::new())).collect();
    let (last, all) = noted.split_last().unwrap();
    assert!(all.iter().all(|noted| *noted == Noted::Queued));
    assert_eq!(*last, Noted::LimitReached);
    // Events are not bounded by it, and come after the notes that were queued before them.
    store.append(&lease, events([5_000]), Need::Applied).await.unwrap();
    assert_eq!(store.entries(id(1), u64::from(NOTES_MAX), 10).await.unwrap(), [note(1_025), event(5_000)]);
    assert_eq!(store.gauges().notes_dropped, 1);

    // The bound outlives the owner.
    kit.pass(10_000);
    let heir = kit.open("b").await;
    let lease = heir.take_over(NonZeroU32::MIN).await.unwrap().remove(0);
    assert_eq!(heir.note(&lease, note(6_000), Vec::new()), Noted::LimitReached);
}

#[tokio::test]
async fn a_note_is_committed_without_anybody_waiting() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let mut follower = store.follow(id(1), 1);
    assert_eq!(store.note(&lease, note(2), Vec::new()), Noted::Queued);
    assert_eq!(follower.next().await.unwrap().unwrap(), [note(2)]);
}

#[tokio::test]
async fn a_note_under_a_stale_lease_is_dropped_and_counted() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    store.release(&lease).await.unwrap();
    assert_eq!(store.note(&lease, note(2), Vec::new()), Noted::Queued);
    store.close().await.unwrap();
    assert_eq!(store.gauges().notes_dropped, 1);
    assert_eq!(store.note(&lease, note(3), Vec::new()), Noted::QueueFull);
}

#[tokio::test]
async fn closing_commits_what_was_queued_and_takes_no_more() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let waits: Vec<_> = (2..600).map(|seq| store.append(&lease, events([seq]), Need::Applied)).collect();
    let other = Store::clone(&store);
    let (results, one, two) = tokio::join!(join_all(waits), store.close(), other.close());
    assert!(results.iter().all(Result::is_ok));
    one.unwrap();
    two.unwrap();
    assert!(matches!(store.append(&lease, events([600]), Need::Applied).await, Err(StoreError::Closed)));
    assert!(matches!(store.entries(id(1), 0, 1).await, Err(StoreError::Closed)));
    assert!(matches!(store.create(new_session(2), Need::Applied).await, Err(StoreError::Closed)));
    let again = kit.open("b").await;
    assert_eq!(again.session(id(1)).await.unwrap().unwrap().last_seq, 599);
}

#[tokio::test]
async fn updates_of_one_group_are_one_update_and_the_later_one_counts() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    let update = |row: RowUpdate| store.append(&lease, Append { row: Some(row), ..Append::default() }, Need::Applied);
    for result in join_all([
        update(RowUpdate { status: Some("running"), summary: Some("{\"a\":1}".to_owned()), ..RowUpdate::default() }),
        update(RowUpdate { status: Some("completed"), reason: Some("answered"), ..RowUpdate::default() }),
        update(RowUpdate { verdict_ms: Some(7), ..RowUpdate::default() }),
    ])
    .await
    {
        result.unwrap();
    }
    let row = store.session(id(1)).await.unwrap().unwrap();
    assert_eq!((row.status.as_str(), row.reason.as_deref(), row.verdict_ms), ("completed", Some("answered"), Some(7)));
    assert_eq!(row.summary.as_deref(), Some("{\"a\":1}"));
}

#[tokio::test]
async fn an_append_that_no_session_could_make_is_refused() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    let lease = create(&store, 1).await;
    // One text, shared: its size counts as often as it is named.
    let contents = vec![content(1, &"x".repeat(APPEND_BYTES_MAX / 8)); 8];
    let append = Append { contents, ..events([2]) };
    assert!(matches!(store.append(&lease, append, Need::Applied).await, Err(StoreError::TooLarge { .. })));
    store.append(&lease, events([2]), Need::Applied).await.unwrap();
    assert_eq!(seqs(&store, 1).await, [1, 2]);
}

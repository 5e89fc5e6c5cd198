//! A bad file, a full disk, a locked database, many processes at once: each has its name, and the writer outlives it.

use std::num::NonZeroU32;
use std::time::Duration;

use ambit_core::{ErrorKind, Origin};
use ambit_store::{Append, Need, Store, StoreError, StoreOptions};
use futures_util::future::join_all;
use sqlx::Executor as _;

use crate::kit::{Kit, content, create, events, id, new_session, seqs};

#[tokio::test]
async fn a_full_disk_fails_the_group_and_not_the_writer() {
    let kit = Kit::new();
    let pages_max = NonZeroU32::new(64);
    let store = Store::open(StoreOptions { pages_max, ..kit.options("a") }).await.unwrap();
    let lease = create(&store, 1).await;
    let fill = Append { contents: vec![content(1, &"x".repeat(100_000))], ..events([2]) };
    store.append(&lease, fill, Need::Applied).await.unwrap();

    // Neither the large one nor its small neighbours are written: a group is one transaction.
    let large = Append { contents: vec![content(2, &"y".repeat(200_000))], ..events([4]) };
    let results = join_all([
        store.append(&lease, events([3]), Need::Applied),
        store.append(&lease, large, Need::Applied),
        store.append(&lease, events([5]), Need::Durable),
    ])
    .await;
    for result in results {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::Full(_)), "{error:?}");
        assert_eq!((error.kind(), error.origin()), (ErrorKind::Unavailable, Origin::Store));
        assert!(error.hint().is_some());
    }
    assert_eq!(seqs(&store, 1).await, [1, 2]);
    assert_eq!(store.gauges().queued, 0);

    // What fits is still written, and with space all of it.
    store.append(&lease, events([3]), Need::Applied).await.unwrap();
    kit.stranger().await.execute("DELETE FROM content").await.unwrap();
    let large = Append { contents: vec![content(2, &"y".repeat(100_000))], ..events([4]) };
    store.append(&lease, large, Need::Durable).await.unwrap();
    assert_eq!(seqs(&store, 1).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_lock_of_another_process_is_waited_for_so_long_and_no_longer() {
    let kit = Kit::new();
    let store = Store::open(StoreOptions { busy: Duration::from_millis(200), ..kit.options("a") }).await.unwrap();
    let lease = create(&store, 1).await;
    let mut other = kit.stranger().await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let error = store.append(&lease, events([2]), Need::Applied).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy(_)), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // Readers do not care.
    assert_eq!(seqs(&store, 1).await, [1]);

    let waits = store.append(&lease, events([2]), Need::Applied);
    other.execute("COMMIT").await.unwrap();
    waits.await.unwrap();
    assert_eq!(seqs(&store, 1).await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_processes_open_one_new_file_at_once_and_all_write() {
    let kit = Kit::new();
    let nodes: Vec<_> = (0..8_u64).map(|n| (n, format!("node-{n}"))).collect();
    let stores = join_all(nodes.iter().map(|(_, node)| Store::open(kit.options(node)))).await;
    let stores: Vec<_> = stores.into_iter().map(Result::unwrap).collect();
    join_all(stores.iter().zip(&nodes).map(async |(store, (n, _))| {
        let lease = create(store, *n).await;
        for seq in 2..12 {
            store.append(&lease, events([seq]), Need::Applied).await.unwrap();
        }
    }))
    .await;
    for (n, _) in &nodes {
        assert_eq!(seqs(&stores[0], *n).await, (1..12).collect::<Vec<_>>(), "session {n}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_reads_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let kit = Kit::new();
    let store = kit.open("a").await;
    create(&store, 1).await;
    for suffix in ["", "-wal", "-shm"] {
        let path = kit.folder.path().join(format!("ambit.db{suffix}"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
}

#[tokio::test]
async fn a_bad_file_is_named() {
    let check = async |name: &str, options: StoreOptions, expected: fn(&StoreError) -> bool| {
        let error = Store::open(options).await.unwrap_err();
        assert!(expected(&error), "{name}: {error:?}");
        assert!(error.hint().is_some(), "{name}");
    };
    let kit = Kit::new();
    let no_folder = StoreOptions { path: kit.folder.path().join("no").join("a.db"), ..kit.options("a") };
    check("no folder", no_folder, |e| matches!(e, StoreError::CannotOpen(_))).await;
    let a_folder = StoreOptions { path: kit.folder.path().to_owned(), ..kit.options("a") };
    check("a folder", a_folder, |e| matches!(e, StoreError::CannotOpen(_))).await;

    std::fs::write(kit.path(), "this is no database, but long enough to have a header of one".repeat(100)).unwrap();
    check("no database", kit.options("a"), |e| matches!(e, StoreError::Damaged(_))).await;
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_not_touched() {
    let kit = Kit::new();
    kit.open("a").await.close().await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (999, 'x', 1, x'00', 0)";
    kit.stranger().await.execute(newer).await.unwrap();
    let error = Store::open(kit.options("b")).await.unwrap_err();
    assert!(matches!(error, StoreError::Schema { version: 999 }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn options_that_contradict_themselves_are_refused() {
    let kit = Kit::new();
    let options = StoreOptions { renew: Duration::from_secs(4), ..kit.options("a") };
    assert!(matches!(Store::open(options).await, Err(StoreError::Options { .. })));
    assert!(!kit.path().exists());
}

#[tokio::test]
async fn a_reader_of_a_store_that_is_gone_says_so() {
    let kit = Kit::new();
    let store = kit.open("a").await;
    create(&store, 1).await;
    store.close().await.unwrap();
    assert!(matches!(store.session(id(1)).await, Err(StoreError::Closed)));
    assert!(matches!(store.take_over(NonZeroU32::MIN).await, Err(StoreError::Closed)));
    assert!(matches!(store.create(new_session(2), Need::Applied).await, Err(StoreError::Closed)));
}

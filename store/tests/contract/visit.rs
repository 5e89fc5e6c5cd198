//! Visitors: they read what others write and leave messages, and no trace beside.

use ambit_store::{Need, RowUpdate, StoreError, Visitor};
use sqlx::{Connection as _, SqliteConnection};

use crate::kit::{Kit, closing, create, event, events, id, note, row, seqs};

async fn nodes(connection: &mut SqliteConnection) -> Vec<(String, i64)> {
    sqlx::query_as("SELECT id, lease_until_ms FROM node ORDER BY id").fetch_all(connection).await.unwrap()
}

async fn owners(connection: &mut SqliteConnection) -> Vec<(Option<String>, i64)> {
    sqlx::query_as("SELECT owner, epoch FROM session ORDER BY id").fetch_all(connection).await.unwrap()
}

#[tokio::test]
async fn where_there_is_no_database_none_is_made() {
    let kit = Kit::new();
    let missing = |found| assert!(matches!(&found, Err(StoreError::Missing { path }) if *path == kit.path()), "{found:?}");
    missing(Visitor::open(kit.options("v")).await);
    assert_eq!(std::fs::read_dir(kit.folder.path()).unwrap().count(), 0);
    // A file in which there is nothing yet stays one.
    std::fs::write(kit.path(), "").unwrap();
    missing(Visitor::open(kit.options("v")).await);
    assert_eq!(std::fs::metadata(kit.path()).unwrap().len(), 0);
    std::fs::write(kit.path(), "no database at all, and long enough to be read as one".repeat(40)).unwrap();
    assert!(matches!(Visitor::open(kit.options("v")).await, Err(StoreError::Damaged(_))));
}

#[tokio::test]
async fn another_schema_is_told_and_not_touched() {
    let kit = Kit::new();
    kit.open("a").await.close().await.unwrap();
    let known = Visitor::open(kit.options("v")).await.unwrap().schema();
    let mut stranger = kit.stranger().await;
    let set = async |connection: &mut SqliteConnection, version: i64| {
        sqlx::query("UPDATE _sqlx_migrations SET version = $1 WHERE version = (SELECT max(version) FROM _sqlx_migrations)")
            .bind(version)
            .execute(connection)
            .await
            .unwrap();
    };
    set(&mut stranger, known + 1).await;
    assert!(matches!(Visitor::open(kit.options("v")).await, Err(StoreError::Schema { version }) if version == known + 1));
    sqlx::query("DELETE FROM _sqlx_migrations").execute(&mut stranger).await.unwrap();
    sqlx::query("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (0, '', 1, x'', 0)")
        .execute(&mut stranger)
        .await
        .unwrap();
    let outdated = Visitor::open(kit.options("v")).await;
    assert!(matches!(outdated, Err(StoreError::Outdated { version: 0, known: expected }) if expected == known));
}

#[tokio::test]
async fn a_visitor_owns_nothing_and_takes_nothing_over() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    let lease = create(&owner, 1).await;
    let mut stranger = kit.stranger().await;
    let before = (nodes(&mut stranger).await, owners(&mut stranger).await);
    kit.pass(60_000);
    let visitor = Visitor::open(kit.options("v")).await.unwrap();
    assert_eq!(seqs(visitor.store(), 1).await, [1]);
    visitor.try_write().await.unwrap();
    assert!(matches!(visitor.store().append(&lease, events([2]), Need::Applied).await, Err(StoreError::Closed)));
    assert!(matches!(visitor.store().take_over(std::num::NonZeroU32::MIN).await, Err(StoreError::Closed)));
    visitor.close().await.unwrap();
    assert_eq!((nodes(&mut stranger).await, owners(&mut stranger).await), before);
}

#[tokio::test]
async fn a_visitor_follows_what_others_write_to_the_end() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    let lease = create(&owner, 1).await;
    let visitor = Visitor::open(kit.options("v")).await.unwrap();
    let mut follower = visitor.store().follow(id(1), 0);
    assert_eq!(follower.next().await.unwrap().unwrap(), [event(1)]);
    owner.note(&lease, note(2), Vec::new());
    owner.append(&lease, events([3]), Need::Applied).await.unwrap();
    let mut found = Vec::new();
    while found.len() < 2 {
        found.extend(follower.next().await.unwrap().unwrap());
    }
    assert_eq!(found, [note(2), event(3)]);
    owner.append(&lease, row(closing()), Need::Applied).await.unwrap();
    assert!(follower.next().await.is_none());
}

#[tokio::test]
async fn a_message_reaches_the_owner_and_is_refused_where_nobody_hears() {
    let kit = Kit::new();
    let owner = kit.open("a").await;
    let lease = create(&owner, 1).await;
    let visitor = Visitor::open(kit.options("v")).await.unwrap();
    visitor.post(id(1), "cancel", "{}".to_owned()).await.unwrap();
    let heard = owner.inbox_next().await.unwrap();
    assert_eq!(heard.iter().map(|message| (message.session, message.kind.as_str())).collect::<Vec<_>>(), [(id(1), "cancel")]);
    let large = visitor.post(id(1), "cancel", "x".repeat(ambit_store::MESSAGE_BYTES_MAX + 1)).await;
    assert!(matches!(large, Err(StoreError::TooLarge { .. })));
    assert!(matches!(visitor.post(id(9), "cancel", "{}".to_owned()).await, Err(StoreError::NotFound { .. })));
    for _ in 1..ambit_store::INBOX_MAX {
        visitor.post(id(1), "cancel", "{}".to_owned()).await.unwrap();
    }
    assert!(matches!(visitor.post(id(1), "cancel", "{}".to_owned()).await, Err(StoreError::InboxFull { .. })));
    owner.append(&lease, row(RowUpdate { ..closing() }), Need::Applied).await.unwrap();
    assert!(matches!(visitor.post(id(1), "cancel", "{}".to_owned()).await, Err(StoreError::SessionClosed { .. })));
}

#[tokio::test]
async fn a_locked_database_is_said_to_be_so() {
    let kit = Kit::new();
    kit.open("a").await.close().await.unwrap();
    let mut options = kit.options("v");
    options.busy = std::time::Duration::from_millis(50);
    let visitor = Visitor::open(options).await.unwrap();
    let mut stranger = kit.stranger().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut stranger).await.unwrap();
    assert!(matches!(visitor.try_write().await, Err(StoreError::Busy(_))));
    sqlx::raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    visitor.try_write().await.unwrap();
    stranger.close().await.unwrap();
}

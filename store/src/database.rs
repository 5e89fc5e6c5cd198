//! Opening the file: the writer's connection, the readers, the schema.
//!
//! Several processes on one file are normal. Whatever cannot wait for a lock inside SQLite (switching a new file to
//! WAL) is tried again here, for as long as any other wait for the lock may take.

use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqlStr, SqliteConnection};
use tokio::time::Instant;

use crate::error::StoreError;
use crate::group;
use crate::options::StoreOptions;

/// Pages of the write-ahead log after which a commit copies them into the database: 16 MiB. A page that many commits
/// touch is then copied once, and the two syncs of a copy are rare.
const CHECKPOINT_PAGES: &str = "4096";
/// Size to which the write-ahead log is cut after it had to grow, in bytes: 64 MiB.
const WAL_BYTES_KEPT: &str = "67108864";
/// Page cache of a writer, in KiB (negative, as SQLite wants it).
const WRITER_CACHE: &str = "-16384";
/// Pause between two tries to open.
const RETRY: Duration = Duration::from_millis(20);

/// How the writer connects. It begins with what `Applied` needs.
pub(crate) fn writer_options(options: &StoreOptions) -> SqliteConnectOptions {
    let connect = SqliteConnectOptions::new()
        .filename(&options.path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(options.busy)
        .foreign_keys(false)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", WAL_BYTES_KEPT)
        .pragma("cache_size", WRITER_CACHE)
        // What is deleted is overwritten, not left in free pages: deleting is rare, and a text that has gone has gone.
        .pragma("secure_delete", "ON")
        .thread_name(|_| "ambit-store".to_owned())
        .disable_statement_logging();
    match options.pages_max {
        Some(pages) => connect.pragma("max_page_count", pages.to_string()),
        None => connect,
    }
}

/// The readers; they connect when they are first needed.
pub(crate) fn readers(options: &StoreOptions) -> SqlitePool {
    let connect = SqliteConnectOptions::new()
        .filename(&options.path)
        .read_only(true)
        .busy_timeout(options.busy)
        .foreign_keys(false)
        .thread_name(|_| "ambit-store-read".to_owned())
        .disable_statement_logging();
    SqlitePoolOptions::new()
        .max_connections(options.readers.get())
        .acquire_timeout(options.busy)
        // A connection to a local file does not go stale.
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(connect)
}

/// Connects, and brings the schema up to date.
pub(crate) async fn open(options: &StoreOptions) -> Result<SqliteConnection, StoreError> {
    make_private(&options.path).await;
    let connect = writer_options(options);
    let give_up = Instant::now() + options.busy;
    loop {
        match try_open(&connect).await {
            Err(error) if error.is_busy() && Instant::now() < give_up => tokio::time::sleep(RETRY).await,
            opened => return opened,
        }
    }
}

/// Makes the file so that only its owner reads it: prompts and answers stand in it. SQLite gives the files beside it the
/// same rights. Whatever goes wrong here goes wrong again in SQLite, which has better words for it.
async fn make_private(path: &Path) {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    let _ = options.open(path).await;
}

async fn try_open(options: &SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
    let mut connection = options.connect().await?;
    migrate(&mut connection).await?;
    group::prepare(&mut connection).await?;
    Ok(connection)
}

/// Connects the writer again to a database whose schema is known.
pub(crate) async fn connect(options: &SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
    let mut connection = options.connect().await?;
    group::prepare(&mut connection).await?;
    Ok(connection)
}

/// Applies what is missing, under the write lock, so that of several processes one does it and the others find it done.
async fn migrate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    run(&mut transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// All migrations of this release.
pub(crate) fn migrator() -> Migrator {
    // One line a file of `migrations/`; a file that was released is never changed.
    let migrations = [
        (1, "journal", include_str!("../migrations/0001_journal.sql")),
        (2, "idempotency", include_str!("../migrations/0002_idempotency.sql")),
        (3, "forgetting", include_str!("../migrations/0003_forgetting.sql")),
    ];
    Migrator::with_migrations(
        migrations
            .into_iter()
            .map(|(version, name, sql)| Migration::new(version, name.into(), MigrationType::Simple, SqlStr::from_static(sql), false))
            .collect(),
    )
}

async fn run(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that may grow: what it adds is our mistake until it has a name")]
    let sort = |error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error.into(),
        MigrateError::VersionMissing(version) | MigrateError::VersionMismatch(version) | MigrateError::Dirty(version) => {
            StoreError::Schema { version }
        }
        other => sqlx::Error::Migrate(Box::new(other)).into(),
    };
    migrator().run_direct(None, connection, false).await.map_err(sort)
}

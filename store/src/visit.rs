//! Visiting a database that is there: reading it beside the processes that write it, leaving a message, examining it.
//!
//! **Invariant:** a visitor makes no database, migrates nothing, registers no node and takes nothing over. Whoever looks at
//! the sessions of others must not become one of their owners.

use std::sync::{Arc, Mutex};

use ambit_core::SessionId;
use sqlx::sqlite::SqlitePool;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::sync::watch;

use crate::error::StoreError;
use crate::follow::Followers;
use crate::inbox::{self, Inbox, MESSAGE_BYTES_MAX};
use crate::options::StoreOptions;
use crate::queue::Queue;
use crate::{Counters, Inner, Store, database};

/// Somebody who looks at a database without taking part in it.
#[derive(Debug)]
pub struct Visitor {
    store: Store,
    options: StoreOptions,
    schema: i64,
}

impl Visitor {
    /// Opens a database that is there.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Outdated`] if an older release wrote it last,
    /// [`StoreError::Schema`] if a newer one did, and whatever the file has to say.
    pub async fn open(options: StoreOptions) -> Result<Self, StoreError> {
        options.check()?;
        let missing = || StoreError::Missing { path: options.path.clone() };
        if matches!(tokio::fs::try_exists(&options.path).await, Ok(false)) {
            return Err(missing());
        }
        let readers = database::readers(&options);
        let Some(schema) = schema(&readers).await? else { return Err(missing()) };
        let known = database::migrator().iter().map(|migration| migration.version).max().unwrap_or_default();
        if schema > known {
            return Err(StoreError::Schema { version: schema });
        }
        if schema < known {
            return Err(StoreError::Outdated { version: schema, known });
        }
        Ok(Self { store: reading(&options, readers), options, schema })
    }

    /// The store, to read from: whatever would write is answered [`StoreError::Closed`].
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Version of the schema.
    #[must_use]
    pub const fn schema(&self) -> i64 {
        self.schema
    }

    /// Leaves a message for a session, over a connection of its own; it survives a crash of every process.
    ///
    /// # Errors
    /// As [`Store::inbox_put`].
    pub async fn post(&self, session: SessionId, kind: &'static str, body: String) -> Result<(), StoreError> {
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(StoreError::TooLarge { bytes: body.len() });
        }
        let mut connection = self.connect().await?;
        let put = inbox::put(&mut connection, session, kind, body, self.options.clock.now_ms()).await;
        connection.close().await?;
        put?
    }

    /// Takes the lock for writing and gives it back: nothing is changed.
    ///
    /// # Errors
    /// What keeps this process from writing.
    pub async fn try_write(&self) -> Result<(), StoreError> {
        let mut connection = self.connect().await?;
        sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    /// Closes the readers; followers end.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub async fn close(self) -> Result<(), StoreError> {
        self.store.close().await
    }

    async fn connect(&self) -> Result<SqliteConnection, StoreError> {
        Ok(database::writer_options(&self.options).create_if_missing(false).connect().await?)
    }
}

/// The newest migration that was applied; `None` for a file in which there is nothing of ours yet.
async fn schema(readers: &SqlitePool) -> Result<Option<i64>, StoreError> {
    const MADE: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations'";
    const NEWEST: &str = "SELECT max(version) FROM _sqlx_migrations";
    let made: i64 = sqlx::query_scalar(MADE).fetch_one(readers).await?;
    if made == 0 {
        return Ok(None);
    }
    Ok(sqlx::query_scalar(NEWEST).fetch_one(readers).await?)
}

/// A store whose writer is gone from the beginning.
fn reading(options: &StoreOptions, readers: SqlitePool) -> Store {
    let (queue, _) = Queue::new(1, options.busy);
    let (stop, _) = watch::channel(false);
    let (_, done) = watch::channel(true);
    let inner = Inner {
        queue,
        readers,
        followers: Arc::new(Followers::default()),
        inbox: Inbox::new(),
        counters: Arc::new(Counters::default()),
        node: Arc::clone(&options.node),
        poll: options.poll,
        drain: options.drain,
        observer: Arc::clone(&options.observer),
        stop,
        done,
        writer: Mutex::new(None),
    };
    Store { inner: Arc::new(inner) }
}

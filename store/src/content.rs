//! Texts, arguments and results, kept beside the journal so that they can be shortened or deleted without touching it.

use std::sync::Arc;

use ambit_core::{Digest, SessionId};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Store;
use crate::error::StoreError;
use crate::journal::Content;

impl Store {
    /// Reads one text of a session; `None` if it is not, or no longer, there.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn content(&self, session: SessionId, digest: Digest) -> Result<Option<Arc<str>>, StoreError> {
        const TEXT: &str = "SELECT text FROM content WHERE session = $1 AND digest = $2";
        let query = sqlx::query(TEXT).bind(session.ulid().to_owned()).bind(digest.0.to_vec());
        self.inner.read(query.try_map(|row: SqliteRow| Ok(row.try_get::<&str, _>(0)?.into())).fetch_optional(&self.inner.readers)).await
    }

    /// Reads all texts of a session, for rebuilding it: as much as its limits let it write.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn contents(&self, session: SessionId) -> Result<Vec<Content>, StoreError> {
        const TEXTS: &str = "SELECT digest, text FROM content WHERE session = $1";
        let query = sqlx::query(TEXTS).bind(session.ulid().to_owned());
        self.inner.read(query.try_map(content).fetch_all(&self.inner.readers)).await
    }
}

fn content(row: SqliteRow) -> Result<Content, sqlx::Error> {
    let digest = row.try_get::<&[u8], _>(0)?.try_into().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    Ok(Content { digest: Digest(digest), text: row.try_get::<&str, _>(1)?.into() })
}

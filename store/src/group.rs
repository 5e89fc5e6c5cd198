//! One group of appends as one statement, whatever their number: all of it or nothing.
//!
//! Small columns travel as JSON rows. Bodies and texts stand beside them in one run of bytes and are cut out by place
//! and length, so that nothing of them is escaped or parsed. What is done with them stands in `sql/append_group.sql`.

use std::borrow::Cow;
use std::collections::HashMap;

use ambit_core::SessionId;
use serde::Serialize;
use sqlx::SqliteConnection;

use crate::idempotency::{KeyFate, NewKey};
use crate::journal::{Content, Record, signed};
use crate::lease::Claim;
use crate::queue::Queued;
use crate::session::{NewRow, RowUpdate};

/// Bytes of a digest.
pub(crate) const DIGEST_BYTES: usize = 32;

/// Prepares a connection for [`commit`].
pub(crate) async fn prepare(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(include_str!("../sql/append_group.sql")).execute(connection).await?;
    Ok(())
}

/// Commits a group. Says for each append, in order, whether it was written: one that comes after the release of its own
/// session is left out.
///
/// # Errors
/// Nothing is written then. A stale lease and a taken place are constraints; see [`Constraint`](crate::error::Constraint).
pub(crate) async fn commit(connection: &mut SqliteConnection, node: &str, group: &[Queued]) -> Result<Vec<bool>, sqlx::Error> {
    const COMMIT: &str = "
        INSERT INTO append_group (node, bytes, creates, keys, leases, entries, contents, updates, heard)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let Encoded { written, bytes, creates, keys, leases, entries, contents, updates, heard } = encode(group)?;
    let query = sqlx::query(COMMIT)
        .bind(node.to_owned())
        .bind(bytes)
        .bind(creates)
        .bind(keys)
        .bind(leases)
        .bind(entries)
        .bind(contents)
        .bind(updates)
        .bind(heard);
    query.execute(connection).await?;
    Ok(written)
}

/// A group in the form that the statement reads.
struct Encoded {
    /// For each append whether it is in here.
    written: Vec<bool>,
    bytes: Vec<u8>,
    creates: String,
    keys: String,
    leases: String,
    entries: String,
    contents: String,
    updates: String,
    heard: String,
}

fn encode(group: &[Queued]) -> Result<Encoded, sqlx::Error> {
    let mut leases: Vec<(&str, i64)> = Vec::with_capacity(group.len());
    let mut updates: Vec<Option<Cow<'_, RowUpdate>>> = Vec::with_capacity(group.len());
    let mut known: HashMap<&Claim, usize> = HashMap::with_capacity(group.len());
    let mut written = Vec::with_capacity(group.len());
    let mut bytes = Bytes(Vec::with_capacity(group.iter().map(|q| q.append.bytes()).sum()));
    let (mut creates, mut keys, mut entries, mut contents, mut heard) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());

    for Queued { lease, create, append, .. } in group {
        let session = lease.session.ulid();
        let place = *known.entry(lease).or_insert_with(|| {
            leases.push((session, signed(lease.epoch)));
            updates.push(None);
            leases.len() - 1
        });
        let update = &mut updates[place];
        let released = update.as_ref().is_some_and(|update| update.release);
        written.push(!released);
        if released {
            continue;
        }
        if let Some(row) = create {
            let NewRow { agent, tenant, principal, previous, status, created_ms, deadline_ms, metadata, texts, key } = &**row;
            let previous = previous.as_ref().map(SessionId::ulid);
            let (created, deadline) = (signed(*created_ms), signed(*deadline_ms));
            creates.push((session, agent, tenant, principal, previous, status, created, deadline, metadata, texts.as_str()));
            if let Some(NewKey { name, hash }) = key {
                let (hash, _) = bytes.put(&hash.0);
                keys.push((session, &name.tenant, name.kind.as_str(), &name.scope, &name.key, hash, created, deadline));
            }
        }
        for Record { seq, kind, at_ms, body, fingerprint } in &append.records {
            let (begin, length) = bytes.put(body.as_bytes());
            entries.push((session, signed(*seq), kind.as_str(), signed(*at_ms), signed(*fingerprint), begin, length));
        }
        for Content { digest, text } in &append.contents {
            let (begin, _) = bytes.put(&digest.0);
            let (_, length) = bytes.put(text.as_bytes());
            contents.push((session, begin, length));
        }
        heard.extend(append.heard.iter().map(|message| message.0));
        if let Some(later) = &append.row {
            match update {
                None => *update = Some(Cow::Borrowed(later)),
                Some(earlier) => earlier.to_mut().merge(later),
            }
        }
    }

    let mut rows = Vec::new();
    for ((session, _), update) in leases.iter().zip(&updates) {
        let Some(update) = update else { continue };
        let RowUpdate { status, reason, settlement, deadline_ms, verdict_ms, closed_ms, summary, release, key } = &**update;
        let (begin, length) = summary.as_ref().map(|text| bytes.put(text.as_bytes())).unzip();
        let times = [deadline_ms, verdict_ms, closed_ms].map(|ms| ms.map(signed));
        let (fate, end) = key.map(KeyFate::columns).unzip();
        rows.push((session, status, reason, settlement, times[0], times[1], times[2], begin, length, release, fate, end.flatten()));
    }

    Ok(Encoded {
        creates: json(&creates)?,
        keys: json(&keys)?,
        leases: json(&leases)?,
        entries: json(&entries)?,
        contents: json(&contents)?,
        updates: json(&rows)?,
        heard: json(&heard)?,
        bytes: bytes.0,
        written,
    })
}

/// Bodies and texts, one behind the other.
struct Bytes(Vec<u8>);

impl Bytes {
    /// Puts a piece at the end; says where it begins, counted from 1 as `substr` does, and how long it is.
    fn put(&mut self, piece: &[u8]) -> (usize, usize) {
        let start = self.0.len() + 1;
        self.0.extend_from_slice(piece);
        (start, piece.len())
    }
}

fn json(rows: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(rows).map_err(|e| sqlx::Error::Encode(Box::new(e)))
}

//! One group of appends as one script: six statements whatever their number, all of it or nothing.
//!
//! Small columns travel as JSON rows. Bodies and texts stand beside them in one run of bytes and are cut out by place
//! and length, so that nothing of them is escaped or parsed.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;
use sqlx::{Row as _, SqliteConnection};

use crate::journal::{Content, signed};
use crate::lease::Claim;
use crate::queue::Queued;
use crate::session::{NewRow, RowUpdate, signed_maybe};

/// Bytes of a digest.
pub(crate) const DIGEST_BYTES: usize = 32;

/// Commits a group. Says for each append, in order, whether its lease was current; what was not is not written.
///
/// On an error nothing is written; the caller has to roll back.
pub(crate) async fn commit(connection: &mut SqliteConnection, node: &str, group: &[Queued]) -> Result<Vec<bool>, sqlx::Error> {
    const GROUP: &str = include_str!("../sql/group.sql");
    let Encoded { leases, places, script } = encode(group)?;
    let query = sqlx::query(GROUP)
        .bind(node.to_owned())
        .bind(script.bytes)
        .bind(script.creates)
        .bind(script.leases)
        .bind(script.entries)
        .bind(script.contents)
        .bind(script.rows)
        .bind(script.heard);
    let mut current = vec![true; leases];
    for row in query.fetch_all(connection).await? {
        if let Some(lease) = usize::try_from(row.try_get::<i64, _>(0)?).ok().and_then(|stale| current.get_mut(stale)) {
            *lease = false;
        }
    }
    Ok(places.into_iter().map(|place| place.is_some_and(|lease| current.get(lease).copied().unwrap_or(false))).collect())
}

/// A group in the form that the script reads.
struct Encoded {
    /// How many different leases it names.
    leases: usize,
    /// For each append its lease; `None` where an earlier append of the group released it.
    places: Vec<Option<usize>>,
    script: Script,
}

/// The parameters of the script.
struct Script {
    bytes: Vec<u8>,
    creates: String,
    leases: String,
    entries: String,
    contents: String,
    rows: String,
    heard: String,
}

fn encode(group: &[Queued]) -> Result<Encoded, sqlx::Error> {
    let mut claims: Vec<&Claim> = Vec::with_capacity(group.len());
    let mut updates: Vec<Option<Cow<'_, RowUpdate>>> = Vec::with_capacity(group.len());
    let mut known: HashMap<&Claim, usize> = HashMap::with_capacity(group.len());
    let mut places = Vec::with_capacity(group.len());
    let mut bytes = Bytes(Vec::with_capacity(group.iter().map(|q| q.append.bytes()).sum()));
    let (mut creates, mut entries, mut contents, mut heard) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());

    for Queued { lease, create, append, .. } in group {
        let (session, epoch) = (lease.session.ulid(), signed(lease.epoch));
        let place = *known.entry(lease).or_insert_with(|| {
            claims.push(lease);
            updates.push(None);
            claims.len() - 1
        });
        let update = &mut updates[place];
        if update.as_ref().is_some_and(|update| update.release) {
            places.push(None);
            continue;
        }
        places.push(Some(place));
        if let Some(row) = create {
            let NewRow { agent, tenant, principal, previous, status, created_ms, deadline_ms, metadata } = &**row;
            let previous = previous.as_ref().map(ambit_core::SessionId::ulid);
            creates.push((session, agent, tenant, principal, previous, status, signed(*created_ms), signed(*deadline_ms), metadata));
        }
        for record in &append.records {
            let (start, length) = bytes.put(record.body.as_bytes());
            let (seq, at_ms, fingerprint) = (signed(record.seq), signed(record.at_ms), signed(record.fingerprint));
            entries.push((session, epoch, seq, record.kind.as_str(), at_ms, fingerprint, start, length));
        }
        for Content { digest, text } in &append.contents {
            let (start, _) = bytes.put(&digest.0);
            let (_, length) = bytes.put(text.as_bytes());
            contents.push((session, epoch, start, length));
        }
        heard.extend(append.heard.iter().map(|message| (session, epoch, message.0)));
        if let Some(later) = &append.row {
            match update {
                None => *update = Some(Cow::Borrowed(later)),
                Some(earlier) => earlier.to_mut().merge(later),
            }
        }
    }

    let rows: Vec<_> = claims
        .iter()
        .zip(&updates)
        .filter_map(|(claim, update)| {
            let RowUpdate { status, reason, settlement, deadline_ms, verdict_ms, closed_ms, summary, release } = &**update.as_ref()?;
            let summary = summary.as_ref().map(|text| bytes.put(text.as_bytes())).unzip();
            let times = (signed_maybe(*deadline_ms), signed_maybe(*verdict_ms), signed_maybe(*closed_ms));
            let (session, epoch) = (claim.session.ulid(), signed(claim.epoch));
            Some((session, epoch, status, reason, settlement, times.0, times.1, times.2, summary.0, summary.1, release))
        })
        .collect();
    let leases: Vec<_> = claims.iter().map(|claim| (claim.session.ulid(), signed(claim.epoch))).collect();

    let script = Script {
        creates: json(&creates)?,
        leases: json(&leases)?,
        entries: json(&entries)?,
        contents: json(&contents)?,
        rows: json(&rows)?,
        heard: json(&heard)?,
        bytes: bytes.0,
    };
    Ok(Encoded { leases: leases.len(), places, script })
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

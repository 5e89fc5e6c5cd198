//! What has to go some time later: idempotency keys whose time is over, and the texts of sessions that are to be forgotten.

use std::num::NonZeroU32;
use std::time::Duration;

use ambit_store::{Store, StoreError};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::clock::wall_ms;
use crate::driver::local::chain as causes;

/// How often it is looked for.
const EVERY: Duration = Duration::from_secs(30);
/// Pause between two rows of transactions while there is more: appends get their turn, and the rest does not grow.
const BREATH: Duration = Duration::from_millis(100);
/// How long the texts of a closed session stay for those who still read its stream.
const READING_TIME: Duration = Duration::from_secs(30);
/// Most keys deleted in one transaction: about as long as one group of appends.
const KEYS_BATCH: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);
/// Most sessions whose texts are deleted in one transaction; a text may be large.
const TEXTS_BATCH: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);
/// Most transactions in a row; the rest goes after a [`BREATH`].
const BATCHES_MAX: u32 = 64;

/// Sweeps until `stop`.
///
/// # Cancel safety
/// Each batch is a transaction of its own.
pub(crate) async fn keep_house(store: Store, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let more = sweep(&store, &stop).await.unwrap_or_else(|failed| {
            warn!(error = %causes(&failed), "what is over cannot be swept; it is tried again");
            false
        });
        tokio::select! {
            () = sleep(if more { BREATH } else { EVERY }) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// True if there is more to sweep than was swept.
async fn sweep(store: &Store, stop: &CancellationToken) -> Result<bool, StoreError> {
    let closed_ms = wall_ms().saturating_sub(u64::try_from(READING_TIME.as_millis()).unwrap_or(u64::MAX));
    for _ in 0..BATCHES_MAX {
        let (keys, texts) = (store.sweep_keys(KEYS_BATCH).await?, store.sweep_texts(closed_ms, TEXTS_BATCH).await?);
        let full = keys >= KEYS_BATCH.get().into() || texts >= TEXTS_BATCH.get().into();
        if !full || stop.is_cancelled() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use ambit_core::SessionId;
    use ambit_store::{Append, Clock, Need, NewSession, Record, RecordKind, RowUpdate, StoreOptions, TextFate};

    use super::*;

    async fn closed(store: &Store, id: SessionId, ago: Duration) {
        let started = Record { seq: 1, kind: RecordKind::Event, at_ms: 0, body: "{}".to_owned(), fingerprint: 0 };
        let session = NewSession {
            id,
            agent: "a".into(),
            tenant: "t".into(),
            principal: "p".into(),
            previous: None,
            status: "completed",
            created_ms: 0,
            deadline_ms: 0,
            metadata: "{}".to_owned(),
            started,
            contents: Vec::new(),
            forget: true,
            key: None,
        };
        let lease = store.create(session, Need::Applied).await.unwrap();
        let closed_ms = wall_ms() - u64::try_from(ago.as_millis()).unwrap();
        let row = RowUpdate { closed_ms: Some(closed_ms), release: true, ..RowUpdate::default() };
        store.append(&lease, Append { row: Some(row), ..Append::default() }, Need::Applied).await.unwrap();
    }

    #[tokio::test]
    async fn texts_go_once_their_readers_had_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::new(folder.path().join("a.db"), "a", Clock::system())).await.unwrap();
        let [old, young]: [SessionId; 2] =
            ["ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T", "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8V"].map(|id| id.parse().unwrap());
        closed(&store, old, READING_TIME).await;
        closed(&store, young, Duration::ZERO).await;
        let fate = async |id| store.session(id).await.unwrap().unwrap().texts;
        let stop = CancellationToken::new();
        let swept = async {
            while fate(old).await != TextFate::Gone {
                tokio::task::yield_now().await;
            }
            stop.cancel();
        };
        let both = async { tokio::join!(keep_house(store.clone(), stop.clone()), swept) };
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("nothing is swept");
        assert_eq!(fate(young).await, TextFate::ToGo);
    }
}

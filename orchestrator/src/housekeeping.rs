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
/// How long the texts of a closed session stay for those who still read its stream.
const READING_TIME: Duration = Duration::from_secs(30);
/// Most keys deleted in one transaction: about as long as one group of appends.
const KEYS_BATCH: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);
/// Most sessions whose texts are deleted in one transaction; a text may be large.
const TEXTS_BATCH: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);
/// Most transactions in a row; the rest goes with the next look, so that appends get their turn.
const BATCHES_MAX: u32 = 64;

/// Sweeps until `stop`.
///
/// # Cancel safety
/// Each batch is a transaction of its own.
pub(crate) async fn keep_house(store: Store, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(failed) = sweep(&store, &stop).await {
            warn!(error = %causes(&failed), "what is over cannot be swept; it is tried again");
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            () = stop.cancelled() => {}
        }
    }
}

async fn sweep(store: &Store, stop: &CancellationToken) -> Result<(), StoreError> {
    let closed_ms = wall_ms().saturating_sub(u64::try_from(READING_TIME.as_millis()).unwrap_or(u64::MAX));
    for _ in 0..BATCHES_MAX {
        let (keys, texts) = (store.sweep_keys(KEYS_BATCH).await?, store.sweep_texts(closed_ms, TEXTS_BATCH).await?);
        let full = keys >= KEYS_BATCH.get().into() || texts >= TEXTS_BATCH.get().into();
        if !full || stop.is_cancelled() {
            break;
        }
    }
    Ok(())
}

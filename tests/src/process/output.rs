//! What a child writes: read at once so that its pipe never fills, kept up to a bound, waited on.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Most bytes kept of one stream; what comes later is read and dropped.
const KEPT_MAX: usize = 4 * 1024 * 1024;

/// One captured stream. Dropping it stops reading.
#[derive(Debug)]
pub(crate) struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Whether the stream has ended; touched at every piece.
    ended: watch::Receiver<bool>,
    reader: JoinHandle<()>,
}

impl Output {
    pub(crate) fn of(mut stream: impl AsyncRead + Unpin + Send + 'static) -> Output {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (ended, seen) = watch::channel(false);
        let reader = tokio::spawn({
            let kept = Arc::clone(&kept);
            async move {
                let mut piece = [0; 8 * 1024];
                while let Ok(n @ 1..) = stream.read(&mut piece).await {
                    let mut all = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = KEPT_MAX.saturating_sub(all.len());
                    all.extend_from_slice(&piece[..n.min(room)]);
                    drop(all);
                    ended.send_replace(false);
                }
                ended.send_replace(true);
            }
        });
        Output { kept, ended: seen, reader }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits until `found` finds something in the text; `None` when the stream ends before.
    pub(crate) async fn wait_for<T>(&self, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut changes = self.ended.clone();
        loop {
            let ended = *changes.borrow_and_update();
            if let Some(value) = found(&self.text()) {
                return Some(value);
            }
            if ended || changes.changed().await.is_err() {
                return found(&self.text());
            }
        }
    }

    /// Waits until the stream has ended.
    pub(crate) async fn closed(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

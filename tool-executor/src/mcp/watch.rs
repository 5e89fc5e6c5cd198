//! Sees which answers come from a server, so that it can be told whether it reacted to a cancellation.
//!
//! Once a request is cancelled, the client library drops its answer unseen. Whether there was one is the only sign
//! from outside that a server still minds the call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::oneshot;

/// Most cancelled calls that are watched at a time; more are taken for unanswered.
const WATCHED_MAX: usize = 64;

/// The cancelled calls whose answers are still waited for.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<BTreeMap<String, oneshot::Sender<()>>>);

impl Late {
    /// Resolves when an answer to this request comes; with an error if that is not watched any more.
    pub(crate) fn watch(&self, id: &RequestId) -> oneshot::Receiver<()> {
        let (told, heard) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, told| !told.is_closed());
        if waiting.len() < WATCHED_MAX {
            waiting.insert(id.to_string(), told);
        }
        heard
    }

    fn answered(&self, id: &RequestId) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            return;
        }
        if let Some(told) = waiting.remove(&id.to_string()) {
            // Nobody may be waiting any more.
            let _ = told.send(());
        }
    }
}

/// A transport that tells [`Late`] about answers.
pub(crate) struct Watched<T> {
    inner: T,
    late: Arc<Late>,
}

impl<T> Watched<T> {
    pub(crate) const fn new(inner: T, late: Arc<Late>) -> Self {
        Self { inner, late }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Response(response) => self.late.answered(&response.id),
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    self.late.answered(id);
                }
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

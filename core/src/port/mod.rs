//! Ports: what one crate needs of another that it may not import. Object-safe, with boxed std futures.

use std::future::Future;
use std::pin::Pin;

/// A future that a port returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Says that a call that is no read is about to leave, and waits until that fact is durable.
///
/// The executor asks once a call, directly before its first request; the driver journals `Dispatched`.
pub trait BeforeSend: Send + Sync {
    /// Resolves to `true` once the fact is durable; `false` means that the call must not be sent any more.
    fn before_send(&self) -> BoxFuture<'_, bool>;
}

/// Where the text of a model's answer goes while it arrives.
///
/// A piece passed on is a promise: nothing of this turn may be repeated afterwards.
pub trait TextSink: Send + Sync {
    /// Takes one piece of text, in order. Never blocks.
    fn text(&self, piece: &str);
}

//! The way to the writer: one bounded queue, in the order of the calls.
//!
//! Two appends of one session never change places, whatever the queue does: while one of them waits for room, nothing
//! else of that session is put past it. Followers rely on it.

use std::sync::Arc;
use std::time::Duration;

use ambit_core::SessionId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::error::StoreError;
use crate::journal::{Append, Need};
use crate::lease::{Claim, Lease, Waiting};
use crate::session::NewRow;

/// One append on its way, with its session where it is the first.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) lease: Claim,
    pub(crate) create: Option<Box<NewRow>>,
    pub(crate) append: Append,
    pub(crate) need: Need,
    /// Who waits; nobody for a note.
    pub(crate) ack: Option<oneshot::Sender<Result<(), StoreError>>>,
}

/// What the writer does beside appends, rarely enough for a transaction of its own.
#[derive(Debug)]
pub(crate) enum Op {
    TakeOver { limit: u32, ack: oneshot::Sender<Result<Vec<Lease>, StoreError>> },
    Delete { session: SessionId, ack: oneshot::Sender<Result<bool, StoreError>> },
    SweepKeys { limit: u32, ack: oneshot::Sender<Result<u64, StoreError>> },
    SweepTexts { closed_ms: u64, limit: u32, ack: oneshot::Sender<Result<u64, StoreError>> },
    InboxPut { session: SessionId, kind: &'static str, body: String, need: Need, ack: oneshot::Sender<Result<(), StoreError>> },
}

#[derive(Debug)]
pub(crate) enum Request {
    Append(Box<Queued>),
    Op(Op),
}

/// Why a request was not queued at once.
pub(crate) enum Refusal {
    /// It may wait for room.
    NoRoom(Box<Parked>),
    /// It will never be.
    Final(StoreError),
}

/// A request that has yet to find room, and holds back what comes after it.
pub(crate) struct Parked {
    request: Request,
    _waiting: Waiting,
}

/// The sending end.
#[derive(Clone)]
pub(crate) struct Queue {
    sender: mpsc::Sender<Request>,
    /// Longest wait for room.
    wait: Duration,
}

impl Queue {
    pub(crate) fn new(capacity: usize, wait: Duration) -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self { sender, wait }, receiver)
    }

    /// Requests that the writer has not taken yet.
    pub(crate) fn len(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Queues an append at once, or says why not.
    pub(crate) fn put(&self, lease: &Lease, queued: Queued) -> Result<(), Refusal> {
        let request = Request::Append(Box::new(queued));
        let park = |request| Refusal::NoRoom(Box::new(Parked { request, _waiting: Arc::clone(&lease.flow).wait() }));
        if lease.flow.must_not_overtake() {
            return Err(park(request));
        }
        self.sender.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(request) => park(request),
            mpsc::error::TrySendError::Closed(_) => Refusal::Final(StoreError::Closed),
        })
    }

    /// Waits for room; the queue serves those who wait in the order in which they came.
    pub(crate) async fn wait(&self, parked: Parked) -> Result<(), StoreError> {
        self.put_op(parked.request).await
    }

    /// Queues an append, waiting for room where there is none.
    pub(crate) async fn put_or_wait(&self, lease: &Lease, queued: Queued) -> Result<(), StoreError> {
        match self.put(lease, queued) {
            Ok(()) => Ok(()),
            Err(Refusal::Final(error)) => Err(error),
            Err(Refusal::NoRoom(parked)) => self.wait(*parked).await,
        }
    }

    /// Queues a request that keeps no order with others.
    pub(crate) async fn put_op(&self, request: Request) -> Result<(), StoreError> {
        let permit = timeout(self.wait, self.sender.reserve()).await.map_err(|_| StoreError::QueueFull)?;
        permit.map_err(|_| StoreError::Closed)?.send(request);
        Ok(())
    }

    /// Queues a note if half of the queue is free, so that notes never take the room of appends.
    pub(crate) fn put_note(&self, lease: &Lease, queued: Queued) -> bool {
        self.len() < self.sender.max_capacity().div_ceil(2)
            && !lease.flow.must_not_overtake()
            && self.sender.try_send(Request::Append(Box::new(queued))).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        Lease::new("ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap(), 1, 0)
    }

    fn queued(lease: &Lease) -> Queued {
        Queued { lease: lease.claim(), create: None, append: Append::default(), need: Need::Applied, ack: None }
    }

    #[tokio::test]
    async fn notes_leave_half_of_the_queue_to_appends() {
        let (queue, _writer) = Queue::new(4, Duration::ZERO);
        let lease = lease();
        assert_eq!((0..3).map(|_| queue.put_note(&lease, queued(&lease))).collect::<Vec<_>>(), [true, true, false]);
        assert!(queue.put(&lease, queued(&lease)).is_ok());
        assert_eq!(queue.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_append_waits_for_room_as_long_as_it_may_and_holds_its_session_back() {
        let (queue, mut writer) = Queue::new(1, Duration::from_secs(5));
        let (one, other) = (lease(), Lease::new("ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8V".parse().unwrap(), 1, 0));
        assert!(queue.put(&one, queued(&one)).is_ok());
        let Err(Refusal::NoRoom(parked)) = queue.put(&one, queued(&one)) else { panic!("there was room") };
        assert!(writer.recv().await.is_some());
        // There is room again, but not for those who would overtake.
        assert!(!queue.put_note(&one, queued(&one)));
        assert!(matches!(queue.put(&one, queued(&one)), Err(Refusal::NoRoom(_))));
        assert!(queue.put_note(&other, queued(&other)));

        let began = tokio::time::Instant::now();
        assert!(matches!(queue.wait(*parked).await, Err(StoreError::QueueFull)));
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        assert!(writer.recv().await.is_some());
        assert!(queue.put(&one, queued(&one)).is_ok());
    }

    #[tokio::test]
    async fn a_closed_queue_says_so() {
        let (queue, writer) = Queue::new(1, Duration::from_secs(5));
        drop(writer);
        let lease = lease();
        assert!(matches!(queue.put(&lease, queued(&lease)), Err(Refusal::Final(StoreError::Closed))));
        assert!(matches!(queue.put_or_wait(&lease, queued(&lease)).await, Err(StoreError::Closed)));
        assert!(!queue.put_note(&lease, queued(&lease)));
    }
}

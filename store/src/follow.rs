//! Following a session as it grows: every record once, in order, none lost.
//!
//! What this process commits arrives at once, through a bounded channel a session. What other processes commit, and
//! what a slow follower missed, is read from the table: a follower is either *live*, taking what the channel brings, or
//! *behind*, reading until there is nothing left. It subscribes before it first reads, and it goes back to the table
//! whenever the channel speaks under another epoch, since what lies between two owners may have been written elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ambit_core::SessionId;
use tokio::sync::broadcast;
use tokio::time::timeout;

use crate::Store;
use crate::error::StoreError;
use crate::journal::Record;

/// Commits that a follower may be behind before it has to read the table again.
const BACKLOG: usize = 64;
/// Records read in one go.
const PAGE: u32 = 256;
/// How many times longer than `poll` the pause may grow while nothing comes.
const POLL_GROWTH_MAX: u32 = 8;

/// What one commit brought for one session.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) epoch: u64,
    pub(crate) records: Arc<[Record]>,
    pub(crate) closed: bool,
}

/// Who follows what, in this process.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<HashMap<SessionId, broadcast::Sender<Published>>>);

impl Followers {
    fn channels(&self) -> MutexGuard<'_, HashMap<SessionId, broadcast::Sender<Published>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, session: SessionId) -> broadcast::Receiver<Published> {
        self.channels().entry(session).or_insert_with(|| broadcast::Sender::new(BACKLOG)).subscribe()
    }

    /// Lets go of a follower's end, and forgets the channel if it was the last. Both under the lock: of two that leave at
    /// one moment the later one finds nobody.
    fn leave(&self, session: SessionId, live: broadcast::Receiver<Published>) {
        let mut channels = self.channels();
        drop(live);
        if channels.get(&session).is_some_and(|channel| channel.receiver_count() == 0) {
            channels.remove(&session);
        }
    }

    /// Passes on what was committed, to sessions that somebody follows. `make` is not called for others.
    pub(crate) fn publish<'a, T: 'a>(&self, committed: impl Iterator<Item = (SessionId, T)>, make: impl Fn(T) -> Published) {
        let channels = self.channels();
        if channels.is_empty() {
            return;
        }
        for (session, what) in committed {
            if let Some(channel) = channels.get(&session) {
                // An error says that nobody listens any more.
                let _ = channel.send(make(what));
            }
        }
    }

    /// Tells every follower to look once more and then to end.
    pub(crate) fn end(&self) {
        self.channels().clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.channels().len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Behind,
    Live,
    Ended,
}

/// Follows one session; see [`Store::follow`].
pub struct Follower {
    store: Store,
    session: SessionId,
    /// The last place given out.
    after_seq: u64,
    live: broadcast::Receiver<Published>,
    /// Under which the channel last spoke.
    epoch: Option<u64>,
    state: State,
    pause: Duration,
}

impl Store {
    /// Follows a session from a place of its sequence on, whichever process writes it.
    pub fn follow(&self, session: SessionId, after_seq: u64) -> Follower {
        Follower {
            live: self.inner.followers.subscribe(session),
            store: self.clone(),
            session,
            after_seq,
            epoch: None,
            state: State::Behind,
            pause: self.inner.poll,
        }
    }
}

impl Follower {
    /// Waits for the next records: at least one, in order, each of them once. `None` once the session is closed and all
    /// of it was given out, if there is no such session, or once the store is closed.
    ///
    /// After an error the next call tries again.
    ///
    /// # Cancel safety
    /// Nothing is given out unless it is returned.
    pub async fn next(&mut self) -> Option<Result<Vec<Record>, StoreError>> {
        loop {
            let step = match self.state {
                State::Ended => return None,
                State::Behind => self.read().await,
                State::Live => Ok(self.listen().await),
            };
            match step {
                Ok(records) if records.is_empty() => {}
                Ok(records) => {
                    self.after_seq = records.last().map_or(self.after_seq, |record| record.seq);
                    return Some(Ok(records));
                }
                Err(StoreError::Closed) => self.state = State::Ended,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads what the table has more; nothing means that the follower has caught up, or that it has ended.
    async fn read(&mut self) -> Result<Vec<Record>, StoreError> {
        let records = self.store.entries(self.session, self.after_seq, PAGE).await?;
        if !records.is_empty() {
            self.pause = self.store.inner.poll;
            return Ok(records);
        }
        if self.store.session(self.session).await?.is_none_or(|row| row.closed_ms.is_some()) {
            // What was written between the two reads still has to come.
            let rest = self.store.entries(self.session, self.after_seq, PAGE).await?;
            if rest.is_empty() {
                self.state = State::Ended;
            }
            return Ok(rest);
        }
        self.state = State::Live;
        Ok(records)
    }

    /// Listens until a commit or the end of a pause; nothing means that the table has to be looked at.
    async fn listen(&mut self) -> Vec<Record> {
        match timeout(self.pause, self.live.recv()).await {
            Ok(Ok(Published { epoch, records, closed })) if self.epoch == Some(epoch) && !closed => {
                records.iter().filter(|record| record.seq > self.after_seq).cloned().collect()
            }
            Ok(Ok(Published { epoch, .. })) => {
                self.epoch = Some(epoch);
                self.state = State::Behind;
                Vec::new()
            }
            Ok(Err(broadcast::error::RecvError::Lagged(_) | broadcast::error::RecvError::Closed)) => {
                self.state = State::Behind;
                Vec::new()
            }
            Err(_) => {
                self.pause = (self.pause * 2).min(self.store.inner.poll * POLL_GROWTH_MAX);
                self.state = State::Behind;
                Vec::new()
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let nobody = broadcast::channel(1).1;
        self.store.inner.followers.leave(self.session, std::mem::replace(&mut self.live, nobody));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn two_who_leave_at_one_moment_leave_no_channel() {
        let (followers, barrier) = (Followers::default(), Barrier::new(2));
        let session: SessionId = "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap();
        for _ in 0..500 {
            let ends = [followers.subscribe(session), followers.subscribe(session)];
            std::thread::scope(|scope| {
                for end in ends {
                    scope.spawn(|| {
                        barrier.wait();
                        followers.leave(session, end);
                    });
                }
            });
            assert_eq!(followers.len(), 0);
        }
    }
}

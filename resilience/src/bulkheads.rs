//! The bulkheads of a gateway or an executor, by name, and how a successor goes on with them.
//!
//! **Invariant:** one name is one bulkhead for as long as anybody uses it, whatever was configured in between. Sessions that
//! began under former settings and those that begin now take their permits from the same pool, so that no dependency ever
//! sees more calls at once than the larger of two settings allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ambit_core::signal::SignalSink;

use crate::bulkhead::{Bulkhead, BulkheadOptions};

/// Bulkheads by name.
pub struct Bulkheads {
    state: Mutex<State>,
    sink: Arc<dyn SignalSink>,
}

struct State {
    open: BTreeMap<Arc<str>, (Bulkhead, BulkheadOptions)>,
    /// Those that nothing is configured for here: sessions that began before may still use them.
    left: BTreeMap<Arc<str>, Bulkhead>,
    /// False until the settings here are those in force.
    in_force: bool,
}

impl Bulkheads {
    /// None yet.
    #[must_use]
    pub fn new(sink: Arc<dyn SignalSink>) -> Self {
        let state = State { open: BTreeMap::new(), left: BTreeMap::new(), in_force: true };
        Self { state: Mutex::new(state), sink }
    }

    /// Those of a successor: whatever it opens by a name that is known here is the same bulkhead, in the size that it has
    /// until [`enforce`](Self::enforce).
    #[must_use]
    pub fn successor(&self) -> Self {
        let state = self.lock();
        let open = state.open.iter().map(|(name, (bulkhead, _))| (name, bulkhead));
        // One that only this list still knows is forgotten. A configured one has a user here, whom its count does not show.
        let before = state.left.iter().filter(|(_, bulkhead)| !bulkhead.is_forsaken());
        let left = before.chain(open).map(|(name, bulkhead)| (Arc::clone(name), bulkhead.clone())).collect();
        Self { state: Mutex::new(State { open: BTreeMap::new(), left, in_force: false }), sink: Arc::clone(&self.sink) }
    }

    /// The bulkhead of this name.
    #[must_use]
    pub fn open(&self, options: BulkheadOptions) -> Bulkhead {
        let mut state = self.lock();
        let name = Arc::clone(&options.pool);
        let known = state.left.remove(&name).or_else(|| state.open.get(&name).map(|(bulkhead, _)| bulkhead.clone()));
        let bulkhead = match known {
            Some(bulkhead) => {
                if state.in_force {
                    bulkhead.adjust(&options);
                }
                bulkhead
            }
            None => Bulkhead::new(options.clone(), Arc::clone(&self.sink)),
        };
        state.open.insert(name, (bulkhead.clone(), options));
        bulkhead
    }

    /// Gives every bulkhead the size that is configured here, and from now on those that are opened later, too.
    pub fn enforce(&self) {
        let mut state = self.lock();
        state.in_force = true;
        for (bulkhead, options) in state.open.values() {
            bulkhead.adjust(options);
        }
    }

    /// All that are configured, by name, and of the others those that are in use.
    #[must_use]
    pub fn all(&self) -> Vec<Bulkhead> {
        let state = self.lock();
        let left = state.left.values().filter(|bulkhead| !bulkhead.is_quiescent());
        state.open.values().map(|(bulkhead, _)| bulkhead).chain(left).cloned().collect()
    }

    /// True if no permit is out and nobody waits for one.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.all().iter().all(Bulkhead::is_quiescent)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Bulkheads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use ambit_core::signal::{DependencyKind, Silent, Subject};

    use super::*;

    fn options(pool: &str, permits: u32) -> BulkheadOptions {
        BulkheadOptions {
            pool: pool.into(),
            kind: DependencyKind::Model,
            permits: NonZeroU32::new(permits).unwrap(),
            queue: 0,
            fresh_wait: Duration::ZERO,
            continuing_wait: Duration::ZERO,
        }
    }

    fn seen(bulkheads: &Bulkheads) -> Vec<(String, u32, u32)> {
        bulkheads.all().iter().map(|pool| (pool.pool().to_string(), pool.in_use(), pool.permits())).collect()
    }

    #[test]
    fn a_successor_has_the_same_permits_and_its_sizes_once_they_are_in_force() {
        let first = Bulkheads::new(Arc::new(Silent));
        let permit = first.open(options("a", 2)).try_admit_fresh(Subject::default()).unwrap();
        let second = first.successor();
        let again = second.open(options("a", 4));
        assert!(permit.is_of(&again));
        assert_eq!(seen(&second), [("a".to_owned(), 1, 2)]);
        second.enforce();
        assert_eq!(seen(&second), [("a".to_owned(), 1, 4)]);
        // Opened after that, it is right at once.
        let third = second.successor();
        third.enforce();
        drop(third.open(options("a", 1)));
        assert_eq!(seen(&third), [("a".to_owned(), 1, 1)]);
    }

    #[test]
    fn a_successor_that_is_given_up_changes_nothing() {
        let first = Bulkheads::new(Arc::new(Silent));
        drop(first.open(options("a", 2)));
        let second = first.successor();
        drop((second.open(options("a", 9)), second.open(options("b", 1))));
        drop(second);
        assert_eq!(seen(&first), [("a".to_owned(), 0, 2)]);
    }

    #[test]
    fn what_is_configured_no_more_is_seen_while_it_is_used_and_comes_back_as_itself() {
        let first = Bulkheads::new(Arc::new(Silent));
        let user = first.open(options("a", 2));
        let second = first.successor();
        second.enforce();
        assert_eq!(seen(&second), []);
        // A session that began before calls again.
        let permit = user.try_admit_fresh(Subject::default()).unwrap();
        assert_eq!(seen(&second), [("a".to_owned(), 1, 2)]);
        assert!(!second.is_quiescent());
        let third = second.successor();
        assert!(permit.is_of(&third.open(options("a", 2))));
        drop((first, user, permit, third));
        // Nobody has it any more but the list.
        let fourth = second.successor();
        assert!(fourth.lock().left.is_empty());
    }
}

//! A call that succeeds at once asks the allocator for nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use ambit_core::signal::{Silent, Subject};
use ambit_core::trace::{Trace, TraceId};
use ambit_core::{Allowance, Money, SessionId, Step};
use ambit_resilience::{CallContext, Committed, Failure, Ledger};
use tokio::time::Instant;

use crate::kit::{RESERVE, SETUP, ms, paused, policy};

/// Counts what the current thread asks for.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator cannot be watched otherwise; it hands everything on to the system's")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_happy_path_asks_for_no_memory() {
    paused(async {
        let policy = policy(SETUP, Arc::new(Silent));
        let ledger = Ledger::new(&Allowance { attempts: 9, tokens: 900, cost: Money(900), deadline: 0 }, Instant::now() + ms(9_000));
        let committed = Committed::new();
        let mut asked = Vec::with_capacity(3);
        let trace = Trace { id: TraceId::LAST, parent: None, sampled: true, recorded: true };
        for _ in 0..3 {
            let before = ASKED.get();
            let context = CallContext {
                deadline: Instant::now() + ms(9_000),
                // Where the request stands in a trace is computed, too.
                subject: Subject { session: Some(SessionId::NIL), step: Some(Step(1)), trace: Some(trace) },
                ledger: &ledger,
                reserve: RESERVE,
                repeatable: true,
                admission: None,
                fresh: false,
                committed: &committed,
            };
            let called = policy
                .call(context, |leg| async move {
                    tokio::time::sleep(ms(1)).await;
                    assert!(leg.trace.is_some());
                    leg.commit();
                    Ok::<_, Failure>(())
                })
                .await;
            assert!(called.result.is_ok() && called.legs.len() == 1);
            drop(called);
            asked.push(ASKED.get() - before);
        }
        // The first round may warm up the runtime.
        assert_eq!(asked[1..], [0, 0], "{asked:?}");
    });
}

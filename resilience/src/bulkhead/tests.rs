//! Order, bounds and hints of a bulkhead, and that nothing leaks or starves in any order of events.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use ambit_core::signal::Silent;
use futures_util::future::{join, join_all};
use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn options(permits: u32, queue: u32, fresh_wait: Duration) -> BulkheadOptions {
    BulkheadOptions {
        pool: "p".into(),
        kind: DependencyKind::Model,
        permits: NonZeroU32::new(permits).unwrap(),
        queue,
        fresh_wait,
        continuing_wait: CONTINUING_WAIT_DEFAULT,
    }
}

fn bulkhead(permits: u32, queue: u32, fresh_wait: Duration) -> Bulkhead {
    Bulkhead::new(options(permits, queue, fresh_wait), Arc::new(Silent))
}

fn soon() -> Instant {
    after(Duration::from_secs(30))
}

/// Admits as a word says: `c` continuing, `f` fresh, `t` fresh without a wait.
async fn admit(bulkhead: &Bulkhead, who: &str) -> Result<Permit, Saturated> {
    match &who[..1] {
        "c" => bulkhead.admit_continuing(Subject::default(), soon()).await,
        "f" => bulkhead.admit_fresh(Subject::default(), soon()).await,
        "t" => bulkhead.try_admit_fresh(Subject::default()),
        other => panic!("no such caller: {other}"),
    }
}

/// One permit, held for 100 ms by everybody who gets it, and first by somebody else; all come at once, in the order
/// of the words. Against the order in which they were admitted, with when or why not.
#[track_caller]
fn check(queue: u32, fresh_wait: Duration, callers: &str, expected: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let told = runtime.block_on(async {
        let (bulkhead, told, start) = (bulkhead(1, queue, fresh_wait), Mutex::new(Vec::new()), Instant::now());
        let holder = bulkhead.try_admit_fresh(Subject::default()).unwrap();
        let hold = async {
            tokio::time::sleep(100 * MS).await;
            drop(holder);
        };
        let calls = callers.split_whitespace().map(async |who| {
            let admitted = admit(&bulkhead, who).await;
            let at = start.elapsed().as_millis();
            match admitted {
                Ok(_permit) => {
                    told.lock().unwrap().push(format!("{who}@{at}"));
                    tokio::time::sleep(100 * MS).await;
                }
                Err(refused) => told.lock().unwrap().push(format!("{who}!{}@{at}", refused.reason.as_str())),
            }
        });
        join(hold, join_all(calls)).await;
        assert!(bulkhead.is_quiescent(), "{bulkhead:?}");
        told.into_inner().unwrap().join(" ")
    });
    assert_eq!(told, expected);
}

#[test]
fn a_fresh_call_is_answered_at_once_by_default() {
    check(8, Duration::ZERO, "f1 t1 c1", "f1!full@0 t1!full@0 c1@100");
}

#[test]
fn continuing_calls_are_served_first_in_first_out() {
    check(8, Duration::ZERO, "c1 c2 c3", "c1@100 c2@200 c3@300");
}

#[test]
fn fresh_calls_stand_behind_those_that_continue() {
    check(8, Duration::from_secs(5), "f1 c1 f2 c2", "c1@100 c2@200 f1@300 f2@400");
    check(8, Duration::from_secs(5), "f1 f2 f3 c1", "c1@100 f1@200 f2@300 f3@400");
    check(8, Duration::from_secs(5), "f1 t1 f2", "t1!full@0 f1@100 f2@200");
}

#[test]
fn the_queue_is_bounded_at_its_limit_and_one_past_it() {
    check(2, Duration::ZERO, "c1 c2 c3", "c3!queue_full@0 c1@100 c2@200");
    check(0, Duration::ZERO, "c1", "c1!queue_full@0");
}

#[test]
fn fresh_calls_get_at_most_half_of_the_places() {
    check(4, Duration::from_secs(5), "f1 f2 f3 c1 c2 c3", "f3!queue_full@0 c3!queue_full@0 c1@100 c2@200 f1@300 f2@400");
    check(1, Duration::from_secs(5), "f1 c1", "f1!queue_full@0 c1@100");
}

#[test]
fn nobody_waits_longer_than_allowed() {
    check(64, 150 * MS, "f1 f2", "f1@100 f2!wait_expired@150");
    // The twentieth would have its turn at the very moment at which its patience ends.
    let all = (1..=20).map(|n| format!("c{n} ")).collect::<String>();
    let served = (1..=19).map(|n| format!("c{n}@{n}00 ")).collect::<String>();
    check(64, Duration::ZERO, &all, &format!("{served}c20!wait_expired@2000"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_deadline_if_that_is_nearer() {
    let bulkhead = bulkhead(1, 4, FRESH_WAIT_MAX + MS);
    let _held = bulkhead.try_admit_fresh(Subject::default()).unwrap();
    let start = Instant::now();
    let refused = bulkhead.admit_continuing(Subject::default(), start + 300 * MS).await.unwrap_err();
    assert_eq!((refused.reason, start.elapsed()), (SaturatedReason::WaitExpired, 300 * MS));
    let refused = bulkhead.admit_fresh(Subject::default(), start + 400 * MS).await.unwrap_err();
    assert_eq!((refused.reason, start.elapsed()), (SaturatedReason::WaitExpired, 400 * MS));
    // The ceiling of `fresh_wait` cannot be lifted.
    let refused = bulkhead.admit_fresh(Subject::default(), soon()).await.unwrap_err();
    assert_eq!((refused.reason, start.elapsed()), (SaturatedReason::WaitExpired, 400 * MS + FRESH_WAIT_MAX));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_to_come_back() {
    // Two permits, held for so long, with so many who wait: the next one's turn comes after this.
    for (held, waiting, hint) in [(0, 0, 1_000), (1_900, 0, 1_000), (6_000, 0, 3_000), (6_000, 3, 12_000), (999_000, 0, 60_000)] {
        let bulkhead = bulkhead(2, 8, Duration::ZERO);
        let (first, _second) = (admit(&bulkhead, "t").await.unwrap(), admit(&bulkhead, "t").await.unwrap());
        tokio::time::advance(held * MS).await;
        drop(first);
        let _third = admit(&bulkhead, "t").await.unwrap();
        let mut queue: Vec<_> = (0..waiting).map(|_| Box::pin(admit(&bulkhead, "c"))).collect();
        assert!(queue.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
        let refused = admit(&bulkhead, "t").await.unwrap_err();
        assert_eq!((&*refused.pool, refused.permits, refused.reason), ("p", 2, SaturatedReason::Full));
        assert_eq!(refused.retry_after.as_millis(), hint, "held for {held} ms, {waiting} wait");
    }
}

#[tokio::test(start_paused = true)]
async fn the_mean_hold_time_follows_what_happens() {
    let bulkhead = bulkhead(1, 0, Duration::ZERO);
    for (held, mean) in [(8_000, 8_000), (8_000, 8_000), (16_000, 9_000), (0, 7_875)] {
        let permit = admit(&bulkhead, "t").await.unwrap();
        tokio::time::advance(held * MS).await;
        drop(permit);
        assert_eq!(bulkhead.0.retry_after().as_millis(), mean);
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_a_cancelled_waiter_was_about_to_get_goes_on() {
    for next in ["c", "f"] {
        let bulkhead = bulkhead(1, 4, Duration::from_secs(5));
        let holder = admit(&bulkhead, "t").await.unwrap();
        let mut first = Box::pin(admit(&bulkhead, "c1"));
        let mut second = Box::pin(admit(&bulkhead, next));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        assert_eq!((bulkhead.in_use(), bulkhead.queued()), (1, 2));
        // The permit is handed to the first, which is dropped before it hears of it.
        drop(holder);
        assert!(poll(second.as_mut()).is_pending());
        drop(first);
        assert!(poll(second.as_mut()).is_ready(), "{next} was not told");
        drop(second);
        assert!(bulkhead.is_quiescent(), "{bulkhead:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_newcomer_does_not_pass_those_who_wait() {
    let bulkhead = bulkhead(1, 4, Duration::from_secs(5));
    let holder = admit(&bulkhead, "t").await.unwrap();
    let mut first = Box::pin(admit(&bulkhead, "f1"));
    assert!(poll(first.as_mut()).is_pending());
    drop(holder);
    assert!(admit(&bulkhead, "t").await.is_err(), "the free permit is the first one's");
    assert!(poll(first.as_mut()).is_ready());
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What may happen to a bulkhead in any order.
#[derive(Debug, Clone, Copy)]
enum Op {
    Come(&'static str),
    GiveUp(usize),
    Return(usize),
    Poll(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        prop::sample::select(&["c", "f", "t"][..]).prop_map(Op::Come),
        (0_usize..16).prop_map(Op::GiveUp),
        (0_usize..16).prop_map(Op::Return),
        (0_usize..16).prop_map(Op::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Callers come, give up, are polled or not, and give back, in any order: the bounds hold, nobody waits while
    /// a permit is free, and nothing is left when all are gone.
    #[test]
    fn no_order_of_events_leaks_or_starves(permits in 1_u32..4, queue in 0_u32..6, ops in prop::collection::vec(op(), 0..48)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _in = runtime.enter();
        let bulkhead = bulkhead(permits, queue, Duration::from_secs(5));
        let mut waiting = Vec::new();
        let mut held = Vec::new();
        for op in ops {
            match op {
                Op::Come(who) => waiting.push(Box::pin(admit(&bulkhead, who))),
                Op::GiveUp(n) if !waiting.is_empty() => drop(waiting.remove(n % waiting.len())),
                Op::Return(n) if !held.is_empty() => drop(held.remove(n % held.len())),
                Op::Poll(n) if !waiting.is_empty() => {
                    let n = n % waiting.len();
                    if let Poll::Ready(done) = poll(waiting[n].as_mut()) {
                        held.extend(done);
                        drop(waiting.remove(n));
                    }
                }
                Op::GiveUp(_) | Op::Return(_) | Op::Poll(_) => {}
            }
            prop_assert!(usize::try_from(bulkhead.in_use()).unwrap() >= held.len());
            prop_assert!(bulkhead.in_use() <= permits && bulkhead.queued() <= queue);
        }
        // Everybody hears what there is to hear; as many rounds as callers are enough.
        for _ in 0..=waiting.len() {
            waiting.retain_mut(|call| match poll(call.as_mut()) {
                Poll::Ready(done) => {
                    held.extend(done);
                    false
                }
                Poll::Pending => true,
            });
        }
        prop_assert!(waiting.is_empty() || bulkhead.in_use() == permits, "waits beside a free permit");
        prop_assert_eq!(usize::try_from(bulkhead.in_use()).unwrap(), held.len());
        drop((waiting, held));
        prop_assert!(bulkhead.is_quiescent());
    }
}

#[tokio::test(start_paused = true)]
async fn more_permits_let_those_who_wait_in_at_once() {
    let (bulkhead, long) = (bulkhead(1, 8, Duration::from_secs(4)), Duration::from_secs(1));
    let _held = bulkhead.try_admit_fresh(Subject::default()).unwrap();
    let start = Instant::now();
    let waiting = join_all(["c", "f", "f"].map(|who| admit(&bulkhead, who)));
    let grow = async {
        tokio::time::sleep(long).await;
        bulkhead.adjust(&options(4, 8, Duration::from_secs(4)));
    };
    let (admitted, ()) = join(waiting, grow).await;
    assert!(admitted.iter().all(Result::is_ok), "{admitted:?}");
    assert_eq!((start.elapsed(), bulkhead.in_use(), bulkhead.permits()), (long, 4, 4));
    drop(admitted);
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn fewer_permits_never_let_more_calls_run_than_one_of_the_settings_allows() {
    let bulkhead = bulkhead(3, 8, Duration::ZERO);
    let admitted = || bulkhead.try_admit_fresh(Subject::default());
    let mut held: Vec<Permit> = (0..3).map(|_| admitted().unwrap()).collect();
    bulkhead.adjust(&options(1, 8, Duration::ZERO));
    for in_use in [3, 2, 1] {
        assert_eq!((bulkhead.in_use(), bulkhead.permits(), admitted().is_err()), (in_use, 1, true));
        held.pop();
    }
    assert!(bulkhead.is_quiescent());
    let _one = admitted().unwrap();
    assert!(admitted().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_changed_wait_holds_for_who_comes_after() {
    let bulkhead = bulkhead(1, 1, Duration::ZERO);
    let _held = bulkhead.try_admit_fresh(Subject::default()).unwrap();
    bulkhead.adjust(&BulkheadOptions { continuing_wait: 10 * MS, queue: 0, ..options(1, 0, Duration::ZERO) });
    assert_eq!(admit(&bulkhead, "c").await.unwrap_err().reason, SaturatedReason::QueueFull);
    bulkhead.adjust(&BulkheadOptions { continuing_wait: 10 * MS, ..options(1, 1, Duration::ZERO) });
    let start = Instant::now();
    assert_eq!(admit(&bulkhead, "c").await.unwrap_err().reason, SaturatedReason::WaitExpired);
    assert_eq!(start.elapsed(), 10 * MS);
}

//! What the order of the layers forces, as far as it does without a breaker.

use std::cell::Cell;
use std::task::{Context, Waker};

use ambit_resilience::{Failure, Outcome};
use futures_util::future::join;

use crate::kit::{RESERVE, SETUP, Setup, Stage, check, ms, paused, told};

/// The clock of an attempt is its own: neither the wait for a permit nor earlier attempts are in its first token.
#[test]
fn the_time_to_the_first_token_is_the_attempts_own() {
    paused(async {
        let stage = Stage::new(SETUP);
        let holder = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
        let release = async {
            tokio::time::sleep(ms(300)).await;
            drop(holder);
        };
        let ((), called) = join(release, stage.call("70/ms+head+10/ms+503 40/ms+head+5/ms+ok")).await;
        let seen: Vec<_> = called.legs.iter().map(|leg| (&*leg.code, leg.ms, leg.first_token)).collect();
        assert_eq!(seen, [("http_503", 80, Some(ms(70))), ("ok", 45, Some(ms(40)))]);
    });
}

#[test]
fn a_permit_is_kept_through_the_back_off_and_counted_as_sleeping() {
    paused(async {
        let stage = Stage::new(SETUP);
        let look = async {
            let mut seen = Vec::new();
            // In the first attempt, in the back-off, in the second attempt.
            for wait in [50, 150, 150] {
                tokio::time::sleep(ms(wait)).await;
                seen.push((stage.bulkhead().in_use(), stage.bulkhead().sleeping()));
            }
            seen
        };
        let (called, seen) = join(stage.call("100/ms+503 100/ms+ok"), look).await;
        assert_eq!(seen, [(1, 0), (1, 1), (1, 0)]);
        assert!(called.result.is_ok());
    });
}

/// One call is told to come back in 3 s, another one waits for its permit from the start or from `other_comes` on.
fn retry_against_waiter(pushback: u64, other_comes: u64) -> (Vec<String>, String) {
    paused(async {
        let stage = Stage::new(SETUP);
        let other = async {
            tokio::time::sleep(ms(other_comes)).await;
            drop(stage.bulkhead().admit_continuing(Default::default(), tokio::time::Instant::now() + ms(9_000)).await);
        };
        let (called, ()) = join(stage.call(&format!("100/ms+429/{pushback} ok")), other).await;
        let told = told(&called.result);
        drop(called);
        assert!(stage.bulkhead().is_quiescent());
        (stage.recorder.trace(), told)
    })
}

#[test]
fn a_retry_is_given_up_when_others_wait_and_the_sleep_is_long() {
    let (trace, told) = retry_against_waiter(3_000, 50);
    assert_eq!(told, "http_429");
    assert_eq!(
        trace,
        [
            "0 admitted waited=0",
            "0 started first",
            "100 finished first http_429 after=100",
            "100 refused others_wait",
            "100 admitted waited=50",
        ]
    );
    // A short sleep is slept through.
    let (_, told) = retry_against_waiter(600, 50);
    assert_eq!(told, "ok");
}

#[test]
fn a_long_sleep_is_given_up_when_others_begin_to_wait_and_a_short_rest_is_not() {
    let (trace, told) = retry_against_waiter(3_000, 1_000);
    assert_eq!(told, "http_429");
    assert_eq!(trace[4..], ["1000 refused others_wait", "1000 admitted waited=0"], "{trace:?}");
    // With less than a second to go the other one waits for its turn.
    let (_, told) = retry_against_waiter(3_000, 2_700);
    assert_eq!(told, "ok");
}

/// Each attempt is built anew: a value that one attempt spoiled is whole again in the next.
#[test]
fn everything_mutable_is_rebuilt_for_each_attempt() {
    paused(async {
        let stage = Stage::new(Setup { attempts: 3, ..SETUP });
        let request = "key-of-the-call".to_owned();
        let built = Cell::new(0);
        let called = stage
            .policy
            .call(stage.context(), |leg| {
                built.set(built.get() + 1);
                let mut body = request.clone();
                async move {
                    body.push_str("-spoiled");
                    assert_eq!(body, "key-of-the-call-spoiled");
                    if leg.number < 3 { Err(Failure::new(Outcome::status(503))) } else { Ok(body) }
                }
            })
            .await;
        assert_eq!((built.get(), called.legs.len()), (3, 3));
        assert!(called.result.is_ok());
    });
}

#[test]
fn a_refusal_of_our_own_is_no_attempt_takes_nothing_and_is_not_repeated() {
    check(SETUP, "local", &["0 admitted waited=0", "0 started first", "0 finished first refused after=0", "0 = refused legs=0"]);
    paused(async {
        let stage = Stage::new(SETUP);
        let called = stage.call("local").await;
        assert!(called.legs.is_empty());
        let left = stage.ledger.left();
        assert_eq!((left.attempts, left.tokens, left.cost.0), (SETUP.allowance, SETUP.tokens, 900));

        // Refused by the bulkhead: nothing is taken either.
        let _held = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
        assert!(stage.call("ok").await.result.is_err());
        assert_eq!(stage.ledger.left(), left);
        // Refused by the deadline.
        let mut late = stage.context();
        late.deadline = tokio::time::Instant::now();
        assert!(stage.call_with(late, "ok").await.result.is_err());
        assert_eq!(stage.ledger.left(), left);
        assert!(stage.ledger.affords(RESERVE));
    });
}

/// The deadline is looked at before anything else, a permit in hand or not.
#[test]
fn a_permit_brought_along_too_late_is_given_back_unused() {
    paused(async {
        let stage = Stage::new(Setup { deadline: 599, ..SETUP });
        let mut context = stage.context();
        context.admission = Some(stage.bulkhead().try_admit_fresh(Default::default()).unwrap());
        let called = stage.call_with(context, "ok").await;
        assert_eq!(told(&called.result), "deadline_exceeded");
        assert!(stage.bulkhead().is_quiescent());
    });
}

/// And again after the permit: a busy process may hear of it too late.
#[test]
fn a_permit_that_comes_too_late_is_given_back_unused() {
    paused(async {
        let stage = Stage::new(SETUP);
        let holder = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
        let mut call = Box::pin(stage.call("ok"));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(holder);
        tokio::time::advance(ms(7_401)).await;
        let called = call.await;
        assert_eq!(told(&called.result), "deadline_exceeded");
        assert!(called.legs.is_empty() && stage.bulkhead().is_quiescent());
        assert_eq!(stage.ledger.left().attempts, SETUP.allowance);
    });
}

/// So is the ledger: another leg may have taken what was left during the wait.
#[test]
fn an_allowance_that_was_taken_meanwhile_sends_nothing() {
    paused(async {
        let stage = Stage::new(Setup { allowance: 1, ..SETUP });
        let holder = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
        let other_leg = async {
            assert!(stage.ledger.take(RESERVE));
            drop(holder);
        };
        let (called, ()) = join(stage.call("ok"), other_leg).await;
        assert_eq!(told(&called.result), "allowance_spent");
        assert!(called.legs.is_empty() && stage.bulkhead().is_quiescent());

        // And during a back-off: the real error stands.
        let stage = Stage::new(Setup { allowance: 2, ..SETUP });
        let other_leg = async {
            tokio::time::sleep(ms(100)).await;
            assert!(stage.ledger.take(RESERVE));
        };
        let (called, ()) = join(stage.call("503 ok"), other_leg).await;
        assert_eq!((told(&called.result).as_str(), called.legs.len()), ("http_503", 1));
        assert_eq!(stage.recorder.trace().last().unwrap(), "200 refused allowance");
    });
}

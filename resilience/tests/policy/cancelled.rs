//! A call that is dropped anywhere leaves nothing behind and still says all that it began to say.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_util::future::join;

use crate::kit::{SETUP, Setup, Stage, ms, paused};

/// When a call is dropped.
#[derive(Debug, Clone, Copy)]
enum Drop {
    /// Right after it began to wait.
    AfterPoll,
    /// When it was woken, before it heard why.
    BeforePoll,
}

/// Runs a future and drops it at its nth wait; says whether it came that far.
async fn cut<F: Future>(future: F, n: usize, when: Drop) -> bool {
    let mut future = Box::pin(future);
    let mut waits = 0;
    let cut = poll_fn(|cx| {
        if waits > n && matches!(when, Drop::BeforePoll) {
            return Poll::Ready(true);
        }
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if waits == n && matches!(when, Drop::AfterPoll) => Poll::Ready(true),
            Poll::Pending => {
                waits += 1;
                Poll::Pending
            }
        }
    })
    .await;
    drop(future);
    cut
}

/// A call with all that can be waited for: the queue, an attempt, a back-off cut into two by its length, a second
/// attempt with a head. Returns whether it was cut.
fn run(n: usize, when: Drop) -> bool {
    paused(async {
        let stage = Stage::new(Setup { attempts: 3, ..SETUP });
        let holder = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
        let hold = async {
            tokio::time::sleep(ms(100)).await;
            drop(holder);
        };
        // Behind the call, for what it leaves: must be served whatever happens to the call.
        let heir = async {
            tokio::time::sleep(ms(50)).await;
            loop {
                // As often as its patience ends, it comes again: the call sleeps for long with its permit in hand.
                if stage.bulkhead().admit_continuing(Default::default(), tokio::time::Instant::now() + ms(9_000)).await.is_ok() {
                    break stage.recorder.note("heir");
                }
            }
        };
        let call = cut(stage.call("10/ms+503 10/ms+503/900 10/ms+head+10/ms+ok"), n, when);
        let ((cut, ()), ()) = join(join(call, heir), hold).await;
        assert!(stage.bulkhead().is_quiescent(), "dropped at wait {n} {when:?}: {:?}", stage.bulkhead());

        let trace = stage.recorder.trace();
        let count = |word: &str| trace.iter().filter(|line| line.split(' ').nth(1) == Some(word)).count();
        assert_eq!(count("started"), count("finished"), "{trace:#?}");
        assert_eq!(count("retried"), usize::from(count("started") > 1), "{trace:#?}");
        assert_eq!(count("heir"), 1);
        let taken = SETUP.allowance - stage.ledger.left().attempts;
        assert_eq!(usize::try_from(taken).unwrap(), count("started"), "{trace:#?}");
        cut
    })
}

#[test]
fn dropped_at_any_wait_it_leaves_nothing_behind() {
    for when in [Drop::AfterPoll, Drop::BeforePoll] {
        let waits = (0..64).take_while(|n| run(*n, when)).count();
        // The queue, three attempts (one of them in two parts) and two back-offs.
        assert!((6..64).contains(&waits), "{waits} waits {when:?}");
    }
}

#[test]
fn dropped_in_the_middle_of_an_attempt_it_is_finished_as_cancelled() {
    paused(async {
        let stage = Stage::new(SETUP);
        {
            let mut call = pin!(stage.call("503 hang"));
            assert!(tokio::time::timeout(ms(1_000), call.as_mut()).await.is_err());
        }
        assert_eq!(
            stage.recorder.trace(),
            [
                "0 admitted waited=0",
                "0 started first",
                "0 finished first http_503 after=0",
                "0 scheduled 200 for http_503",
                "200 started retry",
                "1000 finished retry cancelled after=800",
                "1000 retried recovered=false",
            ]
        );
        assert!(stage.bulkhead().is_quiescent());
    });
}

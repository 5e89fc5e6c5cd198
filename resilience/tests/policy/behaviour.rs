//! One call at a time: what each layer does, and that each signal is emitted exactly once.

use ambit_core::signal::DependencyKind;
use ambit_core::{ErrorKind, Origin};
use ambit_resilience::{Breaker, Failure, Outcome, PolicyError, Row};

use crate::kit::{SETUP, Setup, Stage, check, ms, paused};

#[test]
fn a_call_that_succeeds_says_so_in_three_signals() {
    check(SETUP, "40/ms+ok", &["0 admitted waited=0", "0 started first", "40 finished first ok after=40", "40 = ok legs=1"]);
}

#[test]
fn a_failure_is_repeated_after_a_wait() {
    check(
        SETUP,
        "30/ms+503 10/ms+ok",
        &[
            "0 admitted waited=0",
            "0 started first",
            "30 finished first http_503 after=30",
            "30 scheduled 200 for http_503",
            "230 started retry",
            "240 finished retry ok after=10",
            "240 retried recovered=true",
            "240 = ok legs=2",
        ],
    );
}

#[test]
fn attempts_end_with_the_last_real_error_and_without_a_wait() {
    check(
        SETUP,
        "503 500",
        &[
            "0 admitted waited=0",
            "0 started first",
            "0 finished first http_503 after=0",
            "0 scheduled 200 for http_503",
            "200 started retry",
            "200 finished retry http_500 after=0",
            "200 refused attempts_used",
            "200 retried recovered=false",
            "200 = http_500 legs=2",
        ],
    );
}

#[test]
fn what_may_not_be_repeated_is_not() {
    let write = Setup { repeatable: false, ..SETUP };
    for (word, code) in [("500", "http_500"), ("reset", "reset"), ("400", "http_400")] {
        check(
            write,
            word,
            &[
                "0 admitted waited=0",
                "0 started first",
                &format!("0 finished first {code} after=0"),
                "0 refused not_repeatable",
                &format!("0 = {code} legs=1"),
            ],
        );
    }
    // It never arrived, so it may go out again whatever it does.
    check(
        write,
        "connect ok",
        &[
            "0 admitted waited=0",
            "0 started first",
            "0 finished first timeout_connect after=0",
            "0 timed_out connect",
            "0 scheduled 200 for timeout_connect",
            "200 started retry",
            "200 finished retry ok after=0",
            "200 retried recovered=true",
            "200 = ok legs=2",
        ],
    );
}

#[test]
fn retry_after_is_waited_for_as_told() {
    let trace = paused(async {
        let stage = Stage::new(SETUP);
        let called = stage.call("429/1500 ok").await;
        assert!(called.result.is_ok());
        stage.recorder.trace()
    });
    let [_, _, _, scheduled, started, ..] = &trace[..] else { panic!("{trace:?}") };
    let wait: u64 = scheduled.strip_prefix("0 scheduled ").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((1_500..=1_650).contains(&wait), "never early, at most a tenth late: {wait}");
    assert!(started.starts_with("15") || started.starts_with("16"), "{started}");
    check(
        SETUP,
        "429/60001",
        &[
            "0 admitted waited=0",
            "0 started first",
            "0 finished first http_429 after=0",
            "0 refused retry_after_too_long",
            "0 = http_429 legs=1",
        ],
    );
}

#[test]
fn an_attempt_that_hangs_is_cut_and_repeated_if_a_full_one_still_fits() {
    check(
        SETUP,
        "hang 1999/ms+ok",
        &[
            "0 admitted waited=0",
            "0 started first",
            "2000 finished first timeout after=2000",
            "2000 timed_out attempt",
            "2000 scheduled 200 for timeout",
            "2200 started retry",
            "4199 finished retry ok after=1999",
            "4199 retried recovered=true",
            "4199 = ok legs=2",
        ],
    );
    check(
        Setup { deadline: 4_299, ..SETUP },
        "hang",
        &[
            "0 admitted waited=0",
            "0 started first",
            "2000 finished first timeout after=2000",
            "2000 timed_out attempt",
            "2000 refused no_time",
            "2000 = timeout legs=1",
        ],
    );
}

#[test]
fn an_attempt_is_clipped_by_what_is_left_of_the_call() {
    // Deadline 1.5 s, margin 0.1 s: cut at 1.4 s, by the deadline and not by its own timeout.
    check(
        Setup { deadline: 1_500, ..SETUP },
        "hang",
        &[
            "0 admitted waited=0",
            "0 started first",
            "1400 finished first deadline after=1400",
            "1400 timed_out deadline",
            "1400 = deadline legs=1",
        ],
    );
    check(
        Setup { request: 1_500, ..SETUP },
        "hang",
        &[
            "0 admitted waited=0",
            "0 started first",
            "1400 finished first deadline after=1400",
            "1400 timed_out request",
            "1400 = deadline legs=1",
        ],
    );
}

#[test]
fn once_the_head_is_there_only_the_whole_call_bounds_an_attempt() {
    check(
        SETUP,
        "1999/ms+head+2000/ms+head+1000/ms+ok",
        &["0 admitted waited=0", "0 started first", "4999 finished first ok after=4999 first_token=1999", "4999 = ok legs=1"],
    );
    // Total time wins over a slow drip.
    check(
        SETUP,
        "50/ms+head+hang",
        &[
            "0 admitted waited=0",
            "0 started first",
            "7900 finished first deadline after=7900 first_token=50",
            "7900 timed_out request",
            "7900 = deadline legs=1",
        ],
    );
}

/// The deadline is no evidence against the other side, unless the attempt had its full timeout.
#[test]
fn an_attempt_cut_by_the_deadline_is_evidence_only_if_it_had_its_time() {
    for (deadline, row, breaker) in [(8_000, Row::DeadlineSpent, Breaker::Failure), (1_500, Row::DeadlineCut, Breaker::Neutral)] {
        paused(async {
            let stage = Stage::new(Setup { deadline, ..SETUP });
            let Err(PolicyError::Failed(failure)) = stage.call("50/ms+head+hang").await.result else { panic!("it cannot end well") };
            assert_eq!((failure.class.row, failure.class.breaker, failure.is_fate_unknown()), (row, breaker, true));
        });
    }
}

#[test]
fn after_the_commit_point_nothing_is_repeated() {
    check(
        SETUP,
        "5/ms+commit+reset",
        &[
            "0 admitted waited=0",
            "0 started first",
            "5 finished first reset after=5 first_token=5",
            "5 refused committed",
            "5 = reset legs=1",
        ],
    );
    // A head alone commits to nothing.
    check(
        SETUP,
        "5/ms+head+chunk ok",
        &[
            "0 admitted waited=0",
            "0 started first",
            "5 finished first timeout_chunk after=5 first_token=5",
            "5 timed_out chunk",
            "5 scheduled 200 for timeout_chunk",
            "205 started retry",
            "205 finished retry ok after=0",
            "205 retried recovered=true",
            "205 = ok legs=2",
        ],
    );
}

#[test]
fn nothing_starts_without_time_for_something_useful() {
    // Margin 100 ms and at least 500 ms useful: 600 ms is just enough.
    check(Setup { deadline: 599, ..SETUP }, "", &["0 timed_out deadline", "0 = deadline_exceeded legs=0"]);
    check(Setup { request: 599, ..SETUP }, "", &["0 timed_out request", "0 = deadline_exceeded legs=0"]);
    check(Setup { deadline: 0, ..SETUP }, "", &["0 timed_out deadline", "0 = deadline_exceeded legs=0"]);
    check(
        Setup { deadline: 600, ..SETUP },
        "ok",
        &["0 admitted waited=0", "0 started first", "0 finished first ok after=0", "0 = ok legs=1"],
    );
}

#[test]
fn no_retry_when_the_wait_and_a_useful_attempt_do_not_fit() {
    // 200 ms of wait + 500 ms useful + 100 ms margin.
    check(
        Setup { deadline: 799, ..SETUP },
        "503",
        &["0 admitted waited=0", "0 started first", "0 finished first http_503 after=0", "0 refused no_time", "0 = http_503 legs=1"],
    );
    paused(async {
        let stage = Stage::new(Setup { deadline: 800, ..SETUP });
        assert!(stage.call("503 ok").await.result.is_ok());
    });
}

#[test]
fn each_leg_is_taken_from_the_ledger_before_it_is_sent() {
    check(Setup { allowance: 0, ..SETUP }, "", &["0 = allowance_spent legs=0"]);
    check(Setup { tokens: 99, ..SETUP }, "", &["0 = allowance_spent legs=0"]);
    // Tokens for one leg and not for two: the real error, at once.
    check(
        Setup { tokens: 199, ..SETUP },
        "503",
        &["0 admitted waited=0", "0 started first", "0 finished first http_503 after=0", "0 refused allowance", "0 = http_503 legs=1"],
    );
    paused(async {
        let stage = Stage::new(SETUP);
        let called = stage
            .policy
            .call(stage.context(), |leg| {
                let left = stage.ledger.left();
                async move {
                    assert_eq!(
                        (left.attempts, left.tokens, left.cost.0),
                        (9 - leg.number, 900 - 100 * u64::from(leg.number), 900 - 10 * u64::from(leg.number))
                    );
                    Err::<(), _>(Failure::new(Outcome::status(503)))
                }
            })
            .await;
        assert_eq!(called.legs.len(), 2);
    });
}

#[test]
fn a_lost_session_is_renewed_once_and_at_once() {
    let reads = Setup { attempts: 3, repeatable: false, ..SETUP };
    check(
        reads,
        "expired ok",
        &[
            "0 admitted waited=0",
            "0 started first",
            "0 finished first session_expired after=0",
            "0 scheduled 0 for session_expired",
            "0 started retry",
            "0 finished retry ok after=0",
            "0 retried recovered=true",
            "0 = ok legs=2",
        ],
    );
    check(
        reads,
        "expired expired",
        &[
            "0 admitted waited=0",
            "0 started first",
            "0 finished first session_expired after=0",
            "0 scheduled 0 for session_expired",
            "0 started retry",
            "0 finished retry session_expired after=0",
            "0 refused not_repeatable",
            "0 retried recovered=false",
            "0 = session_expired legs=2",
        ],
    );
}

#[test]
fn a_full_bulkhead_answers_a_fresh_call_at_once_and_lets_a_continuing_one_wait() {
    for (fresh, expected) in [
        (true, vec!["0 admitted waited=0", "0 saturated full", "0 = saturated full"]),
        (false, vec!["0 admitted waited=0", "2000 saturated wait_expired", "2000 = saturated wait_expired"]),
    ] {
        let trace = paused(async {
            let stage = Stage::new(Setup { fresh, ..SETUP });
            let _held = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
            let called = stage.call("").await;
            assert!(called.legs.is_empty());
            stage.recorder.note(format_args!("= {}", crate::kit::told(&called.result)));
            stage.recorder.trace()
        });
        assert_eq!(trace, expected);
    }
}

#[test]
fn a_wait_for_a_permit_ends_when_an_attempt_would_come_too_late() {
    let trace = paused(async {
        let stage = Stage::new(Setup { deadline: 1_000, ..SETUP });
        let _held = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
        let _ = stage.call("").await;
        stage.recorder.trace()
    });
    assert_eq!(trace, ["0 admitted waited=0", "400 saturated wait_expired"]);
}

#[test]
fn a_permit_taken_at_the_door_is_used_and_another_pools_is_given_back() {
    paused(async {
        let (stage, other) = (Stage::new(SETUP), Stage::new(SETUP));
        let door = stage.bulkhead().try_admit_fresh(Default::default()).unwrap();
        let mut context = stage.context();
        context.admission = Some(door);
        let (_, permit) = stage.call_with(context, "ok").await.result.unwrap();
        assert_eq!(stage.recorder.trace(), ["0 admitted waited=0", "0 started first", "0 finished first ok after=0"]);
        assert!(permit.is_of(stage.bulkhead()) && stage.bulkhead().in_use() == 1);

        let mut context = other.context();
        context.admission = Some(permit);
        let (_, permit) = other.call_with(context, "ok").await.result.unwrap();
        assert!(permit.is_of(other.bulkhead()) && stage.bulkhead().is_quiescent());
    });
}

#[test]
fn the_permit_lives_as_long_as_the_answer() {
    paused(async {
        let stage = Stage::new(SETUP);
        let called = stage.call("ok").await;
        assert_eq!(stage.bulkhead().in_use(), 1, "the body is still being read");
        drop(called);
        assert!(stage.bulkhead().is_quiescent());
        let failed = stage.call("400").await;
        assert!(stage.bulkhead().is_quiescent() && failed.result.is_err());
    });
}

#[test]
fn an_attempt_is_told_when_it_has_to_be_over() {
    paused(async {
        let stage = Stage::new(SETUP);
        let start = tokio::time::Instant::now();
        let called = stage
            .policy
            .call(stage.context(), |leg| async move {
                tokio::time::sleep(ms(100)).await;
                if leg.number < 2 { Err(Failure::new(Outcome::status(503))) } else { Ok((leg.head_by - start, leg.end_by - start)) }
            })
            .await;
        assert_eq!(called.result.unwrap().0, (ms(2_300), ms(7_900)));
    });
}

#[test]
fn errors_say_what_kind_they_are_and_whose() {
    let failed = |outcome| PolicyError::Failed(Failure::new(outcome));
    for (error, kind, origin) in [
        (PolicyError::DeadlineExceeded, ErrorKind::DeadlineExceeded, Origin::Us),
        (PolicyError::AllowanceSpent, ErrorKind::LimitReached, Origin::Us),
        (failed(Outcome::status(503)), ErrorKind::Unavailable, Origin::Tool),
        (failed(Outcome::Cancelled), ErrorKind::Cancelled, Origin::Us),
    ] {
        assert_eq!((error.kind(), error.origin(DependencyKind::Tool)), (kind, origin), "{error}");
    }
    assert_eq!(failed(Outcome::Broken).origin(DependencyKind::Model), Origin::Provider);
}

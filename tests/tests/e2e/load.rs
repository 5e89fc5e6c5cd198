//! The measurements in small, so that they cannot rot: nothing is lost, and nothing stays. Figures are taken by hand.

use std::time::Duration;

use ambit_tests::load::{readers, streams};

/// Readers in the gate.
const READERS: usize = 200;

#[tokio::test]
async fn idle_readers_all_hear_the_end() {
    let report = readers::run(READERS).await;
    assert_eq!(report.ended_well, READERS, "{report}");
    assert!(report.idle > 0, "{report}");
}

#[tokio::test]
async fn no_token_is_lost_on_either_way() {
    let options = streams::Options { concurrency: 4, tokens: 50, every: Duration::from_millis(2), rounds: 1 };
    let report = streams::run(options).await;
    let (bare, ambit) = report.rounds[0];
    assert_eq!((bare.tokens, ambit.tokens), (200, 200), "{report}");
}

//! The test kit: everything the end-to-end tests stand on, and nothing that a user of Ambit ever runs.
//!
//! - [`upstream`]: a provider and HTTP tools of our own that play scripts, down to single bytes and TCP resets;
//! - [`mcp`]: real MCP servers, and a fake one that misbehaves as told;
//! - [`otlp`]: a real receiver of traces, and the spans that it took;
//! - [`process`]: the real `ambit` binary as a child, with a folder of its own, killed with its whole family on drop;
//! - [`pty`]: a real pseudo-terminal, and what stands on its screen;
//! - [`client`]: what a caller does over HTTP: sessions, streams, problems, metrics;
//! - [`load`]: measurements that need many connections;
//! - [`quiet`]: the leak check that ends every end-to-end test.
//!
//! *Invariants.* Everything listens on port 0 of loopback, so that tests run side by side. Every wait is a wait for a
//! condition, bounded by [`WAIT_MAX`], and says what it waited for when it gives up. Nothing here asserts on elapsed
//! time: over real processes only order and counts are facts.
//!
//! The kit panics where a test would: a broken script or a missing binary is a failed test, not an error to handle.
#![expect(clippy::panic, clippy::expect_used, reason = "the kit is test code: its failures are the test's failures")]

pub mod client;
pub mod load;
pub mod mcp;
pub mod otlp;
pub mod process;
pub mod pty;
pub mod quiet;
pub mod upstream;

use std::time::Duration;

/// Longest time any helper waits for its condition, in seconds of real time: generous, since it is only ever used up
/// by a test that fails, and the machine may be busy.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Waits for `future` at most [`WAIT_MAX`].
///
/// # Panics
/// When the time is up, naming what was waited for.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_MAX, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {} s in vain for {what}", WAIT_MAX.as_secs()),
    }
}

//! All tests over real processes and sockets, in one binary so that it links once.
//!
//! A module is a theme. Every test that starts a server ends by the leak check of [`ambit_tests::quiet`], and none asserts on
//! elapsed time: over real processes only order and counts are facts.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod bad_input;
mod cli;
mod connections;
mod crash;
mod dialects;
mod house;
mod http_api;
mod kit;
mod mcp;
mod provider;
mod tools;

//! All tests over real processes and sockets, in one binary so that it links once.
//!
//! A module is a theme. Every test that starts a server ends by the leak check of [`ambit_tests::quiet`], and none asserts on
//! elapsed time: over real processes only order and counts are facts.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod admin;
mod bad_input;
mod chat;
mod cli;
mod cli_doctor;
mod cli_pages;
mod cli_sessions;
mod cli_terminal;
mod clients;
mod connections;
mod crash;
mod dialects;
mod fuzz;
mod hostile;
mod house;
mod http_api;
mod keep;
mod kit;
mod load;
mod mcp;
mod provider;
mod reload;
mod responses;
mod tools;
mod traces;

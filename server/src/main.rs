//! The `ambit` binary: HTTP API, telemetry and the command line, put around the crates that do the work.
//!
//! **Invariant:** errors become HTTP in `http/problem.rs` only, signals become metrics in `telemetry/metrics.rs` only, and
//! nothing here decides about a session.

mod app;
mod cli;
mod demo;
mod exit;
mod http;
mod listener;
mod output;
mod reload;
mod sample;
mod stall;
mod telemetry;
mod workshop;

use std::process::ExitCode;

use clap::Parser as _;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    output::end(cli::Cli::parse().run())
}

//! The fake MCP server as a program: `ambit-fake-mcp SCRIPT.json`. What it can play stands in [`ambit_tests::mcp::fake`].

use std::path::PathBuf;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(script) => ambit_tests::mcp::fake::run(&PathBuf::from(script)).await,
        None => ExitCode::from(2),
    }
}

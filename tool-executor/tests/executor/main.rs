//! The executor from outside: HTTP tools and MCP servers that misbehave.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail a test by panicking")]

mod http;
mod kit;
mod mcp;

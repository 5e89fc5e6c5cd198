//! The kit itself: a fake that lies about what it does makes every other test worthless.

mod client;
mod data;
mod faults;
mod mcp;
mod process;
mod record;

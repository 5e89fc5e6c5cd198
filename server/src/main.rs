//! The `ambit` binary.
fn main() {}

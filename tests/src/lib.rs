//! End to end over real processes: fake upstreams, crash tests, contract tests.

//! Measurements over real processes, by hand: `ambit-load readers N`, `ambit-load streams CONCURRENCY TOKENS EVERY_MS ROUNDS`.
//! What they measure stands in [`ambit_tests::load`]; figures are in `docs/performance.md`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use ambit_tests::load::{bare, readers, streams};

const USAGE: &str = "usage: ambit-load readers N | ambit-load streams CONCURRENCY TOKENS EVERY_MS ROUNDS";

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let said = match (words.as_slice(), numbers.as_slice()) {
        ([streams::PASS_THROUGH, upstream], _) => {
            let served = bare::pass_through(upstream).await;
            say(&served.url);
            served.forever().await;
            return ExitCode::SUCCESS;
        }
        (["readers", _], [readers]) => readers::run(*readers).await.to_string(),
        (["streams", ..], [concurrency, tokens, every_ms, rounds]) => {
            let every = Duration::from_millis(u64::try_from(*every_ms).unwrap_or(u64::MAX));
            streams::run(streams::Options { concurrency: *concurrency, tokens: *tokens, every, rounds: *rounds }).await.to_string()
        }
        _ => {
            say(USAGE);
            return ExitCode::from(2);
        }
    };
    say(&said);
    ExitCode::SUCCESS
}

/// Whoever closes standard output does not want to hear it.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

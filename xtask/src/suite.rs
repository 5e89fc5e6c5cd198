//! Runs the test binaries: with `cargo nextest` where it is installed, else one after the other. The result is the same.
//!
//! The workspace is always selected whole (features stay the same); which part runs is a filter over the binaries.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::exec::{Keep, Run};

/// Package of the tests that start real processes.
const E2E_PACKAGE: &str = "ambit-tests";
/// Folder of that package.
const E2E_FOLDER: &str = "tests";
/// Longest run of one suite, in minutes.
const SUITE_MINUTES: u64 = 30;
/// Longest run of one binary where nextest is missing, in minutes.
const BINARY_MINUTES: u64 = 10;

/// How many checks passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl Tally {
    /// Adds another count.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Which of the workspace's tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// All but the ones end to end; benches run once, so that they cannot rot.
    Unit,
    /// The ones end to end.
    E2e,
}

impl Suite {
    /// Runs it. The tests find the binary beside themselves; the build before has put it there.
    pub(crate) fn run(self, root: &Path) -> Result<Tally, String> {
        let has_nextest = Run::cargo(root, &["nextest", "--version"], 1).stdout().is_ok();
        if has_nextest { self.with_nextest(root) } else { self.one_by_one(root) }
    }

    fn with_nextest(self, root: &Path) -> Result<Tally, String> {
        let filter = match self {
            Self::Unit => format!("not package({E2E_PACKAGE})"),
            Self::E2e => format!("package({E2E_PACKAGE})"),
        };
        let args = ["nextest", "run", "--locked", "--workspace", "--all-targets", "--status-level", "slow", "-E", &filter];
        let (lines, end) = Run::cargo(root, &args, SUITE_MINUTES).lines(Keep::Stderr)?;
        match (lines.iter().rev().find_map(|line| nextest_summary(line)), end) {
            (Some(tally), Err(why)) if tally.failed == 0 => Err(why),
            (Some(tally), _) => Ok(tally),
            (None, Err(why)) => Err(why),
            (None, Ok(())) => Err("nextest printed no summary".to_owned()),
        }
    }

    fn one_by_one(self, root: &Path) -> Result<Tally, String> {
        let args = ["test", "--locked", "--workspace", "--all-targets", "--no-run", "--message-format", "json-render-diagnostics"];
        let built = Run::cargo(root, &args, SUITE_MINUTES).stdout()?;
        let e2e = root.join(E2E_FOLDER);
        let mut tally = Tally::default();
        for test in
            built.iter().filter_map(|line| TestBinary::parse(line)).filter(|test| test.folder.starts_with(&e2e) == (self == Self::E2e))
        {
            eprintln!("-- {} in {}", test.name, test.folder.display());
            // A bench measures nothing here: it runs each of its functions once.
            let args: &[&str] = if test.is_bench { &["--test"] } else { &[] };
            let run =
                Run::new(&test.folder, &test.executable, args, BINARY_MINUTES).env("CARGO_MANIFEST_DIR", &test.folder.to_string_lossy());
            let (lines, end) = run.lines(Keep::Stdout)?;
            let mut counted = lines.iter().filter_map(|line| libtest_summary(line)).fold(Tally::default(), |mut sum, tally| {
                sum.add(tally);
                sum
            });
            match end {
                Ok(()) if test.is_bench => counted.passed += 1,
                Ok(()) => {}
                Err(why) => {
                    eprintln!("{}\nerror: {why}", lines.join("\n"));
                    counted.failed = counted.failed.max(1);
                }
            }
            tally.add(counted);
        }
        if tally == Tally::default() { Err("no tests were found".to_owned()) } else { Ok(tally) }
    }
}

/// Where the development build puts the binary under test.
pub(crate) fn binary(root: &Path) -> Result<PathBuf, String> {
    let text = Run::cargo(root, &["metadata", "--locked", "--no-deps", "--format-version", "1"], 2).stdout()?.concat();
    let metadata: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata is no JSON: {e}"))?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(Path::new(target).join("debug").join("ambit"))
}

/// A test or bench that cargo has built.
struct TestBinary {
    name: String,
    folder: PathBuf,
    executable: String,
    is_bench: bool,
}

impl TestBinary {
    /// From one line of cargo's messages; `None` if it tells of anything else.
    fn parse(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_bench = message["target"]["kind"][0] == "bench";
        if message["reason"] != "compiler-artifact" || !(is_bench || message["profile"]["test"] == true) {
            return None;
        }
        Some(Self {
            name: message["target"]["name"].as_str()?.to_owned(),
            folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf(),
            executable: message["executable"].as_str()?.to_owned(),
            is_bench,
        })
    }
}

/// Reads `Summary [ 1.2s] 9 tests run: 7 passed, 1 failed, 1 timed out, 2 skipped`.
fn nextest_summary(line: &str) -> Option<Tally> {
    let (_, counts) = line.trim_start().strip_prefix("Summary [")?.split_once(" run: ")?;
    Some(Tally { passed: sum(counts, &["passed"]), failed: sum(counts, &["failed", "timed out", "exec failed"]) })
}

/// Reads `test result: ok. 5 passed; 0 failed; 0 ignored; ..`.
fn libtest_summary(line: &str) -> Option<Tally> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    Some(Tally { passed: sum(counts, &["passed"]), failed: sum(counts, &["failed"]) })
}

/// Adds up the numbers that stand before one of `words` in a list of counts.
fn sum(counts: &str, words: &[&str]) -> u32 {
    counts
        .split([',', ';'])
        .filter_map(|count| count.trim().split_once(' '))
        .filter(|(_, word)| words.iter().any(|wanted| word.split('(').next().unwrap_or_default().trim() == *wanted))
        .filter_map(|(number, _)| number.parse::<u32>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_both_runners_are_read() {
        let check = |read: fn(&str) -> Option<Tally>, line: &str, want: Option<(u32, u32)>| {
            assert_eq!(read(line).map(|tally| (tally.passed, tally.failed)), want, "{line}");
        };
        check(nextest_summary, "     Summary [   0.016s] 9 tests run: 9 passed, 0 skipped", Some((9, 0)));
        check(nextest_summary, "     Summary [   1.016s] 9 tests run: 6 passed (2 slow), 2 failed, 1 timed out, 4 skipped", Some((6, 3)));
        check(nextest_summary, "        PASS [   0.016s] core tests::summary run: 3 passed", None);
        check(
            libtest_summary,
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            Some((5, 0)),
        );
        check(libtest_summary, "test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out", Some((4, 1)));
        check(libtest_summary, "test tests::ok ... ok", None);
    }

    #[test]
    fn only_tests_and_benches_are_run() {
        let line = |kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/core/Cargo.toml","target":{{"kind":["{kind}"],"name":"x"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let check = |line: String, want: Option<bool>| assert_eq!(TestBinary::parse(&line).map(|test| test.is_bench), want, "{line}");
        check(line("lib", true, "\"/t/x\""), Some(false));
        check(line("bench", false, "\"/t/x\""), Some(true));
        check(line("bin", false, "\"/t/x\""), None);
        check(line("lib", true, "null"), None);
        check("warning: not json".to_owned(), None);
    }
}

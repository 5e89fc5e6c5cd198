//! Runs a command in the workspace, bounded in time.
//!
//! A step that outlives its limit is asked to stop, then killed: a gate that hangs says nothing.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(50);
/// From the request to stop to the kill.
const GRACE: Duration = Duration::from_secs(10);
/// Most lines kept of one output; what is beyond is still shown.
const LINES_MAX: usize = 100_000;
/// Longest wait for the rest of the output after a command has ended (a grandchild may hold the pipe).
const DRAIN: Duration = Duration::from_secs(5);

/// A command of the gate: program, arguments, environment, folder, limit.
pub(crate) struct Run {
    command: Command,
    shown: String,
    limit: Duration,
}

/// Which output is read as well as shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing: both go straight to the terminal.
    None,
    /// Standard output is kept and not shown.
    Stdout,
    /// Standard error is kept and shown line by line.
    Stderr,
}

impl Run {
    /// A command in `dir` that may take `minutes`.
    pub(crate) fn new(dir: &Path, program: &str, args: &[&str], minutes: u64) -> Self {
        let mut command = Command::new(program);
        command.current_dir(dir).args(args).stdin(Stdio::null());
        Self { command, shown: format!("{program} {}", args.join(" ")).trim_end().to_owned(), limit: Duration::from_secs(60 * minutes) }
    }

    /// `cargo` in `dir`: the one that runs us.
    pub(crate) fn cargo(dir: &Path, args: &[&str], minutes: u64) -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut run = Self::new(dir, &cargo, args, minutes);
        run.shown = format!("cargo {}", args.join(" "));
        run
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end and shows what it says. The error is a sentence for people.
    pub(crate) fn status(self) -> Result<(), String> {
        self.lines(Keep::None).and_then(|(lines, end)| {
            debug_assert!(lines.is_empty());
            end
        })
    }

    /// Runs it and returns its standard output; fails if it fails.
    pub(crate) fn stdout(self) -> Result<Vec<String>, String> {
        let (lines, end) = self.lines(Keep::Stdout)?;
        end.map(|()| lines)
    }

    /// Runs it to its end; the outer error says that it could not run, the inner one that it failed.
    pub(crate) fn lines(mut self, keep: Keep) -> Result<(Vec<String>, Result<(), String>), String> {
        match keep {
            Keep::None => {}
            Keep::Stdout => drop(self.command.stdout(Stdio::piped())),
            Keep::Stderr => drop(self.command.stderr(Stdio::piped())),
        }
        let mut child = self.command.spawn().map_err(|e| format!("`{}` does not start: {e}", self.shown))?;
        let rest = match keep {
            Keep::None => None,
            Keep::Stdout => child.stdout.take().map(|pipe| pump(pipe, false)),
            Keep::Stderr => child.stderr.take().map(|pipe| pump(pipe, true)),
        };
        let end = match wait(&mut child, self.limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("`{}` failed ({status})", self.shown)),
            None => Err(format!("`{}` was stopped after {} s", self.shown, self.limit.as_secs())),
        };
        let lines = rest.and_then(|rest| rest.recv_timeout(DRAIN).ok()).unwrap_or_default();
        Ok((lines, end))
    }
}

/// Waits for `child`, at most `limit`; `None` if it had to be stopped.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let asked = Instant::now();
    while asked.elapsed() < limit {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(Some(status));
        }
        thread::sleep(POLL);
    }
    stop(child)?;
    Ok(None)
}

/// Asks `child` to stop, waits a little, kills it. Its status is what it ended with.
pub(crate) fn stop(child: &mut Child) -> Result<ExitStatus, String> {
    // A child that has just ended makes `kill` fail; the loop below sees the same end.
    let _asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).stderr(Stdio::null()).status();
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status);
        }
        thread::sleep(POLL);
    }
    child.kill().map_err(|e| e.to_string())?;
    child.wait().map_err(|e| e.to_string())
}

/// Reads a pipe to its end in a thread of its own, which ends with the pipe.
fn pump(pipe: impl Read + Send + 'static, show: bool) -> Receiver<Vec<String>> {
    let (done, rest) = sync_channel(1);
    thread::spawn(move || {
        let mut kept = Vec::new();
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if show {
                eprintln!("{line}");
            }
            if kept.len() < LINES_MAX {
                kept.push(line);
            }
        }
        // Nobody listens any more if the step gave up; then nobody needs it.
        let _heard = done.send(kept);
    });
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_and_the_end_is_told() {
        let here = Path::new(".");
        assert_eq!(Run::new(here, "sh", &["-c", "echo one; echo two"], 1).stdout().unwrap(), ["one", "two"]);
        let (lines, end) = Run::new(here, "sh", &["-c", "echo why >&2; exit 3"], 1).lines(Keep::Stderr).unwrap();
        assert_eq!(lines, ["why"]);
        assert!(end.unwrap_err().contains("exit status: 3"));
        assert!(Run::new(here, "/no/such/program", &[], 1).status().unwrap_err().contains("does not start"));
    }

    #[test]
    fn what_outlives_its_limit_is_stopped() {
        let mut run = Run::new(Path::new("."), "sh", &["-c", "exec sleep 60"], 1);
        run.limit = Duration::from_millis(120);
        assert!(run.status().unwrap_err().contains("was stopped"));
    }
}

//! Runs what the documents say: every line that begins with `$ ` in a fence marked `console`.
//!
//! The commands of one page run in order, in one fresh folder, with the built binary on the path and every listener on
//! a free port. `cargo run --release -- X` runs as `ambit X` and `cargo xtask` is only looked up: what they build is
//! built already. `ambit serve` stays up for the rest of the page and must end well when it is asked to.
//! A line may end with `# exit N` if it is meant to fail. What a command prints is not compared.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use crate::exec;
use crate::suite::{self, Tally};

/// Longest run of one line.
const LINE_LIMIT: Duration = Duration::from_secs(120);
/// Longest wait for a server to say where it listens.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// The listeners of a server.
const LISTENERS: [Listener; 2] = [
    Listener { written: "127.0.0.1:8080", variable: "AMBIT_SERVER__LISTEN", said: "listening on " },
    Listener { written: "127.0.0.1:8081", variable: "AMBIT_SERVER__ADMIN_LISTEN", said: "admin on " },
];
/// Pages that are run.
const PAGES: [&str; 2] = ["README.md", "docs"];

/// One listener of a server.
struct Listener {
    /// Its address as the documents have it.
    written: &'static str,
    /// The variable that moves it to a free port.
    variable: &'static str,
    /// What the server says before the address that it got.
    said: &'static str,
}

/// Runs the commands of all pages.
pub(crate) fn check(root: &Path) -> Result<Tally, String> {
    let binary = suite::binary(root)?;
    let mut tally = Tally::default();
    for page in pages(root)? {
        let text = fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
        let commands = commands(&text);
        if commands.is_empty() {
            continue;
        }
        let mut session = Session::new(&binary)?;
        let mut failed = None;
        for (line, command) in &commands {
            eprintln!("-- {}:{line}: {}", page.display(), command.text);
            match session.run(command) {
                Ok(()) => tally.passed += 1,
                Err(why) => {
                    failed = Some(format!("{}:{line}: {why}", page.display()));
                    break; // What follows stands on it.
                }
            }
        }
        if let Err(why) = failed.map_or(Ok(()), Err).and(session.end()) {
            eprintln!("error: {why}");
            tally.failed += 1;
        }
    }
    if tally == Tally::default() { Err("no page has a command to run".to_owned()) } else { Ok(tally) }
}

/// The README and every page below `docs/`, sorted.
fn pages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut next: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    let mut pages = Vec::new();
    while let Some(path) = next.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))? {
                next.push(entry.map_err(|e| e.to_string())?.path());
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

/// One line to run.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    /// The exit code it must have.
    exit: i32,
}

/// The lines to run of a page, each with its number from 1. A `\` at the end joins a line with the next.
fn commands(page: &str) -> Vec<(usize, Line)> {
    let mut found: Vec<(usize, Line)> = Vec::new();
    let (mut in_console, mut joined) = (false, false);
    for (number, line) in page.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            (in_console, joined) = (!in_console && info == "console", false);
        } else if in_console {
            let text = line.strip_suffix('\\').unwrap_or(line);
            if let Some(command) = text.strip_prefix("$ ") {
                found.push((number + 1, Line { text: command.to_owned(), exit: 0 }));
            } else if let (true, Some((_, last))) = (joined, found.last_mut()) {
                last.text.push_str(text.trim_start());
            } else {
                continue; // A line of output.
            }
            joined = line.ends_with('\\');
        }
    }
    for (_, line) in &mut found {
        if let Some((text, exit)) = line.text.rsplit_once("# exit ")
            && let Ok(exit) = exit.trim().parse()
        {
            *line = Line { text: text.trim_end().to_owned(), exit };
        }
    }
    found
}

/// What is really run for a line of a document; `None` for what is only looked up.
fn translated(text: &str) -> Result<Option<String>, String> {
    if let Some(rest) = text.strip_prefix("cargo run --release -- ") {
        return Ok(Some(format!("ambit {rest}")));
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["cargo", "xtask", "check", stages @ ..] => {
            crate::check::Stage::parse(stages).map(|_| None).map_err(|word| format!("`cargo xtask check` has no stage `{word}`"))
        }
        ["cargo", ..] => Err(format!("`{text}` is no command that the documents may show")),
        _ => Ok(Some(text.to_owned())),
    }
}

/// The commands of one page: a folder, and the server if one was started.
struct Session {
    folder: PathBuf,
    path: String,
    server: Option<Server>,
}

/// A running `ambit serve` and where it listens: pairs of the written address and the real one.
struct Server {
    child: Child,
    addresses: Vec<(&'static str, String)>,
}

impl Session {
    fn new(binary: &Path) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("ambit-console-{}", std::process::id()));
        let _gone = fs::remove_dir_all(&folder); // What a run before us left behind.
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let own = binary.parent().unwrap_or(binary).to_string_lossy().into_owned();
        let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
        Ok(Self { folder, path, server: None })
    }

    fn run(&mut self, line: &Line) -> Result<(), String> {
        let Some(mut text) = translated(&line.text)? else { return Ok(()) };
        if text == "ambit serve" || text.starts_with("ambit serve ") {
            return self.serve(&text);
        }
        for (written, real) in self.server.iter().flat_map(|server| &server.addresses) {
            text = text.replace(written, real);
        }
        let mut child = self.shell(&text).spawn().map_err(|e| format!("`{text}` does not start: {e}"))?;
        match exec::wait(&mut child, LINE_LIMIT)? {
            Some(status) if status.code() == Some(line.exit) => Ok(()),
            Some(status) => Err(format!("`{}` ended with {status}, not with exit code {}", line.text, line.exit)),
            None => Err(format!("`{}` was stopped after {} s", line.text, LINE_LIMIT.as_secs())),
        }
    }

    /// Starts a server and waits until it has said where it listens.
    fn serve(&mut self, text: &str) -> Result<(), String> {
        self.stop_server()?;
        let mut command = self.shell(&format!("exec {text}"));
        for listener in &LISTENERS {
            command.env(listener.variable, "127.0.0.1:0");
        }
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(|e| format!("`{text}` does not start: {e}"))?;
        let (said, heard) = sync_channel(LISTENERS.len());
        if let Some(stderr) = child.stderr.take() {
            // Reads on after the addresses, so that the server never blocks on a full pipe; ends with the server.
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    eprintln!("{line}");
                    for listener in &LISTENERS {
                        if let Some(real) = address(&line, listener.said) {
                            let _enough = said.try_send((listener.written, real));
                        }
                    }
                }
            });
        }
        let mut addresses = Vec::new();
        while addresses.len() < LISTENERS.len() {
            let Ok(address) = heard.recv_timeout(READY_LIMIT) else {
                exec::stop(&mut child)?;
                return Err(format!("`{text}` did not say where it listens within {} s", READY_LIMIT.as_secs()));
            };
            addresses.push(address);
        }
        self.server = Some(Server { child, addresses });
        Ok(())
    }

    fn stop_server(&mut self) -> Result<(), String> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let status = exec::stop(&mut server.child)?;
        // 143 is what the documents promise for SIGTERM.
        if status.success() || status.code() == Some(143) { Ok(()) } else { Err(format!("`ambit serve` ended with {status}")) }
    }

    fn end(mut self) -> Result<(), String> {
        let end = self.stop_server();
        let _gone = fs::remove_dir_all(&self.folder); // Left to the system's own cleaning if it is still in use.
        end
    }

    fn shell(&self, text: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", text])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }
}

/// The `host:port` that stands behind `said` in a line of a server's output.
fn address(line: &str, said: &str) -> Option<String> {
    let rest = line.split_once(said)?.1.trim_start_matches("http://");
    let address: String = rest.chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect();
    let port: u16 = address.rsplit_once(':')?.1.parse().ok()?;
    (port != 0).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_lines_are_run() {
        let page = "```sh\n$ no\n```\n```console\n$ ambit run \\\n    \"hi\"\nan answer\n$ ambit run nobody # exit 2\n```\n$ no\n";
        let want = [(5, "ambit run \"hi\"", 0), (8, "ambit run nobody", 2)];
        let want: Vec<_> = want.into_iter().map(|(line, text, exit)| (line, Line { text: text.to_owned(), exit })).collect();
        assert_eq!(commands(page), want);
    }

    #[test]
    fn what_cargo_builds_is_built_already() {
        let check = |text: &str, want: Result<Option<&str>, &str>| {
            let got = translated(text);
            assert_eq!(
                got.as_ref().map(|text| text.as_deref()).map_err(|why| why.contains(want.err().unwrap_or("?"))),
                want.map_err(|_| true),
                "{text}"
            );
        };
        check("cargo run --release -- run ops \"x\"", Ok(Some("ambit run ops \"x\"")));
        check("cargo xtask check lint", Ok(None));
        check("cargo xtask check lnt", Err("no stage `lnt`"));
        check("cargo install ambit", Err("no command"));
        check("curl -s x | head -1", Ok(Some("curl -s x | head -1")));
    }

    #[test]
    fn a_line_ends_as_it_says() {
        let mut session = Session::new(Path::new("/nowhere/ambit")).unwrap();
        let line = |text: &str, exit| Line { text: text.to_owned(), exit };
        assert_eq!(session.run(&line("test \"$NO_COLOR\" = 1", 0)), Ok(()));
        assert_eq!(session.run(&line("exit 3", 3)), Ok(()));
        assert!(session.run(&line("false | cat", 0)).unwrap_err().contains("exit status: 1"));
        session.end().unwrap();
    }

    #[test]
    fn addresses_are_read_where_they_are_said() {
        let check = |line: &str, want: Option<&str>| assert_eq!(address(line, "listening on ").as_deref(), want, "{line}");
        check("listening on http://127.0.0.1:40123/", Some("127.0.0.1:40123"));
        check("ambit: listening on 127.0.0.1:40123", Some("127.0.0.1:40123"));
        check("listening on 127.0.0.1:0", None);
        check("demo service on 127.0.0.1:40123", None);
    }
}

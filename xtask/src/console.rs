//! Runs what the documents say: every line that begins with `$ ` in a fence marked `console`.
//!
//! The commands of one page run in order, in one fresh folder, with the built binary on the path and every listener on
//! a free port. `cargo run --release -- X` runs as `ambit X` and `cargo xtask` is only looked up: what they build is
//! built already. `ambit serve` stays up for the rest of the page and must end well when it is asked to.
//! A line may end with `# exit N` if it is meant to fail. What a command prints is not compared, and is shown only if it
//! ends otherwise than it should. A fence that opens with `toml ambit.toml` is written to that file of the folder.
//! A fence marked `python` or `js` is run whole, with the OpenAI client that `tests/clients/install.sh` has installed.

use std::fmt;
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
/// Where the output of a line goes, in the page's folder.
const OUTPUT: &str = ".output";
/// Where the OpenAI clients of the examples are installed.
const CLIENTS: &str = "tests/clients";
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
        let acts = acts(&text);
        if acts.is_empty() {
            continue;
        }
        let mut session = Session::new(root, &binary)?;
        let mut failed = None;
        for (line, act) in &acts {
            eprintln!("-- {}:{line}: {act}", page.display());
            match session.act(act) {
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

/// What a page does.
#[derive(Debug, PartialEq, Eq)]
enum Act {
    /// Runs a line, which must end with `exit`.
    Run { text: String, exit: i32 },
    /// Writes a file.
    Write { file: String, text: String },
    /// Runs a program, which must end well.
    Program { language: Language, text: String },
}

/// What a program is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Js,
}

impl Language {
    const ALL: [Self; 2] = [Self::Python, Self::Js];

    /// The mark of its fences.
    fn mark(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Js => "js",
        }
    }

    /// The file that a program is written to, and how it is run, below the folder of the clients if a path is given.
    fn run(self) -> (&'static str, &'static str) {
        match self {
            Self::Python => ("example.py", "python/.venv/bin/python"),
            Self::Js => ("example.mjs", "node"),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { text, .. } => f.write_str(text),
            Self::Write { file, .. } => write!(f, "(writes {file})"),
            Self::Program { language, .. } => write!(f, "(runs {})", language.run().0),
        }
    }
}

/// Inside which fence a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fence {
    Console,
    /// All of it belongs to the act before.
    Whole,
    Other,
}

/// The acts of a page, each with its line from 1. A `\` at the end of a line to run joins it with the next.
fn acts(page: &str) -> Vec<(usize, Act)> {
    let mut found: Vec<(usize, Act)> = Vec::new();
    let (mut fence, mut joined) = (None, false);
    for (number, line) in page.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            joined = false;
            fence = match (fence, info.split_once(' ')) {
                (Some(_), _) => None,
                (None, Some((_, file))) => {
                    found.push((number + 1, Act::Write { file: file.to_owned(), text: String::new() }));
                    Some(Fence::Whole)
                }
                (None, None) if info == "console" => Some(Fence::Console),
                (None, None) => match Language::ALL.into_iter().find(|language| language.mark() == info) {
                    Some(language) => {
                        found.push((number + 1, Act::Program { language, text: String::new() }));
                        Some(Fence::Whole)
                    }
                    None => Some(Fence::Other),
                },
            };
        } else if fence == Some(Fence::Whole) {
            if let Some((_, Act::Write { text, .. } | Act::Program { text, .. })) = found.last_mut() {
                text.push_str(line);
                text.push('\n');
            }
        } else if fence == Some(Fence::Console) {
            let part = line.strip_suffix('\\').unwrap_or(line);
            if let Some(command) = part.strip_prefix("$ ") {
                found.push((number + 1, Act::Run { text: command.to_owned(), exit: 0 }));
            } else if let (true, Some((_, Act::Run { text, .. }))) = (joined, found.last_mut()) {
                text.push_str(part.trim_start());
            } else {
                continue; // A line of output.
            }
            joined = line.ends_with('\\');
        }
    }
    for (_, act) in &mut found {
        if let Act::Run { text, exit } = act
            && let Some((command, code)) = text.rsplit_once("# exit ")
            && let Ok(code) = code.trim().parse()
        {
            (*exit, *text) = (code, command.trim_end().to_owned());
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
    clients: PathBuf,
    path: String,
    server: Option<Server>,
}

/// A running `ambit serve` and where it listens: pairs of the written address and the real one.
struct Server {
    child: Child,
    addresses: Vec<(&'static str, String)>,
}

impl Session {
    fn new(root: &Path, binary: &Path) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("ambit-console-{}", std::process::id()));
        let _gone = fs::remove_dir_all(&folder); // What a run before us left behind.
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let own = binary.parent().unwrap_or(binary).to_string_lossy().into_owned();
        let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
        Ok(Self { folder, clients: root.join(CLIENTS), path, server: None })
    }

    fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Run { text, exit } => self.run(text, *exit),
            Act::Write { file, text } => fs::write(self.folder.join(file), text).map_err(|e| format!("{file}: {e}")),
            Act::Program { language, text } => self.program(*language, text),
        }
    }

    /// Runs a program from a file in the folder, beside which its client is found.
    fn program(&mut self, language: Language, text: &str) -> Result<(), String> {
        let (file, runner) = language.run();
        let runner = if runner.contains('/') { self.clients.join(runner) } else { PathBuf::from(runner) };
        let packages = self.clients.join("node/node_modules");
        for installed in [&packages, &self.clients.join("python/.venv")] {
            if !installed.is_dir() {
                return Err(format!("{} is missing; hint: run `{CLIENTS}/install.sh`", installed.display()));
            }
        }
        let beside = self.folder.join("node_modules");
        if !beside.exists() {
            std::os::unix::fs::symlink(&packages, &beside).map_err(|e| format!("{}: {e}", beside.display()))?;
        }
        fs::write(self.folder.join(file), self.moved(text)).map_err(|e| format!("{file}: {e}"))?;
        self.run(&format!("'{}' {file}", runner.display()), 0)
    }

    /// A text with the addresses that the server really has.
    fn moved(&self, text: &str) -> String {
        let addresses = self.server.iter().flat_map(|server| &server.addresses);
        addresses.fold(text.to_owned(), |text, (written, real)| text.replace(written, real))
    }

    fn run(&mut self, shown: &str, exit: i32) -> Result<(), String> {
        let Some(text) = translated(shown)? else { return Ok(()) };
        if text == "ambit serve" || text.starts_with("ambit serve ") {
            return self.serve(&text);
        }
        let text = self.moved(&text);
        let output = self.folder.join(OUTPUT);
        let file = fs::File::create(&output).map_err(|e| format!("{OUTPUT}: {e}"))?;
        let both = file.try_clone().map_err(|e| format!("{OUTPUT}: {e}"))?;
        let mut child = self.shell(&text).stdout(file).stderr(both).spawn().map_err(|e| format!("`{text}` does not start: {e}"))?;
        let why = match exec::wait(&mut child, LINE_LIMIT)? {
            Some(status) if status.code() == Some(exit) => return Ok(()),
            Some(status) => format!("`{shown}` ended with {status}, not with exit code {exit}"),
            None => format!("`{shown}` was stopped after {} s", LINE_LIMIT.as_secs()),
        };
        eprintln!("{}", fs::read_to_string(&output).unwrap_or_default());
        Err(why)
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
                return Err(format!("`{text}` ended, or did not say within {} s where it listens", READY_LIMIT.as_secs()));
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
    fn only_what_is_marked_is_done() {
        let run = |text: &str, exit| Act::Run { text: text.to_owned(), exit };
        let write = |file: &str, text: &str| Act::Write { file: file.to_owned(), text: text.to_owned() };
        let check = |page: &str, want: Vec<(usize, Act)>| assert_eq!(acts(page), want, "{page}");
        check("```sh\n$ no\n```\n$ no\n", vec![]);
        check("```console\n$ ambit run \\\n    \"hi\"\nan answer\n```\n", vec![(2, run("ambit run \"hi\"", 0))]);
        check("```console\n$ a # exit 2\n$ b # why\n```\n", vec![(2, run("a", 2)), (3, run("b # why", 0))]);
        check(
            "```python\nimport x\n\nx()\n```\n```python no\n",
            vec![(1, Act::Program { language: Language::Python, text: "import x\n\nx()\n".to_owned() }), (6, write("no", ""))],
        );
        check("```js\n$ x\n```\n", vec![(1, Act::Program { language: Language::Js, text: "$ x\n".to_owned() })]);
        check("```toml\n[no]\n```\n```toml a.toml\n[yes]\n\n$ x\n```\n", vec![(4, write("a.toml", "[yes]\n\n$ x\n"))]);
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
        let mut session = Session::new(Path::new("/nowhere"), Path::new("/nowhere/ambit")).unwrap();
        session.act(&Act::Write { file: "note".to_owned(), text: "well\n".to_owned() }).unwrap();
        assert_eq!(session.run("test \"$NO_COLOR$(cat note)\" = 1well", 0), Ok(()));
        assert_eq!(session.run("exit 3", 3), Ok(()));
        let program = Act::Program { language: Language::Js, text: String::new() };
        assert!(session.act(&program).unwrap_err().contains("install.sh"));
        assert!(session.run("false | cat", 0).unwrap_err().contains("exit status: 1"));
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

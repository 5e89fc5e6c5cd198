//! The real `ambit` binary as a child.
//!
//! A [`Launch`] is a folder with a configuration, an environment and arguments; it can be started again and again on the
//! same folder, which is what crash tests do. [`Launch::serve`] waits until the server has printed its two addresses;
//! [`Launch::run`] waits for the end of a command.
//!
//! *Invariants.* The environment is empty but for what is named here, so that no variable of the developer changes a test.
//! Both listeners bind port 0. A child is in a process group of its own; dropping it kills the group and every descendant.

mod family;
pub(crate) mod output;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use family::Family;
pub use family::Member;
use output::Output;

use crate::WAIT_MAX;
use crate::pty::Pty;

/// What the server prints on stderr before its API address.
const LISTENING: &str = "listening on ";

/// What the server prints on stderr before its admin address.
const ADMIN: &str = "admin on ";

/// What the server logs, with both addresses, before it is ready.
const STARTING: &str = "starting";

/// Name of the configuration file in the folder.
const CONFIG: &str = "ambit.toml";

/// Variable by which the gate names the binary under test.
const BINARY: &str = "AMBIT_BIN";

/// The binary under test: the one that the gate names, else `target/<profile>/ambit`, next to the running test.
///
/// # Panics
/// When it is not there, saying how to build it.
#[must_use]
pub fn binary() -> PathBuf {
    let built = || {
        let test = std::env::current_exe().expect("the path of the running test");
        let folder = test.parent().filter(|folder| folder.ends_with("deps")).and_then(Path::parent).or(test.parent());
        folder.expect("a test stands in a folder").join("ambit")
    };
    let binary = std::env::var_os(BINARY).map_or_else(built, PathBuf::from);
    assert!(binary.is_file(), "the binary `{}` is missing; hint: `cargo build --workspace` builds it", binary.display());
    binary
}

/// A way to start `ambit`. Clones share the folder.
#[derive(Debug, Clone)]
pub struct Launch {
    folder: Arc<TempDir>,
    env: BTreeMap<String, String>,
    arguments: Vec<String>,
    file_size_max: Option<u64>,
}

impl Launch {
    /// With a folder of its own that is removed with the last clone, and this configuration in it.
    ///
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn with(config: &str) -> Launch {
        let launch = Launch::bare();
        launch.write(CONFIG, config);
        launch
    }

    /// With an empty folder: the shipped profile `default` and nothing else.
    ///
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn bare() -> Launch {
        let folder = tempfile::Builder::new().prefix("ambit-test-").tempdir().expect("a temporary folder");
        let mut env = BTreeMap::new();
        for (name, value) in [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", folder.path().display().to_string()),
            ("NO_COLOR", "1".to_owned()),
            ("AMBIT_SERVER__LISTEN", "127.0.0.1:0".to_owned()),
            ("AMBIT_SERVER__ADMIN_LISTEN", "127.0.0.1:0".to_owned()),
        ] {
            env.insert(name.to_owned(), value);
        }
        Launch { folder: Arc::new(folder), env, arguments: Vec::new(), file_size_max: None }
    }

    /// The folder: working directory of the child and home of its database.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file below the folder.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.folder().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a folder for the file");
        }
        std::fs::write(&path, content).expect("a file in the temporary folder");
    }

    /// With this variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Launch {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Without this variable.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Launch {
        self.env.remove(name);
        self
    }

    /// With this argument after the command, on every start.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Launch {
        self.arguments.push(argument.to_owned());
        self
    }

    /// With files limited to so many KiB: a write beyond fails, which stands in for a full disk.
    #[must_use]
    pub fn file_size_max(mut self, kib: u64) -> Launch {
        self.file_size_max = Some(kib);
        self
    }

    /// Starts `ambit` with these arguments and does not wait.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = started(command, arguments);
        let stdout = Output::of(child.stdout.take().expect("stdout is piped"));
        let stderr = Output::of(child.stderr.take().expect("stderr is piped"));
        self.running(child, stdout, stderr)
    }

    /// The same with stderr on a terminal, whose screen stands in the child's stderr then.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_on_terminal(&self, arguments: &[&str]) -> Running {
        let pty = Pty::open();
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(pty.stream());
        let mut child = started(command, arguments);
        let stdout = Output::of(child.stdout.take().expect("stdout is piped"));
        self.running(child, stdout, Output::of(tokio::fs::File::from_std(pty.into_screen())))
    }

    /// The same with stdout and stderr on one terminal, as in front of a person; stdout is empty then.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_in_terminal(&self, arguments: &[&str]) -> Running {
        let pty = Pty::open();
        let mut command = self.command(arguments);
        command.stdout(pty.stream()).stderr(pty.stream());
        let child = started(command, arguments);
        self.running(child, Output::of(tokio::io::empty()), Output::of(tokio::fs::File::from_std(pty.into_screen())))
    }

    /// The same with stdout into what is given; it is empty then.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_into(&self, stdout: impl Into<Stdio>, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        command.stdout(stdout).stderr(Stdio::piped());
        let mut child = started(command, arguments);
        let stderr = Output::of(child.stderr.take().expect("stderr is piped"));
        self.running(child, Output::of(tokio::io::empty()), stderr)
    }

    fn running(&self, child: Child, stdout: Output, stderr: Output) -> Running {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).expect("a child that was not awaited has an id");
        Running { child, stdout, stderr, family: Family::of(pid), _folder: Arc::clone(&self.folder) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match self.file_size_max {
            // Ignored signals survive exec: the write then fails with an error instead of killing the process.
            Some(kib) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", kib * 2)).arg(binary());
                shell
            }
            None => Command::new(binary()),
        };
        command.args(arguments).args(&self.arguments).current_dir(self.folder()).env_clear().envs(&self.env);
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        command
    }

    /// Runs `ambit` with these arguments to its end, at most [`WAIT_MAX`].
    ///
    /// # Panics
    /// When it does not end.
    pub async fn run(&self, arguments: &[&str]) -> Finished {
        self.spawn(arguments).finish().await
    }

    /// The same with a text on stdin.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn run_fed(&self, input: &str, arguments: &[&str]) -> Finished {
        self.write("stdin.txt", input);
        let file = std::fs::File::open(self.folder().join("stdin.txt")).expect("it was just written");
        let mut command = self.command(arguments);
        command.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = started(command, arguments);
        let stdout = Output::of(child.stdout.take().expect("stdout is piped"));
        let stderr = Output::of(child.stderr.take().expect("stderr is piped"));
        self.running(child, stdout, stderr).finish().await
    }

    /// Starts `ambit serve` and waits until it has printed both addresses.
    ///
    /// # Panics
    /// When it ends or stays silent instead, with its stderr.
    pub async fn serve(&self) -> Ambit {
        let announced =
            |line: &str, what: &str| line.split_once(what).filter(|(_, url)| url.starts_with("http://")).map(|(_, url)| url_of(url));
        self.serve_until(|text| Some((find(text, |line| announced(line, LISTENING))?, find(text, |line| announced(line, ADMIN))?))).await
    }

    /// Starts `ambit serve` and waits until it has logged both addresses: it may not be ready for a while.
    ///
    /// # Panics
    /// When it ends or stays silent instead, with its stderr.
    pub async fn serve_starting(&self) -> Ambit {
        self.serve_until(|text| {
            find(text, |line| {
                let logged: serde_json::Value =
                    serde_json::from_str(line).ok().filter(|line: &serde_json::Value| line["message"] == STARTING)?;
                let url = |key: &str| logged[key].as_str().map(|address| format!("http://{address}"));
                Some((url("api")?, url("admin")?))
            })
        })
        .await
    }

    async fn serve_until(&self, addresses: impl Fn(&str) -> Option<(String, String)>) -> Ambit {
        let mut running = self.spawn(&["serve"]);
        let addresses = running.stderr.wait_for(addresses);
        let found = tokio::select! {
            found = tokio::time::timeout(WAIT_MAX, addresses) => found.ok().flatten(),
            _ = running.child.wait() => None,
        };
        match found {
            Some((url, admin_url)) => Ambit { running, url, admin_url },
            None => {
                let status = running.child.try_wait();
                // What it said last may still be on its way through the pipe.
                let _ = tokio::time::timeout(Duration::from_secs(1), running.stderr.closed()).await;
                panic!("`ambit serve` did not come up ({status:?}); its stderr:\n{}", running.stderr.text())
            }
        }
    }
}

fn started(mut command: Command, arguments: &[&str]) -> Child {
    match command.spawn() {
        Ok(child) => child,
        Err(error) => panic!("`ambit {}` does not start: {error}", arguments.join(" ")),
    }
}

/// The first line, of those that are whole, of which this makes something: a line may arrive in parts.
fn find<T>(stderr: &str, of: impl Fn(&str) -> Option<T>) -> Option<T> {
    let (whole, _) = stderr.rsplit_once('\n')?;
    whole.lines().find_map(of)
}

fn url_of(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c == '"').next().unwrap_or_default().to_owned()
}

/// A running server.
#[derive(Debug)]
pub struct Ambit {
    running: Running,
    url: String,
    admin_url: String,
}

impl Ambit {
    /// The base URL of the API, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.trim_end_matches('/')
    }

    /// The base URL of the admin listener, without a slash at the end.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        self.admin_url.trim_end_matches('/')
    }

    /// The process.
    #[must_use]
    pub fn process(&mut self) -> &mut Running {
        &mut self.running
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.running.stderr()
    }

    /// Memory that is resident now, bytes; 0 where the system does not tell.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.running.family.resident()
    }

    /// Descendants that live now: MCP servers.
    #[must_use]
    pub fn descendants(&self) -> Vec<Member> {
        self.running.descendants()
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Panics
    /// When it does not end within [`WAIT_MAX`].
    pub async fn terminate(self) -> Finished {
        self.running.terminate();
        self.running.finish().await
    }

    /// Waits for an end that was asked for otherwise.
    ///
    /// # Panics
    /// When it does not end within [`WAIT_MAX`].
    pub async fn end(self) -> Finished {
        self.running.finish().await
    }

    /// Sends SIGKILL and waits for the end. Its children are left to themselves, as after a crash, until the value of this
    /// call is dropped.
    ///
    /// # Panics
    /// When it does not end within [`WAIT_MAX`].
    pub async fn crash(self) -> Finished {
        self.running.crash();
        self.running.finish().await
    }
}

/// A started child. Dropping it kills its process group and every descendant.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Output,
    stderr: Output,
    family: Family,
    _folder: Arc<TempDir>,
}

impl Running {
    /// What it wrote to stdout so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until stdout satisfies `condition`.
    ///
    /// # Panics
    /// When it does not within [`WAIT_MAX`].
    pub async fn stdout_says(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let said = self.stdout.wait_for(|text| condition(text).then_some(()));
        if tokio::time::timeout(WAIT_MAX, said).await.ok().flatten().is_none() {
            panic!("stdout does not say {what}:\n{}\n--- stderr\n{}", self.stdout(), self.stderr());
        }
    }

    /// Waits until stderr satisfies `condition`.
    ///
    /// # Panics
    /// When it does not within [`WAIT_MAX`].
    pub async fn stderr_says(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let said = self.stderr.wait_for(|text| condition(text).then_some(()));
        if tokio::time::timeout(WAIT_MAX, said).await.ok().flatten().is_none() {
            panic!("stderr does not say {what}:\n{}", self.stderr());
        }
    }

    /// Descendants that live now.
    #[must_use]
    pub fn descendants(&self) -> Vec<Member> {
        self.family.descendants()
    }

    /// Sends SIGTERM to the child alone.
    pub fn terminate(&self) {
        self.family.terminate();
    }

    /// Sends SIGINT to the child alone.
    pub fn interrupt(&self) {
        self.family.interrupt();
    }

    /// Sends SIGHUP to the child alone.
    pub fn hang_up(&self) {
        self.family.hang_up();
    }

    /// Sends SIGKILL to the child alone.
    pub fn crash(&self) {
        self.family.crash();
    }

    /// Waits for its end, at most [`WAIT_MAX`].
    ///
    /// # Panics
    /// When it does not end.
    pub async fn finish(mut self) -> Finished {
        let status = match tokio::time::timeout(WAIT_MAX, self.child.wait()).await {
            Ok(status) => status.expect("the status of a child"),
            Err(_) => panic!("`ambit` does not end; its stderr:\n{}", self.stderr()),
        };
        // A descendant may hold the pipes open for longer; what the child itself wrote is there at once.
        let closed = async { tokio::join!(self.stdout.closed(), self.stderr.closed()) };
        let _ = tokio::time::timeout(Duration::from_secs(5), closed).await;
        Finished { status, stdout: self.stdout.text(), stderr: self.stderr.text(), _family: self.family }
    }
}

/// What is left of a child that ended. Dropping it kills descendants that outlived it.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its stdout, up to 4 MiB.
    pub stdout: String,
    /// All of its stderr, up to 4 MiB.
    pub stderr: String,
    _family: Family,
}

impl Finished {
    /// The exit code; `None` when a signal ended it.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts the exit code.
    ///
    /// # Panics
    /// When it is another, with all output.
    pub fn assert_code(&self, code: i32) -> &Finished {
        assert!(
            self.code() == Some(code),
            "exit code {code} was expected, not {}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Asserts that stderr contains a text.
    ///
    /// # Panics
    /// When it does not, with all of it.
    pub fn assert_stderr(&self, text: &str) -> &Finished {
        assert!(self.stderr.contains(text), "stderr does not contain `{text}`:\n{}", self.stderr);
        self
    }
}

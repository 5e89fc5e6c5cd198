//! A server's process and all that it has started: one group, which dies as a whole.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use secrecy::ExposeSecret;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::options::McpEndpoint;

/// A process group. Dropping it kills every process in it, at once and without asking.
#[derive(Debug)]
pub(crate) struct Group {
    /// Never waited for before the group is killed: as long as its leader is not reaped, nobody else gets its number.
    leader: Child,
    id: Option<Pid>,
}

/// The ends of a child's standard streams.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Group {
    /// Starts a program in a group of its own, with nothing of our environment.
    pub(crate) fn start(endpoint: &McpEndpoint) -> io::Result<(Self, Pipes)> {
        let McpEndpoint::Stdio { command, args, env, path, folder } = endpoint else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a program"));
        };
        let mut program = Command::new(command);
        program
            .args(args)
            .env_clear()
            .env("PATH", path)
            .envs(env.iter().map(|(name, value)| (name, value.expose_secret())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = folder {
            program.current_dir(folder);
        }
        let mut leader = program.spawn()?;
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pipes = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        // From here on, whatever happens, the group dies with this value.
        let group = Self { leader, id };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the program has no pipes"));
        };
        Ok((group, Pipes { stdin, stdout, stderr }))
    }

    /// Gives the leader some time to end by itself once its input is closed; what is left of the group is killed.
    pub(crate) async fn end(mut self, patience: Duration) {
        // Numbers are given out in turn, so that of a leader reaped just now is nobody else's when its group is killed.
        let _ = tokio::time::timeout(patience, self.leader.wait()).await;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // It may be gone already, which is what was wanted.
            let _ = killpg(id, Signal::SIGKILL);
        }
    }
}

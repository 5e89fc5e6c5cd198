//! A child, its process group and its descendants, which may have groups of their own (MCP servers do).
//!
//! A process is named by its id *and* its start time, so that a reused id is never signalled.

use std::fs;
use std::sync::{Mutex, PoisonError};

/// A living descendant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub pid: i32,
    /// Clock ticks since boot at which it started: with the id it names the process for good.
    pub started: u64,
    /// Its parent.
    pub parent: i32,
    /// The name of its program, at most 15 bytes.
    pub name: String,
}

impl Member {
    /// Whether it still lives (a zombie does not).
    #[must_use]
    pub fn lives(&self) -> bool {
        read(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// Kills the group and all descendants on drop.
#[derive(Debug)]
pub(super) struct Family {
    head: i32,
    started: Option<u64>,
    /// Descendants seen at the moment of a signal: after a crash nothing else leads to them.
    seen: Mutex<Vec<Member>>,
}

impl Family {
    /// Resident memory of the head alone, bytes.
    pub(super) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.head)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
        kib.unwrap_or_default() * 1024
    }

    pub(super) fn of(head: i32) -> Family {
        Family { head, started: read(head).map(|member| member.started), seen: Mutex::default() }
    }

    pub(super) fn descendants(&self) -> Vec<Member> {
        descendants(self.head)
    }

    pub(super) fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    pub(super) fn interrupt(&self) {
        self.signal(libc::SIGINT);
    }

    pub(super) fn hang_up(&self) {
        self.signal(libc::SIGHUP);
    }

    pub(super) fn crash(&self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(&self, signal: i32) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend(self.descendants());
        if self.is_head_alive() {
            send(self.head, signal);
        }
    }

    fn is_head_alive(&self) -> bool {
        read(self.head).is_some_and(|now| Some(now.started) == self.started)
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let mut all = std::mem::take(self.seen.get_mut().unwrap_or_else(PoisonError::into_inner));
        if self.is_head_alive() {
            all.extend(self.descendants());
            send(-self.head, libc::SIGKILL);
        }
        for member in all.iter().filter(|member| member.lives()) {
            send(member.pid, libc::SIGKILL);
        }
    }
}

/// All living descendants of a process, parents before children.
fn descendants(head: i32) -> Vec<Member> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    let all: Vec<Member> = pids.filter_map(read).collect();
    let mut found: Vec<Member> = Vec::new();
    let mut parents = vec![head];
    while let Some(parent) = parents.pop() {
        for member in all.iter().filter(|member| member.parent == parent) {
            parents.push(member.pid);
            found.push(member.clone());
        }
    }
    found
}

/// Reads `/proc/PID/stat`; `None` for what is gone or a zombie.
fn read(pid: i32) -> Option<Member> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself hold blanks and parentheses.
    let (front, back) = stat.rsplit_once(')')?;
    let name = front.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = back.split_whitespace().collect();
    let (state, parent, started) = (fields.first()?, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
    (!matches!(*state, "Z" | "X")).then_some(Member { pid, started, parent, name })
}

#[expect(unsafe_code, reason = "there is no safe way in std to signal a process group")]
fn send(pid: i32, signal: i32) {
    // SAFETY: kill has no memory effects; the id was checked to be a child of ours just before.
    unsafe { libc::kill(pid, signal) };
}

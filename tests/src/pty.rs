//! A real pseudo-terminal, and what stands on its screen after everything that was written to it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use nix::pty::{Winsize, openpty};

/// Columns of the terminal.
pub const COLUMNS: u16 = 100;
/// Rows of it.
const ROWS: u16 = 40;

/// A pseudo-terminal: the end that a child writes to, and the end that shows it.
#[derive(Debug)]
pub struct Pty {
    child: OwnedFd,
    screen: File,
}

impl Pty {
    /// Opens one.
    ///
    /// # Panics
    /// When the system gives none.
    #[must_use]
    pub fn open() -> Pty {
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo-terminal");
        Pty { child: pair.slave, screen: File::from(pair.master) }
    }

    /// The child's end, for one more of its streams.
    ///
    /// # Panics
    /// When there are no more descriptors.
    #[must_use]
    pub fn stream(&self) -> Stdio {
        Stdio::from(self.child.try_clone().expect("another descriptor"))
    }

    /// The end that shows what was written; the child's end is closed here, so that it ends with the child.
    #[must_use]
    pub fn into_screen(self) -> File {
        self.screen
    }
}

/// The lines on a screen of [`COLUMNS`] columns and as many rows as needed, after `written`. Knows what bars are drawn with:
/// carriage return, line feed, cursor up and down, erase; colours are left out.
#[must_use]
pub fn screen(written: &str) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                let mut number = String::new();
                let command = chars.by_ref().skip_while(|c| *c == '[').find(|c| {
                    if c.is_ascii_digit() || matches!(c, ';' | '?') {
                        number.push(*c);
                    }
                    c.is_ascii_alphabetic()
                });
                let n = number.parse::<usize>().unwrap_or(1);
                match command {
                    Some('A') => row = row.saturating_sub(n),
                    Some('B') => row += n,
                    Some('K') => {
                        if let Some(line) = rows.get_mut(row) {
                            line.clear();
                        }
                    }
                    Some('J') => rows.truncate(row + 1),
                    _ => {}
                }
            }
            _ => {
                if column == usize::from(COLUMNS) {
                    (row, column) = (row + 1, 0);
                }
                while rows.len() <= row {
                    rows.push(Vec::new());
                }
                let line = &mut rows[row];
                while line.len() <= column {
                    line.push(' ');
                }
                line[column] = c;
                column += 1;
            }
        }
    }
    let mut lines: Vec<String> = rows.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_again_is_seen_once() {
        let full = "x".repeat(COLUMNS.into());
        assert_eq!(screen("one\r\ntwo\r\x1b[2Kthree\x1b[1A\rO"), ["One", "three"]);
        assert_eq!(screen(&format!("{full}y\x1b[1A\r\x1b[2K\x1b[1B\r\x1b[2K\x1b[1A\x1b[2mz\x1b[0m")), ["z"]);
    }
}

//! The two places where a command line speaks: data on stdout, everything else on stderr.
//!
//! A closed pipe is no error: whoever reads has had enough. Any other failure to write data is one, remembered here and
//! told once at the end ([`end`]): a script must not take half of an output for the whole.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit;

/// Set once nobody reads stdout any more.
static GONE: AtomicBool = AtomicBool::new(false);
/// Why data could not be written.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes a line of data to stdout.
macro_rules! out {
    ($($arg:tt)*) => { $crate::output::line(format_args!($($arg)*)) };
}

/// Writes a line for a person to stderr. Where that fails there is nobody left to tell.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($arg)*);
    }};
}

pub(crate) use {out, say};

/// A line of data.
pub(crate) fn line(line: fmt::Arguments<'_>) {
    keep(writeln!(io::stdout().lock(), "{line}"));
}

/// A piece of data that does not end its line, shown at once.
pub(crate) fn piece(text: &str) {
    let mut stdout = io::stdout().lock();
    keep(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// True once nothing that is written to stdout arrives: whatever has no end of its own ends now.
pub(crate) fn is_gone() -> bool {
    GONE.load(Ordering::Relaxed) || FAILED.get().is_some()
}

/// The exit code, or that of a failure if some data was not written.
pub(crate) fn end(code: ExitCode) -> ExitCode {
    keep(io::stdout().lock().flush());
    match FAILED.get() {
        Some(failed) => {
            say!("error: the output could not be written: {failed}");
            ExitCode::from(exit::FAILURE)
        }
        None => code,
    }
}

fn keep(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => GONE.store(true, Ordering::Relaxed),
        // The first one is the cause, whatever follows it.
        Err(error) => drop(FAILED.set(error)),
    }
}

/// A text of somebody else's, made safe for a terminal: what moves a cursor, changes a title or turns the direction of
/// writing becomes a replacement character; line feeds and tabs stay.
pub(crate) fn plain(text: &str) -> String {
    let drives = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if drives(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_cannot_drive_a_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\rc\u{9b}1md\te\nf"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}1md\te\nf");
        assert_eq!(plain("pay\u{202e}gnp.exe\u{2066}"), "pay\u{fffd}gnp.exe\u{fffd}");
    }
}

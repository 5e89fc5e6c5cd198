//! The two places where a command line speaks: data on stdout, everything else on stderr.
//!
//! A closed pipe is no error: whoever reads has had enough.

/// Writes a line of data to stdout.
macro_rules! out {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout().lock(), $($arg)*);
    }};
}

/// Writes a line for a person to stderr.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($arg)*);
    }};
}

pub(crate) use {out, say};

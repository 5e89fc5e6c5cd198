//! Reads server-sent events out of bytes as they come, in any cut.
//!
//! Lines end with LF, CR LF or CR, also mixed, and a CR at the end of a read may belong to an LF of the next. Text may be
//! cut inside a character. Comments, ids and unknown fields are skipped. An end of file ends the last line and the last
//! event. **Invariant:** a line is never longer than `line_max`, an answer never larger than `total_max`, both bytes;
//! the events that come out do not depend on how the bytes were cut.

use std::collections::VecDeque;

/// What a stream may not exceed, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) line_max: usize,
    pub(crate) total_max: usize,
}

/// Which bound a stream exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooLarge {
    /// One line.
    Line(usize),
    /// All of it.
    Total(usize),
}

/// A reader of one stream.
#[derive(Debug)]
pub(crate) struct Reader {
    bounds: Bounds,
    /// The line under way.
    line: Vec<u8>,
    /// The data of the event under way; `None` while it has none.
    data: Option<String>,
    total: usize,
    after_cr: bool,
    at_start: bool,
    events: VecDeque<String>,
}

impl Reader {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, line: Vec::new(), data: None, total: 0, after_cr: false, at_start: true, events: VecDeque::new() }
    }

    /// Takes bytes as they were read.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        self.total = self.total.saturating_add(bytes.len());
        if self.total > self.bounds.total_max {
            return Err(TooLarge::Total(self.bounds.total_max));
        }
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.extend(bytes);
            };
            self.extend(&bytes[..end])?;
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.line_ends();
        }
        Ok(())
    }

    /// The stream is over: what is pending counts as ended.
    pub(crate) fn finish(&mut self) {
        if !self.line.is_empty() {
            self.line_ends();
        }
        self.dispatch();
    }

    /// The data of the next event.
    pub(crate) fn next(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.line.len() + bytes.len() > self.bounds.line_max {
            return Err(TooLarge::Line(self.bounds.line_max));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ends(&mut self) {
        let line = std::mem::take(&mut self.line);
        let mut bytes = &line[..];
        if std::mem::take(&mut self.at_start) {
            bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        }
        if bytes.is_empty() {
            self.dispatch();
        } else if let Some(value) = bytes.strip_prefix(b"data") {
            match value {
                [] => self.append(b""),
                [b':', b' ', value @ ..] | [b':', value @ ..] => self.append(value),
                _ => {}
            }
        }
        // Its memory serves the next line.
        self.line = line;
        self.line.clear();
    }

    fn append(&mut self, value: &[u8]) {
        let value = String::from_utf8_lossy(value);
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&value);
            }
            None => self.data = Some(value.into_owned()),
        }
    }

    fn dispatch(&mut self) {
        if let Some(data) = self.data.take() {
            self.events.push_back(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGE: Bounds = Bounds { line_max: 1 << 20, total_max: 1 << 20 };

    /// The events of a stream that arrives in these pieces.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut reader = Reader::new(LARGE);
        let mut events = Vec::new();
        for piece in pieces {
            reader.feed(piece).unwrap();
            events.extend(std::iter::from_fn(|| reader.next()));
        }
        reader.finish();
        events.extend(std::iter::from_fn(|| reader.next()));
        events
    }

    fn check(stream: &str, expected: &[&str]) {
        assert_eq!(read([stream.as_bytes()]), expected, "{stream:?} whole");
        for at in 0..=stream.len() {
            let (left, right) = stream.as_bytes().split_at(at);
            assert_eq!(read([left, right]), expected, "{stream:?} cut at {at}");
        }
        assert_eq!(read(stream.as_bytes().chunks(1)), expected, "{stream:?} byte by byte");
    }

    #[test]
    fn events_do_not_depend_on_line_ends_or_cuts() {
        check("data: a\n\ndata:b\n\n", &["a", "b"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("event: message\r\ndata: a\r\n\ndata: b\n\r\n", &["a", "b"]);
        check("data: no end\n\ndata: at all", &["no end", "at all"]);
        check("data: one line end\n", &["one line end"]);
        check("data: a\r\ndata: b\r\n\r\ndata: c\rdata: d\r\r", &["a\nb", "c\nd"]);
        check(": comment\n\n: another\ndata: a\n: inside\ndata: b\nid: 7\nretry: 9\n\n", &["a\nb"]);
        check("\u{feff}data: after a mark\n\n", &["after a mark"]);
        check("data: größer ≥ 🙂\n\n", &["größer ≥ 🙂"]);
        check("data\n\ndata:\n\ndata:  two spaces\n\n", &["", "", " two spaces"]);
        check("database: x\ndatum: y\n\n\n\n", &[]);
        check("", &[]);
    }

    #[test]
    fn what_is_no_utf8_is_replaced() {
        assert_eq!(read([&b"data: a\xff\xfeb\n\n"[..]]), ["a\u{fffd}\u{fffd}b"]);
    }

    #[test]
    fn bounds_hold_to_the_byte() {
        let check = |bounds: Bounds, stream: &str, expected: Result<(), TooLarge>| {
            let mut reader = Reader::new(bounds);
            let result = stream.as_bytes().chunks(3).try_for_each(|piece| reader.feed(piece));
            assert_eq!(result, expected, "{stream:?}");
        };
        let line = Bounds { line_max: 7, total_max: 1_000 };
        check(line, "data: x\n\ndata: y\n\n", Ok(()));
        check(line, "data: xx\n\n", Err(TooLarge::Line(7)));
        let total = Bounds { line_max: 1_000, total_max: 18 };
        check(total, "data: x\n\ndata: y\n\n", Ok(()));
        check(total, "data: x\n\ndata: y\n\n\n", Err(TooLarge::Total(18)));
        check(total, ": only comments, without an end", Err(TooLarge::Total(18)));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_cuts_give_the_same_events(
            lines in prop::collection::vec(
                prop_oneof![
                    "data: ?[a-zé🙂{}\":]{0,12}",
                    "(: ?ping|event: x|id|data|\u{feff})",
                    Just(String::new()),
                ],
                0..12,
            ),
            ends in prop::collection::vec(prop_oneof![Just("\n"), Just("\r\n"), Just("\r")], 12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let stream: String = lines.iter().zip(&ends).flat_map(|(line, end)| [line.as_str(), *end]).collect();
            let bytes = stream.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let whole = read([bytes]);
            prop_assert_eq!(&read(at.windows(2).map(|w| &bytes[w[0]..w[1]])), &whole);
            prop_assert_eq!(&read(bytes.chunks(1)), &whole);
        }
    }
}

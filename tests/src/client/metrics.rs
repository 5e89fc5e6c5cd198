//! The Prometheus text format, as far as counters, gauges and histogram samples need it.

use std::collections::BTreeMap;

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name, with `_total`, `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// One scrape.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// All samples in the order given.
    pub samples: Vec<Sample>,
}

impl Metrics {
    /// Reads a scrape.
    ///
    /// # Panics
    /// On a line that is neither a comment nor a sample.
    #[must_use]
    pub fn parse(text: &str) -> Metrics {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let sample = |line: &str| sample(line).unwrap_or_else(|| panic!("no sample: `{line}`"));
        Metrics { samples: lines.map(sample).collect() }
    }

    /// The sum over all samples of this name that carry these labels; `None` if there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let carries = |sample: &Sample| labels.iter().all(|(k, v)| sample.labels.get(*k).map(String::as_str) == Some(*v));
        let found: Vec<f64> = self.samples.iter().filter(|s| s.name == name && carries(s)).map(|s| s.value).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// The same as a whole number, 0 if there is no sample: for counters that are born with their first event.
    #[must_use]
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let value = self.sum(name, labels).unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are small whole numbers")]
        let whole = value.round() as u64;
        whole
    }

    /// The distinct names, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.samples.iter().map(|sample| sample.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn sample(line: &str) -> Option<Sample> {
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ')?;
        return Some(Sample { name: name.to_owned(), labels: BTreeMap::new(), value: number(value)? });
    };
    let mut labels = BTreeMap::new();
    let mut rest = rest.trim_start_matches(',');
    while !rest.starts_with('}') {
        let (key, tail) = rest.split_once("=\"")?;
        let (value, tail) = quoted(tail)?;
        labels.insert(key.to_owned(), value);
        rest = tail.trim_start_matches(',');
    }
    Some(Sample { name: name.to_owned(), labels, value: number(rest.strip_prefix('}')?.trim())? })
}

/// Reads up to the closing quote; returns the text and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

fn number(text: &str) -> Option<f64> {
    match text.split(' ').next()? {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        text => text.parse().ok(),
    }
}

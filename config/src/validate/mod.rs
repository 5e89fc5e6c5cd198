//! The sense of a configuration: names that exist, parts that fit into each other, values that can be used.
//!
//! Everything is found at once. What a value may be by itself was checked before, against its shape.

mod agents;
mod ladder;
mod models;
mod server;
mod tools;

use crate::config::Config;
use crate::error::Problem;

/// All problems of sense.
pub(crate) fn validate(config: &Config) -> Vec<Problem> {
    let mut report = Report { config, problems: Vec::new() };
    server::check(&mut report);
    models::check(&mut report);
    tools::check(&mut report);
    agents::check(&mut report);
    ladder::check(&mut report);
    report.problems
}

/// Collects problems and knows where keys stand.
struct Report<'a> {
    config: &'a Config,
    problems: Vec<Problem>,
}

impl Report<'_> {
    /// A problem of one key; where the key is absent it stands where its table does.
    fn at(&self, key: &str) -> Problem {
        let mut keys = key;
        let place = loop {
            match (self.config.place(keys), keys.rsplit_once('.')) {
                (Some(place), _) => break Some(place),
                (None, Some((table, _))) => keys = table,
                (None, None) => break None,
            }
        };
        Problem::new(place, key, "")
    }

    fn say(&mut self, key: &str, reason: impl Into<String>, hint: impl Into<String>) {
        let problem = Problem { reason: reason.into(), ..self.at(key) }.hint(hint);
        self.problems.push(problem);
    }

    fn say_value(&mut self, key: &str, value: &str, reason: impl Into<String>, hint: impl Into<String>) {
        let problem = Problem { reason: reason.into(), ..self.at(key) }.value(format!("{value:?}")).hint(hint);
        self.problems.push(problem);
    }

    /// Where a key comes from, for a sentence.
    fn source(&self, key: &str) -> String {
        self.config.place(key).map_or_else(|| "built-in default".into(), |place| place.to_string())
    }
}

/// Splits `http://host..` into its scheme and the rest; says what is wrong with it.
fn http_url(url: &str) -> Result<(&str, &str), &'static str> {
    let Some((scheme, rest)) = url.split_once("://") else { return Err("is no absolute URL") };
    if scheme != "http" && scheme != "https" {
        return Err("begins with neither `http://` nor `https://`");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("holds a user or a password, which would be logged");
    }
    if crate::config::host(rest).is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("is no URL");
    }
    Ok((scheme, rest))
}

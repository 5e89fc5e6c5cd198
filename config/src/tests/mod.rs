//! Behaviour of the crate as a whole, as data.

mod bounds;
mod changes;
mod explain;
mod generated;
mod messages;
mod options;
mod precedence;
mod secrets;
mod sense;

use std::path::PathBuf;

use crate::{Config, ConfigErrors, File, Sources, load};

/// Sources with one file `ambit.toml` of this text.
pub(crate) fn file(text: &str) -> Sources {
    Sources { files: vec![File::Text { path: PathBuf::from("ambit.toml"), text: text.to_owned() }], ..Sources::default() }
}

impl Sources {
    /// The same with variables `NAME=value`.
    pub(crate) fn with_env(mut self, env: &[(&str, &str)]) -> Self {
        self.env.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// The same with a profile selected.
    pub(crate) fn with_profile(mut self, profile: &str) -> Self {
        self.profile = Some(profile.to_owned());
        self
    }

    /// The same with arguments `a.b=c`.
    pub(crate) fn with_sets(mut self, sets: &[&str]) -> Self {
        self.sets.extend(sets.iter().map(|set| (*set).to_owned()));
        self
    }
}

/// Loads what has to be right.
#[track_caller]
pub(crate) fn good(sources: &Sources) -> Config {
    load(sources).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Loads what has to be wrong.
#[track_caller]
pub(crate) fn bad(sources: &Sources) -> ConfigErrors {
    match load(sources) {
        Ok(config) => panic!("accepted:\n{}", config.show()),
        Err(errors) => errors,
    }
}

/// Checks that a file is refused with exactly these problems (their first lines), in order.
#[track_caller]
pub(crate) fn refused(sources: &Sources, expected: &[&str]) {
    let errors = bad(sources);
    let got: Vec<String> = errors.problems.iter().map(|p| p.to_string().lines().next().unwrap_or_default().to_owned()).collect();
    assert_eq!(got, expected, "{errors}");
}

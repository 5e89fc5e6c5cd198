//! What a configuration is read from, handed in: files, the name of a profile, the environment, arguments.
//!
//! **Invariant:** [`Sources::from_process`] is the only place of the whole workspace that reads the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Largest configuration file, in bytes: a thousand agents fit.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// The file that is read if it exists and no other is named.
pub const FILE_DEFAULT: &str = "ambit.toml";
/// Variables with this beginning are settings.
pub const PREFIX: &str = "AMBIT_";
/// Variables with that beginning which are no settings.
pub const RESERVED: &[&str] = &["AMBIT_PROFILE", "AMBIT_CONFIG", "AMBIT_FAULTS_DIR", "AMBIT_QUIRKS_DIR"];
/// Beginnings of variables that Kubernetes makes for a service called `ambit`.
pub const INJECTED: &[&str] = &["AMBIT_SERVICE_", "AMBIT_PORT"];

/// A file of settings. Prints its path only.
#[derive(Clone)]
pub enum File {
    /// On disk; it must exist.
    Path(PathBuf),
    /// Already read: a name for messages and its text.
    Text {
        /// As it appears in messages; relative paths in it start at its folder.
        path: PathBuf,
        /// TOML.
        text: String,
    },
}

/// All that [`load`](crate::load) looks at. Prints the names of variables, never their values.
#[derive(Clone, Default)]
pub struct Sources {
    /// Files, later ones over earlier ones, profile by profile.
    pub files: Vec<File>,
    /// The profile to select; `default` if none is named.
    pub profile: Option<String>,
    /// The environment: settings (`AMBIT_..`) and whatever `env:NAME` refers to.
    pub env: BTreeMap<String, String>,
    /// Settings as arguments, `a.b=c`, over everything.
    pub sets: Vec<String>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::Text { path, .. } => path.fmt(f),
        }
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, profile, env, sets } = self;
        let keys: Vec<&str> = sets.iter().map(|set| set.split('=').next().unwrap_or_default()).collect();
        f.debug_struct("Sources").field("files", files).field("profile", profile).field("env", &env.keys()).field("sets", &keys).finish()
    }
}

impl Sources {
    /// Reads the process's environment, and takes from the command line what it says about configuration.
    ///
    /// `config` beats `AMBIT_CONFIG`, which beats `./ambit.toml`; `profile` beats `AMBIT_PROFILE`. Variables that are no
    /// Unicode are left out: none of ours can be.
    #[must_use]
    pub fn from_process(config: Option<PathBuf>, profile: Option<String>, sets: Vec<String>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
        let env: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
        let named = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        let file = config.or_else(|| named("AMBIT_CONFIG").map(PathBuf::from)).or_else(|| {
            let usual = Path::new(FILE_DEFAULT);
            // A file that cannot be looked at is read all the same, so that the error says why.
            usual.try_exists().unwrap_or(true).then(|| usual.to_owned())
        });
        Self { files: file.into_iter().map(File::Path).collect(), profile: profile.or_else(|| named("AMBIT_PROFILE")), env, sets }
    }
}

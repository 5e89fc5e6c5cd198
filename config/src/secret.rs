//! Secrets: where a reference points, and when a literal is accepted.
//!
//! **Invariant:** the text of a secret appears in no error, no `Debug` and nothing that is shown.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::node::Place;

/// Largest secret in a file, in bytes: a certificate chain fits.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;
/// Where systemd puts the credentials of a unit.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// What may be literal, and where references lead.
pub(crate) struct Lookup<'a> {
    pub(crate) env: &'a BTreeMap<String, String>,
    /// True in profile `dev`.
    pub(crate) literals: bool,
}

/// Why a secret could not be had: what is wrong, and what to do.
pub(crate) struct Unknown {
    pub(crate) reason: String,
    pub(crate) hint: String,
}

impl Lookup<'_> {
    /// Follows a reference. `public` allows a literal anywhere: a header that is no secret.
    pub(crate) fn resolve(&self, text: &str, place: &Place, folder: &Path, public: bool) -> Result<String, Unknown> {
        let found = match text.split_once(':') {
            Some(("env", name)) => self.variable(name)?,
            Some(("file", path)) => read(&folder.join(path))?,
            Some(("cred", name)) => self.credential(name)?,
            Some(_) | None if public || self.literals || matches!(place, Place::Variable(_)) => text.to_owned(),
            Some(_) | None => {
                return Err(Unknown {
                    reason: "a secret in clear text, which is accepted in profile `dev` only".into(),
                    hint: "write a reference: `\"env:NAME\"`, `\"file:/path\"` or `\"cred:name\"`; or set the variable of this key".into(),
                });
            }
        };
        if found.is_empty() && !public {
            return Err(Unknown { reason: "the secret is empty".into(), hint: "leave the key out if there is none".into() });
        }
        Ok(found)
    }

    fn variable(&self, name: &str) -> Result<String, Unknown> {
        self.env.get(name).cloned().ok_or_else(|| Unknown {
            reason: format!("the variable `{name}` is not set"),
            hint: format!("set `{name}`, or leave the key out if there is none"),
        })
    }

    fn credential(&self, name: &str) -> Result<String, Unknown> {
        let hint = || "pass it by `LoadCredential=` of the systemd unit".to_owned();
        let Some(folder) = self.env.get(CREDENTIALS_DIRECTORY) else {
            return Err(Unknown { reason: format!("there are no credentials here: `{CREDENTIALS_DIRECTORY}` is not set"), hint: hint() });
        };
        if name.is_empty() || name.contains('/') || name == ".." {
            return Err(Unknown { reason: format!("`{}` is no name of a credential", name.escape_debug()), hint: hint() });
        }
        read(&PathBuf::from(folder).join(name))
    }
}

/// Reads a secret from a file, without the line feed that editors add.
fn read(path: &Path) -> Result<String, Unknown> {
    let unreadable = |why: String| Unknown {
        reason: format!("cannot read `{}`: {why}", path.display()),
        hint: "check the path and who may read it".into(),
    };
    let text = read_bounded(path, SECRET_BYTES_MAX).map_err(unreadable)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a text file of at most `bytes_max`.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let mut text = String::new();
    let read = file.take(bytes_max + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
    if u64::try_from(read).unwrap_or(u64::MAX) > bytes_max { Err(format!("it is larger than {bytes_max} bytes")) } else { Ok(text) }
}

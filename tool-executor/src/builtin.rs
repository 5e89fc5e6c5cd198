//! Tools that Ambit brings itself: looking into one folder, and never out of it.
//!
//! A path is taken apart before it touches the disk (no root, no `..`), and what it leads to is resolved and compared
//! with the folder afterwards, so that a link cannot lead out either. Only plain files are read.

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use ambit_core::ToolCode;
use ambit_resilience::{Failure, Outcome};
use serde_json::{Value, json};

use crate::fault::{Answer, Fault};
use crate::options::{BuiltinFunction, BuiltinOptions};
use crate::prepare::json::Json;
use crate::wall::utc;

/// Most entries that one listing names; the newest are kept.
const ENTRIES_MAX: usize = 256;
/// Most entries that one listing looks at: a folder of millions must not hold a thread for minutes.
const VISITED_MAX: usize = 10_000;
/// Deepest folder below the one asked for that a listing enters.
const DEPTH_MAX: usize = 4;
/// Most bytes that one call reads of a file.
const READ_BYTES_MAX: u64 = 256 << 10;

/// A function of Ambit as a tool.
#[derive(Debug, Clone)]
pub(crate) struct Builtin {
    function: BuiltinFunction,
    /// Resolved at load.
    root: PathBuf,
}

impl Builtin {
    /// Finds the folder, or says why the tool cannot be used.
    pub(crate) fn new(options: &BuiltinOptions) -> Result<Self, String> {
        let root = std::fs::canonicalize(&options.root)
            .map_err(|error| format!("its root `{}` cannot be opened: {error}", options.root.display()))?;
        if !root.is_dir() {
            return Err(format!("its root `{}` is no folder", options.root.display()));
        }
        Ok(Self { function: options.function, root })
    }

    pub(crate) const fn description(&self) -> &'static str {
        match self.function {
            BuiltinFunction::ListFiles => {
                "Lists the files below a folder, the most recently modified first, with size in bytes and modification time (UTC)."
            }
            BuiltinFunction::ReadFile => "Reads a text file of the folder. Long files are read in parts: ask again with `offset`.",
        }
    }

    pub(crate) fn schema(&self) -> Value {
        match self.function {
            BuiltinFunction::ListFiles => json!({
                "type": "object",
                "properties": {"path": {"type": "string", "maxLength": 1024, "description": "Folder to list, relative; the top if absent"}},
                "additionalProperties": false
            }),
            BuiltinFunction::ReadFile => json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "maxLength": 1024, "description": "File to read, relative, as a listing names it"},
                    "offset": {"type": "integer", "minimum": 0, "description": "Byte to begin at; 0 if absent"}
                },
                "required": ["path"],
                "additionalProperties": false
            }),
        }
    }

    /// Runs it on a thread that may wait for the disk. The work is bounded, so a dropped call leaves little behind.
    pub(crate) async fn run(&self, members: &[(String, Json)]) -> Result<Answer, Fault> {
        let member = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| value.to_value());
        let path = member("path").and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
        let offset = member("offset").and_then(|value| value.as_u64()).unwrap_or(0);
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || match this.function {
            BuiltinFunction::ListFiles => this.list(&path),
            BuiltinFunction::ReadFile => this.read(&path, offset),
        });
        match done.await {
            Ok(Ok(text)) => Ok(Answer { text, is_error: false }),
            Ok(Err(Refused::Outside)) => Err(Fault::refused(ToolCode::Blocked, "the path leads out of the folder")),
            Ok(Err(Refused::Io(error))) => Ok(Answer { text: format!("cannot be read: {}", error.kind()), is_error: true }),
            Ok(Err(Refused::NoFile)) => Ok(Answer { text: "cannot be read: not a plain file".into(), is_error: true }),
            Err(_) => Err(Fault::new(Failure::new(Outcome::Broken).with_code("internal"))),
        }
    }

    /// The real place of a path inside the folder.
    fn place(&self, path: &str) -> Result<PathBuf, Refused> {
        let mut place = self.root.clone();
        for part in Path::new(path).components() {
            match part {
                Component::Normal(name) => place.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Refused::Outside),
            }
        }
        let real = std::fs::canonicalize(place)?;
        if real.starts_with(&self.root) { Ok(real) } else { Err(Refused::Outside) }
    }

    fn list(&self, path: &str) -> Result<String, Refused> {
        let top = self.place(path)?;
        let mut found = Vec::new();
        let mut folders = vec![(top, 0)];
        let mut visited = 0;
        while let Some((folder, depth)) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                visited += 1;
                if visited > VISITED_MAX {
                    break;
                }
                let entry = entry?;
                // Of the link itself: what it leads to may be outside.
                let meta = entry.metadata()?;
                if meta.is_dir() && depth < DEPTH_MAX {
                    folders.push((entry.path(), depth + 1));
                }
                let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
                let kind = if meta.is_dir() {
                    "folder"
                } else if meta.is_file() {
                    "file"
                } else {
                    "other"
                };
                found.push((modified, name_below(&self.root, &entry.path()), kind, meta.len()));
            }
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let more = found.len().saturating_sub(ENTRIES_MAX);
        let entries: Vec<Value> = found
            .into_iter()
            .take(ENTRIES_MAX)
            .map(|(modified, name, kind, bytes)| match kind {
                "file" => json!({"path": name.to_string_lossy(), "bytes": bytes, "modified": utc(modified)}),
                _ => json!({"path": name.to_string_lossy(), "kind": kind, "modified": utc(modified)}),
            })
            .collect();
        let mut listing = json!({"entries": entries});
        if more > 0 {
            listing["more"] = json!(more);
        }
        if visited > VISITED_MAX {
            listing["incomplete"] = json!(format!("more than {VISITED_MAX} entries: list a folder below"));
        }
        Ok(listing.to_string())
    }

    fn read(&self, path: &str, offset: u64) -> Result<String, Refused> {
        let place = self.place(path)?;
        // Not waiting for the other end of a pipe, should it be one.
        let mut file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(place)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(Refused::NoFile);
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        let end = offset.saturating_add(bytes.len() as u64);
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if end < meta.len() {
            text.push_str(&format!("\n[.. {} bytes follow: ask with offset {end} ..]\n", meta.len() - end));
        }
        Ok(text)
    }
}

/// Why nothing was read.
enum Refused {
    Outside,
    NoFile,
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn name_below(root: &Path, path: &Path) -> OsString {
    path.strip_prefix(root).unwrap_or(path).as_os_str().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("a.txt"), "alpha").unwrap();
        std::fs::write(root.join("sub/b.txt"), "beta").unwrap();
        std::fs::write(temp.path().join("secret"), "secret").unwrap();
        symlink(temp.path().join("secret"), root.join("link")).unwrap();
        symlink(temp.path(), root.join("up")).unwrap();
        symlink("a.txt", root.join("inside")).unwrap();
        (temp, root)
    }

    async fn run(root: &Path, function: BuiltinFunction, arguments: &str) -> Result<Answer, Fault> {
        let Json::Object(members) = Json::parse(arguments).unwrap() else { panic!("an object") };
        Builtin::new(&BuiltinOptions { function, root: root.into() }).unwrap().run(&members).await
    }

    #[tokio::test]
    async fn files_of_the_folder_are_read_and_no_others() {
        let (_temp, root) = folder();
        for (path, expected) in [
            ("a.txt", Ok("alpha")),
            ("./sub/b.txt", Ok("beta")),
            ("inside", Ok("alpha")),
            ("link", Err(ToolCode::Blocked)),
            ("up/secret", Err(ToolCode::Blocked)),
            ("../secret", Err(ToolCode::Blocked)),
            ("sub/../a.txt", Err(ToolCode::Blocked)),
            ("/etc/passwd", Err(ToolCode::Blocked)),
        ] {
            let got = run(&root, BuiltinFunction::ReadFile, &format!("{{\"path\":\"{path}\"}}")).await;
            assert_eq!(got.as_ref().map(|answer| answer.text.as_str()).map_err(|fault| fault.code.unwrap()), expected, "{path}");
        }
        for path in ["none", "sub", "a\\u0000b"] {
            assert!(run(&root, BuiltinFunction::ReadFile, &format!("{{\"path\":\"{path}\"}}")).await.unwrap().is_error, "{path}");
        }
    }

    #[tokio::test]
    async fn a_long_file_is_read_in_parts() {
        let (_temp, root) = folder();
        std::fs::write(root.join("long"), vec![b'x'; usize::try_from(READ_BYTES_MAX).unwrap() + 3]).unwrap();
        let first = run(&root, BuiltinFunction::ReadFile, r#"{"path":"long"}"#).await.unwrap().text;
        assert!(first.ends_with(&format!("[.. 3 bytes follow: ask with offset {READ_BYTES_MAX} ..]\n")));
        let rest = run(&root, BuiltinFunction::ReadFile, &format!("{{\"path\":\"long\",\"offset\":{READ_BYTES_MAX}}}")).await.unwrap().text;
        assert_eq!(rest, "xxx");
        assert_eq!(run(&root, BuiltinFunction::ReadFile, r#"{"path":"long","offset":99999999999}"#).await.unwrap().text, "");
    }

    #[tokio::test]
    async fn a_listing_names_what_is_below_and_does_not_follow_links() {
        let (_temp, root) = folder();
        let listing: Value = serde_json::from_str(&run(&root, BuiltinFunction::ListFiles, "{}").await.unwrap().text).unwrap();
        let mut names: Vec<_> =
            listing["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["a.txt", "inside", "link", "sub", "sub/b.txt", "up"]);
        let below: Value = serde_json::from_str(&run(&root, BuiltinFunction::ListFiles, r#"{"path":"sub"}"#).await.unwrap().text).unwrap();
        assert_eq!(below["entries"][0]["path"], "sub/b.txt");
        assert_eq!(below["entries"][0]["bytes"], 4);
        assert_eq!(run(&root, BuiltinFunction::ListFiles, r#"{"path":"up"}"#).await.unwrap_err().code, Some(ToolCode::Blocked));
    }

    #[tokio::test]
    async fn a_listing_is_bounded_at_the_limit_and_one_past_it() {
        let (_temp, root) = folder();
        let full = root.join("full");
        std::fs::create_dir(&full).unwrap();
        for i in 0..ENTRIES_MAX {
            std::fs::write(full.join(format!("{i}")), "").unwrap();
        }
        let listed = async || {
            serde_json::from_str::<Value>(&run(&root, BuiltinFunction::ListFiles, r#"{"path":"full"}"#).await.unwrap().text).unwrap()
        };
        let whole = listed().await;
        assert_eq!((whole["entries"].as_array().unwrap().len(), whole.get("more")), (ENTRIES_MAX, None));
        std::fs::write(full.join("one"), "").unwrap();
        let cut = listed().await;
        assert_eq!((cut["entries"].as_array().unwrap().len(), cut["more"].as_u64()), (ENTRIES_MAX, Some(1)));
    }

    #[test]
    fn a_folder_that_is_none_refuses_the_tool() {
        let (_temp, root) = folder();
        let of = |path: PathBuf| Builtin::new(&BuiltinOptions { function: BuiltinFunction::ReadFile, root: path }).unwrap_err();
        assert!(of(root.join("none")).contains("cannot be opened"));
        assert!(of(root.join("a.txt")).contains("no folder"));
    }
}

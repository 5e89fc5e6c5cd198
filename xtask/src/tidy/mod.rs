//! Rules of the house that no compiler knows. Each is a function from the tree to findings; one file a subject.
//!
//! A new rule that much of the tree breaks starts with a list of the places that may break it, which only shrinks.

mod arrows;
mod errors;
mod pages;
mod source;
mod text;

use std::fmt;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 5] = [".git", ".venv", "__pycache__", "node_modules", "target"];
/// Files that are read: everything else is binary or somebody's database.
const EXTENSIONS: [&str; 16] =
    ["rs", "toml", "md", "json", "jsonl", "yml", "yaml", "sh", "py", "js", "mjs", "sql", "snap", "txt", "html", "lock"];
/// Most files looked at: more means that a folder is missing from `SKIPPED`.
const FILES_MAX: usize = 20_000;

/// A text file of the tree.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    fn has_extension(&self, wanted: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == wanted)
    }

    /// A finding at a line, counted from 1.
    fn at(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }
}

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Checks the tree. The error lists every finding.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let files = tree(root)?;
    let mut found = Vec::new();
    for rule in [source::check, arrows::check, errors::check, pages::check, text::check] {
        found.extend(rule(&files));
    }
    if found.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
    Err(format!("{} findings of the house rules\n  {}", found.len(), lines.join("\n  ")))
}

/// The text files below `root`, sorted by path.
fn tree(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root.join(&folder)).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|e| format!("{}: {e}", folder.display()))?;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            let kind = entry.file_type().map_err(|e| format!("{}: {e}", path.display()))?;
            if SKIPPED.iter().any(|skipped| name == *skipped) {
                continue; // In a second working tree `.git` is a file.
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && is_text(&path) {
                // A file that goes away while we look, or is no UTF-8, is no source of ours.
                if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
                    files.push(File { path: path.to_string_lossy().replace('\\', "/"), text });
                }
            }
        }
        if files.len() > FILES_MAX {
            return Err(format!("more than {FILES_MAX} files; hint: add the folder of foreign ones to SKIPPED in xtask/src/tidy/mod.rs"));
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// True for the extensions above and for scripts without one.
fn is_text(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => EXTENSIONS.iter().any(|known| extension == *known),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        if let Err(found) = check(&crate::root()) {
            panic!("{found}");
        }
    }

    #[test]
    fn the_tree_is_seen() {
        let files = tree(&crate::root()).unwrap();
        for path in ["Cargo.toml", "core/src/lib.rs", "xtask/src/tidy/mod.rs", ".ci/run", "README.md"] {
            assert!(files.iter().any(|file| file.path == path), "{path} is not looked at");
        }
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }
}

/// What the tests of the rules share.
#[cfg(test)]
mod kit {
    use super::{File, Finding};

    /// Runs a rule over a tree given as path and text, and compares `path:line` and the beginning of each finding.
    pub(crate) fn check(rule: fn(&[File]) -> Vec<Finding>, tree: &[(&str, &str)], want: &[&str]) {
        let files: Vec<File> = tree.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect();
        let found: Vec<String> = rule(&files).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), want.len(), "{found:#?}");
        for (found, want) in found.iter().zip(want) {
            assert!(found.starts_with(want), "{found} does not start with {want}");
        }
    }
}

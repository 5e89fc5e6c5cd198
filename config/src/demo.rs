//! What the shipped profile `default` needs so that a binary works alone: the sample folder and the demo script.
//!
//! `root = "sample:"` names the sample. Whoever starts the process writes it into a folder of its own
//! ([`write_sample`], a temporary one will do) and hands that folder to [`Config::executor_options`](crate::Config).

use std::fs;
use std::io;
use std::path::Path;

/// What a path begins with that leads into the sample: `sample:` itself, or `sample:deploy`.
pub const SAMPLE: &str = "sample:";
/// The host under which the demo service is reached, whatever its port.
pub const SERVICE_HOST: &str = "demo.ambit.internal";
/// The rules of the scripted demo model.
pub const SCRIPT: &str = include_str!("../profiles/demo_script.toml");

/// The files of the sample: path below its root, and text.
pub const FILES: &[(&str, &str)] = &[
    ("deploy/README.md", include_str!("../profiles/sample/deploy/README.md")),
    ("deploy/changes/last-week.md", include_str!("../profiles/sample/deploy/changes/last-week.md")),
    ("deploy/changes/week-before.md", include_str!("../profiles/sample/deploy/changes/week-before.md")),
    ("deploy/runbook.md", include_str!("../profiles/sample/deploy/runbook.md")),
    ("deploy/services.toml", include_str!("../profiles/sample/deploy/services.toml")),
];

/// Writes the sample below `root`, over what stands there. Eleven calls to the file system, a few KiB.
///
/// # Errors
/// The first one that the file system reports.
pub fn write_sample(root: &Path) -> io::Result<()> {
    for (path, text) in FILES {
        let file = root.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_inside_the_binary_is_the_folder_in_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/sample");
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        let mut found: Vec<_> = found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect();
        found.sort();
        assert_eq!(found, FILES.iter().map(|(path, _)| (*path).to_owned()).collect::<Vec<_>>());

        let folder = tempfile::tempdir().unwrap();
        write_sample(folder.path()).unwrap();
        write_sample(folder.path()).unwrap();
        for (path, text) in FILES {
            assert_eq!(&fs::read_to_string(folder.path().join(path)).unwrap(), text);
        }
    }
}

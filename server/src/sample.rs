//! The sample's folder: one a process in the temporary directory, gone with it, also after it was killed.
//!
//! A lock file beside the folder is held for as long as the process lives; the system lets go of it however the process
//! ends. Whoever starts next may take the lock of a dead one, and sweeps. Locks instead of process ids: these are used
//! again, and say nothing across containers that share a directory.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ambit_config::demo;
use rand::RngExt as _;
use rand::rngs::StdRng;

/// How names of folders begin.
const PREFIX: &str = "ambit-demo-";
/// How names of lock files end.
const LOCK: &str = ".lock";
/// Most folders swept at one start, so that a start stays quick; the rest follows at the next.
const SWEPT_MAX: usize = 32;
/// Most entries of the temporary directory that are looked at.
const LOOKED_AT_MAX: usize = 10_000;
/// Names drawn before giving up: a name is taken only if a sweeper met its lock in the moment of its making.
const NAMES_MAX: u32 = 8;

/// The folder of this process. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Sample {
    root: PathBuf,
    lock_path: PathBuf,
    /// Held until the folder is gone.
    _lock: File,
}

impl Sample {
    /// Makes a folder with the sample in it, below the temporary directory, and sweeps what dead processes left there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn make(rng: &mut StdRng) -> io::Result<Self> {
        Self::make_below(&std::env::temp_dir(), rng)
    }

    fn make_below(parent: &Path, rng: &mut StdRng) -> io::Result<Self> {
        for _ in 0..NAMES_MAX {
            let root = parent.join(format!("{PREFIX}{:016x}", rng.random::<u64>()));
            let lock_path = lock_of(&root);
            let lock = File::create_new(&lock_path)?;
            // A sweeper may have been faster: then the file is its, and gone.
            if lock.try_lock().is_err() || !is_at(&lock, &lock_path) {
                continue;
            }
            let sample = Self { root, lock_path, _lock: lock };
            fs::create_dir(&sample.root)?;
            demo::write_sample(&sample.root)?;
            sweep(parent, fs::symlink_metadata(&sample.root)?.uid());
            return Ok(sample);
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no name for the sample's folder is free"))
    }

    /// Where it is.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        // The lock last: whoever gets it finds nothing. What cannot be removed is swept by somebody else.
        let _ = fs::remove_dir_all(&self.root);
        let _ = fs::remove_file(&self.lock_path);
    }
}

fn lock_of(root: &Path) -> PathBuf {
    let mut name = root.as_os_str().to_owned();
    name.push(LOCK);
    name.into()
}

/// True if the file of this name is still the one that was opened.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(own), Ok(there)) => (own.dev(), own.ino()) == (there.dev(), there.ino()),
        (Ok(_) | Err(_), _) => false,
    }
}

/// Removes folders whose process is gone, if they are this user's.
fn sweep(parent: &Path, uid: u32) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let is_ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(PREFIX)) && entry.metadata().is_ok_and(|found| found.uid() == uid)
    };
    for entry in entries.take(LOOKED_AT_MAX).flatten().filter(is_ours).take(SWEPT_MAX) {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let root = if is_folder { path } else { path.with_extension("") };
        let _ = remove_dead(&root);
    }
}

/// Removes a folder and its lock, unless somebody holds it.
fn remove_dead(root: &Path) -> io::Result<()> {
    let lock_path = lock_of(root);
    match File::open(&lock_path) {
        Ok(lock) => match lock.try_lock() {
            // Held until the end of this arm; a lock file of another process under the same name is left alone.
            Ok(()) if is_at(&lock, &lock_path) => {
                remove_folder(root)?;
                fs::remove_file(&lock_path)
            }
            Ok(()) | Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(failed)) => Err(failed),
        },
        // A lock is made before its folder and removed after it.
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => remove_folder(root),
        Err(failed) => Err(failed),
    }
}

fn remove_folder(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root) {
        Err(failed) if failed.kind() != io::ErrorKind::NotFound => Err(failed),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn names(parent: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_living_stay_the_dead_go_and_what_is_not_ours_is_not_touched() {
        let parent = tempfile::tempdir().unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        let living = Sample::make_below(parent.path(), &mut rng).unwrap();
        // Killed: the folder and its lock file are there, and nobody holds the lock.
        let dead = parent.path().join("ambit-demo-dead");
        fs::create_dir_all(dead.join("deploy")).unwrap();
        fs::write(lock_of(&dead), "").unwrap();
        // Killed between removing the one and the other, and between making them.
        fs::create_dir(parent.path().join("ambit-demo-old")).unwrap();
        fs::write(parent.path().join("ambit-demo-half.lock"), "").unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();

        let second = Sample::make_below(parent.path(), &mut rng).unwrap();
        assert_eq!(names(parent.path()).len(), 5, "{:?}", names(parent.path()));
        assert!(living.root().join("deploy/runbook.md").is_file() && second.root().join("deploy/runbook.md").is_file());
        drop((living, second));
        assert_eq!(names(parent.path()), ["other"]);
    }

    #[test]
    fn one_start_sweeps_as_many_as_it_may_and_leaves_the_rest() {
        let parent = tempfile::tempdir().unwrap();
        for n in 0..=SWEPT_MAX + 1 {
            fs::create_dir(parent.path().join(format!("{PREFIX}{n}"))).unwrap();
        }
        let mut rng = StdRng::seed_from_u64(1);
        drop(Sample::make_below(parent.path(), &mut rng).unwrap());
        // Its own folder and lock may have been among those looked at.
        assert!((2..=4).contains(&names(parent.path()).len()), "{:?}", names(parent.path()));
        drop(Sample::make_below(parent.path(), &mut rng).unwrap());
        assert_eq!(names(parent.path()), Vec::<String>::new());
    }
}

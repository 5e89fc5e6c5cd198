//! Sees that the configuration's file has changed: by what the path leads to, so that an edit in place, a file moved over it
//! and a symbolic link that is turned to another folder (as Kubernetes does with a ConfigMap) are all alike.
//!
//! Polled: no file system tells of all three, and networks tell of none.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ambit_config::{FILE_DEFAULT, File, Sources};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::reload::{Reloader, Trigger};

/// Between two looks. A change is taken in once two looks see the same: what is still being written is left alone.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest that one look may take.
const LOOK_TIME: Duration = Duration::from_secs(10);

/// What a path leads to at a moment; `None` if to nothing.
type Identity = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;

/// Decides from one look to the next.
#[derive(Debug)]
struct Settled<T> {
    taken_in: T,
    candidate: Option<T>,
}

/// Looks at the files of a configuration.
pub(crate) struct Watch {
    paths: Vec<PathBuf>,
    settled: Settled<Vec<Identity>>,
}

impl Watch {
    /// Begins with the files as they are.
    pub(crate) async fn begin(sources: &Sources) -> Self {
        let paths = watched(sources);
        let settled = Settled { taken_in: look(&paths).await, candidate: None };
        Self { paths, settled }
    }

    /// Reloads whenever the files have changed, until `stop`.
    pub(crate) async fn run(mut self, reloader: Arc<Reloader>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = stop.cancelled() => return,
            }
            if self.settled.is_new(look(&self.paths).await) {
                // What it comes to is told in the log. Where it finds no place, one that waits reads the same files.
                let _ = reloader.reload(Trigger::File).await;
            }
        }
    }
}

/// The files of the configuration: those that were named, else the usual one, which may not be there yet.
fn watched(sources: &Sources) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = sources
        .files
        .iter()
        .filter_map(|file| match file {
            File::Path(path) => Some(path.clone()),
            File::Text { .. } => None,
        })
        .collect();
    if named.is_empty() { vec![PathBuf::from(FILE_DEFAULT)] } else { named }
}

async fn look(paths: &[PathBuf]) -> Vec<Identity> {
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        found.push(timeout(LOOK_TIME, identity(path)).await.unwrap_or_default());
    }
    found
}

async fn identity(path: &Path) -> Identity {
    // Follows links: what counts is where they lead.
    let found = tokio::fs::metadata(path).await.ok()?;
    Some((found.dev(), found.ino(), found.len(), (found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())))
}

impl<T: PartialEq> Settled<T> {
    /// True if this is new and was seen the last time, too; it is taken in then.
    fn is_new(&mut self, seen: T) -> bool {
        if seen == self.taken_in {
            self.candidate = None;
            return false;
        }
        if self.candidate.as_ref() != Some(&seen) {
            self.candidate = Some(seen);
            return false;
        }
        self.candidate = None;
        self.taken_in = seen;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_it_stands_still() {
        let mut settled = Settled { taken_in: 0, candidate: None };
        let looks = [0, 1, 2, 3, 3, 3, 4, 3, 5, 5, 0, 0];
        let new: Vec<bool> = looks.into_iter().map(|look| settled.is_new(look)).collect();
        let expected = [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1].map(|new| new == 1);
        assert_eq!(new, expected);
    }

    #[tokio::test]
    async fn a_path_is_what_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = [at("ambit.toml")];
        let mut seen = vec![look(&path).await];
        std::fs::create_dir(at("one")).unwrap();
        std::fs::create_dir(at("two")).unwrap();
        for version in ["one", "two"] {
            std::fs::write(at(version).join("ambit.toml"), "same").unwrap();
        }
        // As a ConfigMap is mounted: the file is a link through a link, and the inner one is turned.
        std::os::unix::fs::symlink("one", at("data")).unwrap();
        std::os::unix::fs::symlink("data/ambit.toml", at("ambit.toml")).unwrap();
        seen.push(look(&path).await);
        std::os::unix::fs::symlink("two", at("data.new")).unwrap();
        std::fs::rename(at("data.new"), at("data")).unwrap();
        seen.push(look(&path).await);
        std::fs::write(at("two").join("ambit.toml"), "longer").unwrap();
        seen.push(look(&path).await);
        assert_eq!(seen[0], [None]);
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
        assert_eq!(look(&path).await, seen[3]);
    }
}

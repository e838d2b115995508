//! Waiting until a file may have changed.
//!
//! Folders are watched instead of files, since Kubernetes and editors replace files by renaming.
//! Some changes cause no event (a symbolic link further up is changed, a network file system, a
//! missing folder), so a wait also ends after an interval. The caller compares the content of the
//! files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// The maximum wait for watched files, since some changes cause no event.
pub const WATCHED_INTERVAL: Duration = Duration::from_secs(10);

/// Events of the folders that contain the files.
#[derive(Debug)]
pub struct FileEvents {
    folders: BTreeSet<PathBuf>,
    /// `None` while one of the folders cannot be watched.
    watcher: Option<RecommendedWatcher>,
    sender: mpsc::Sender<()>,
    events: mpsc::Receiver<()>,
}

impl FileEvents {
    /// Watches the folders of these files from now on.
    #[must_use]
    pub fn of_files<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let folder = |path: &Path| {
            path.parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .map(Path::to_owned)
        };
        Self::of_folders(
            paths
                .into_iter()
                .map(|path| folder(path).unwrap_or_else(|| PathBuf::from("."))),
        )
    }

    /// Watches these folders, without those in them, from now on.
    #[must_use]
    pub fn of_folders(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        // One pending event has the same effect as several.
        let (sender, events) = mpsc::channel(1);
        let mut new = Self {
            folders: folders.into_iter().collect(),
            watcher: None,
            sender,
            events,
        };
        new.watch();
        new
    }

    /// Whether all folders are watched.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.watcher.is_some()
    }

    /// Waits for an event, up to `at_most`. No event is lost if the future is dropped.
    pub async fn wait(&mut self, at_most: Duration) {
        if tokio::time::timeout(at_most, self.events.recv())
            .await
            .is_err()
            || !self.is_watching()
        {
            // A folder may have been created or replaced.
            self.watch();
        }
    }

    /// Watches the folders. Watching a folder again has no effect if it is still the same.
    fn watch(&mut self) {
        let watcher = self.watcher.take().or_else(|| {
            let sender = self.sender.clone();
            let tell = move |event: notify::Result<notify::Event>| {
                if !event.is_ok_and(|event| event.kind.is_access()) {
                    // A full channel already contains an event.
                    let _ = sender.try_send(());
                }
            };
            notify::recommended_watcher(tell).ok()
        });
        self.watcher = watcher.and_then(|mut watcher| {
            let mut watch = |folder| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok();
            self.folders
                .iter()
                .all(|folder| watch(folder))
                .then_some(watcher)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test waits for an event.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_file_that_is_replaced_ends_a_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls.crt");
        let mut events = FileEvents::of_files([&*path]);
        assert!(events.is_watching());
        std::fs::write(folder.path().join("new"), "one").unwrap();
        events.wait(LONG).await;
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        events.wait(LONG).await;
    }

    #[tokio::test]
    async fn a_directory_created_later_is_watched() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("cacerts");
        let mut events = FileEvents::of_folders([folder.clone()]);
        assert!(!events.is_watching());
        std::fs::create_dir(&folder).unwrap();
        events.wait(Duration::from_millis(1)).await;
        assert!(events.is_watching());
        std::fs::write(folder.join("ca-cert.pem"), "one").unwrap();

        events.wait(LONG).await;

        // Another folder of that name is another folder.
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        while tokio::time::timeout(Duration::from_millis(300), events.events.recv())
            .await
            .is_ok()
        {}
        events.wait(Duration::from_millis(1)).await;
        std::fs::write(folder.join("ca-cert.pem"), "two").unwrap();
        events.wait(LONG).await;
    }
}

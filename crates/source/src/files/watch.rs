//! File system events, collected until the reader processes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RemoveKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::agenda::Signal;
use super::scan::{format_of, is_hidden};

/// Maximum number of distinct changed paths; beyond it, the whole tree is scanned.
const MAX_FILES: usize = 4096;

/// The events since the last read.
#[derive(Debug, Default)]
pub(crate) struct PendingEvents {
    /// Changed files, with the last signal of each.
    pub(crate) files: BTreeMap<PathBuf, Signal>,
    /// Changed paths whose names are not those of files that are read: directories, links to
    /// directories, or the temporary files of tools that replace a file.
    pub(crate) others: BTreeSet<PathBuf>,
    /// Whether the structure of the tree changed, or events were lost.
    pub(crate) tree: bool,
    /// Whether all files must be read again.
    pub(crate) reload: bool,
    /// Whether the receiver is closed.
    pub(crate) closed: bool,
}

/// Pending events. Bounded, because each file counts once, however many events it has.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    news: Mutex<PendingEvents>,
    /// Wakes the reader.
    wake: Condvar,
}

impl Inbox {
    /// Waits for an event or until the given time, and returns the pending events.
    pub(crate) fn wait(&self, until: Option<Instant>) -> PendingEvents {
        let mut news = self.news.lock();
        while news.is_empty() {
            match until {
                None => self.wake.wait(&mut news),
                Some(until) => {
                    if self
                        .wake
                        .wait_until(&mut news, until.into_std())
                        .timed_out()
                    {
                        break;
                    }
                }
            }
        }
        std::mem::take(&mut *news)
    }

    pub(crate) fn add(&self, change: impl FnOnce(&mut PendingEvents)) {
        let mut news = self.news.lock();
        change(&mut news);
        if news.files.len() + news.others.len() > MAX_FILES {
            news.files.clear();
            news.others.clear();
            news.tree = true;
        }
        self.wake.notify_one();
    }
}

impl PendingEvents {
    /// Whether there are no events.
    fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.others.is_empty()
            && !self.tree
            && !self.reload
            && !self.closed
    }
}

/// Watches a directory, and directories outside it that contain the targets of its links.
#[derive(Debug)]
pub(super) struct Watch {
    root: PathBuf,
    watcher: RecommendedWatcher,
    /// The watched directories outside the root.
    link_targets: BTreeSet<PathBuf>,
}

impl Watch {
    /// Creates a watcher without directories.
    pub(super) fn new(root: &Path, inbox: Arc<Inbox>) -> notify::Result<Self> {
        let root_of_events = root.to_owned();
        let watcher =
            notify::recommended_watcher(move |event: notify::Result<Event>| match event {
                Ok(event) => {
                    let heard: Vec<_> = path_changes(&root_of_events, &event).collect();
                    if !heard.is_empty() {
                        inbox.add(|news| heard.into_iter().for_each(|one| news.note(one)));
                    }
                }
                // An event was lost; the scan finds the change.
                Err(_) => inbox.add(|news| news.tree = true),
            })?;
        Ok(Self {
            root: root.to_owned(),
            watcher,
            link_targets: BTreeSet::new(),
        })
    }

    /// Watches the directory and everything in it. Calling it again adds what did not exist before.
    pub(super) fn attach(&mut self) -> notify::Result<()> {
        if let Some(parent) = self
            .root
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            // Its events show when the directory itself is replaced.
            self.watcher.watch(parent, RecursiveMode::NonRecursive)?;
        }
        self.watcher.watch(&self.root, RecursiveMode::Recursive)
    }

    /// Sets the watched directories outside the root.
    pub(super) fn set_link_targets(&mut self, targets: BTreeSet<PathBuf>) {
        for gone in self.link_targets.difference(&targets) {
            // The directory may no longer exist; then unwatching it fails, which does no harm.
            self.watcher.unwatch(gone).unwrap_or_default();
        }
        for new in targets.difference(&self.link_targets) {
            // If it cannot be watched, the next scan finds its changes.
            self.watcher
                .watch(new, RecursiveMode::NonRecursive)
                .unwrap_or_default();
        }
        self.link_targets = targets;
    }
}

/// The meaning of an event.
#[derive(Debug, PartialEq, Eq)]
enum PathChange {
    /// The content of a file may have changed.
    File(PathBuf, Signal),
    /// Another path, which may be a directory.
    Other(PathBuf),
    /// The structure of the tree changed.
    Tree,
}

impl PendingEvents {
    /// Adds an event.
    fn note(&mut self, heard: PathChange) {
        match heard {
            PathChange::File(path, signal) => {
                self.files.insert(path, signal);
            }
            PathChange::Other(path) => {
                self.others.insert(path);
            }
            PathChange::Tree => self.tree = true,
        }
    }
}

/// The meaning of an event for a source of files under `root`.
fn path_changes<'a>(root: &'a Path, event: &'a Event) -> impl Iterator<Item = PathChange> + 'a {
    let overflow = event.need_rescan().then_some(PathChange::Tree);
    overflow.into_iter().chain(
        event
            .paths
            .iter()
            .filter_map(|path| path_change(root, path, event.kind)),
    )
}

/// The meaning of an event for one path.
fn path_change(root: &Path, path: &Path, kind: EventKind) -> Option<PathChange> {
    let signal = signal_of(kind)?;
    let Ok(inside) = path.strip_prefix(root) else {
        // Outside the root: in its parent, where events are ignored, or in the directory of a
        // link's target.
        let beside = root.parent() == path.parent();
        return (!beside).then_some(PathChange::Tree);
    };

    let is_mount_link = is_hidden(path)
        && path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".."));
    let is_folder = matches!(
        kind,
        EventKind::Create(CreateKind::Folder) | EventKind::Remove(RemoveKind::Folder)
    );

    let changes_shape = !matches!(
        kind,
        EventKind::Modify(ModifyKind::Data(_)) | EventKind::Access(_)
    );
    if inside.as_os_str().is_empty() || (is_mount_link && changes_shape) {
        return changes_shape.then_some(PathChange::Tree);
    }

    if inside.ancestors().any(is_hidden) {
        return None;
    }

    match format_of(path) {
        Some(_) if !is_folder => Some(PathChange::File(path.to_owned(), signal)),
        Some(_) | None if is_folder => Some(PathChange::Tree),
        Some(_) | None => changes_shape.then(|| PathChange::Other(path.to_owned())),
    }
}

/// Whether a file is complete after an event; `None` for events without a change, such as this
/// process's own reads.
pub(crate) fn signal_of(kind: EventKind) -> Option<Signal> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Name(_))
        | EventKind::Remove(_) => Some(Signal::Settled),
        EventKind::Access(_) => None,
        EventKind::Create(_)
        | EventKind::Any
        | EventKind::Other
        | EventKind::Modify(
            ModifyKind::Any | ModifyKind::Data(_) | ModifyKind::Metadata(_) | ModifyKind::Other,
        ) => Some(Signal::Touched),
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{DataChange, MetadataKind, RenameMode};

    use super::*;

    /// The change that an event of a path under `/c` stands for.
    fn change_of(path: &str, kind: EventKind) -> Option<PathChange> {
        path_change(Path::new("/c"), Path::new(path), kind)
    }

    /// That a file was heard of.
    fn file(path: &str, signal: Signal) -> Option<PathChange> {
        Some(PathChange::File(path.into(), signal))
    }

    #[test]
    fn a_closed_or_moved_file_is_settled_and_a_growing_one_is_not() {
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let moved = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        let grown = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        assert_eq!(
            change_of("/c/d/a.yaml", closed),
            file("/c/d/a.yaml", Signal::Settled)
        );
        assert_eq!(
            change_of("/c/a.JSON", moved),
            file("/c/a.JSON", Signal::Settled)
        );

        assert_eq!(
            change_of("/c/a.yml", EventKind::Remove(RemoveKind::File)),
            file("/c/a.yml", Signal::Settled)
        );
        assert_eq!(
            change_of("/c/a.yml", EventKind::Create(CreateKind::File)),
            file("/c/a.yml", Signal::Touched)
        );

        assert_eq!(
            change_of("/c/a.yml", grown),
            file("/c/a.yml", Signal::Touched)
        );
        let chmod = EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any));
        assert_eq!(
            change_of("/c/a.yml", chmod),
            file("/c/a.yml", Signal::Touched)
        );
    }

    #[test]
    fn reads_cause_no_watch_events() {
        assert_eq!(
            change_of(
                "/c/a.yaml",
                EventKind::Access(AccessKind::Close(AccessMode::Read))
            ),
            None
        );
        assert_eq!(
            change_of("/c", EventKind::Access(AccessKind::Open(AccessMode::Any))),
            None
        );
        assert_eq!(
            change_of("/c/d", EventKind::Access(AccessKind::Open(AccessMode::Any))),
            None
        );
    }

    #[test]
    fn folders_links_and_mounts_change_the_tree() {
        let moved = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        assert_eq!(
            change_of("/c/d", EventKind::Create(CreateKind::Folder)),
            Some(PathChange::Tree)
        );
        assert_eq!(
            change_of("/c/d.yaml", EventKind::Create(CreateKind::Folder)),
            Some(PathChange::Tree)
        );

        let other = PathChange::Other("/c/d".into());
        assert_eq!(change_of("/c/d", moved), Some(other));
        assert_eq!(change_of("/c/..data", moved), Some(PathChange::Tree));
        assert_eq!(
            change_of("/c", EventKind::Remove(RemoveKind::Folder)),
            Some(PathChange::Tree)
        );
        assert_eq!(
            change_of("/elsewhere/target.yaml", moved),
            Some(PathChange::Tree)
        );
    }

    #[test]
    fn events_of_unrelated_files_are_ignored() {
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let created = EventKind::Create(CreateKind::File);
        assert_eq!(change_of("/other.yaml", created), None);
        assert_eq!(change_of("/c/.a.yaml.swp", created), None);
        assert_eq!(change_of("/c/.git/a.yaml", created), None);
        assert_eq!(change_of("/c/..2024/a.yaml", written), None);
        assert_eq!(change_of("/c/notes.txt", written), None);
    }
}

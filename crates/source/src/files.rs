//! A directory of YAML and JSON as a source.
//!
//! ```text
//! file system ─▶ inbox ─▶ agenda ─▶ read what is due ─▶ index ─▶ batch of events
//! ```
//!
//! One thread owns all state: it waits for file system events, reads and decodes changed files, and
//! sends the differences. Only changed files are read; the whole tree is only scanned when its
//! structure changes.

mod agenda;
mod index;
mod scan;
mod slots;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::{Batch, SourceError, SourceEvent};
use crate::event_log::{EventLog, event_log};
use index::Index;
use scan::{FileMetadata, Reading, Walk};
use slots::Contents;
use watch::Watch;

pub(super) use agenda::{Agenda, Signal};
pub(super) use scan::read_bytes;
pub(super) use watch::{Inbox, signal_of};

/// Settings of a source of files.
#[derive(Clone, Debug)]
pub struct FileSourceConfig {
    /// The directory. It is read recursively; names that start with a dot are ignored.
    pub root: PathBuf,
}

/// A directory as a source: files that end in `.yaml`, `.yml` or `.json`, each with any number of
/// objects.
///
/// Until the directory is readable the source is not synced; when it becomes unreadable, its
/// objects stay in force.
#[derive(Debug)]
pub struct FileSource {
    config: FileSourceConfig,
}

impl FileSource {
    /// Creates a source. It reads nothing before it runs.
    #[must_use]
    pub fn new(config: FileSourceConfig) -> Self {
        Self { config }
    }

    /// Sends the objects of the directory and then changes, until the receiver is closed or the
    /// future is dropped. When `reload` is notified, every file is read again.
    ///
    /// It blocks when the channel is full: changes in the meantime are merged.
    ///
    /// # Errors
    /// If the reader thread fails.
    pub async fn run(
        self,
        events: mpsc::Sender<Batch>,
        reload: Arc<Notify>,
    ) -> Result<(), SourceError> {
        let inbox = Arc::new(Inbox::default());
        let place = self.config.root.display().to_string();
        let worker = Worker::new(self.config.root, inbox.clone(), events.clone());
        run_thread(place, inbox, events, reload, move || worker.run()).await
    }
}

/// The name of a path in the index and in problems. Paths that are not UTF-8 have escapes, not
/// replacement characters: two of them would have one name, and the objects of only one file.
fn place_of(path: &Path) -> Arc<str> {
    match path.to_str() {
        Some(text) => Arc::from(text),
        None => Arc::from(format!("{path:?}")),
    }
}

/// Runs a reader on a thread of its own until the receiver is closed or the future is dropped, and
/// forwards `reload` to it.
pub(super) async fn run_thread(
    place: String,
    inbox: Arc<Inbox>,
    events: mpsc::Sender<Batch>,
    reload: Arc<Notify>,
    reader: impl FnOnce() + Send + 'static,
) -> Result<(), SourceError> {
    /// Ends the reader when the future is dropped.
    struct Close(Arc<Inbox>);

    impl Drop for Close {
        fn drop(&mut self) {
            self.0.add(|news| news.closed = true);
        }
    }

    let close = Close(inbox);
    let mut thread = start_thread(reader).map_err(|source| SourceError::Thread {
        place: place.clone(),
        source,
    })?;

    loop {
        tokio::select! {
            ended = &mut thread => return ended.map_err(|_| SourceError::Panicked(place)),
            () = reload.notified() => close.0.add(|news| news.reload = true),
            () = events.closed() => return Ok(()),
        }
    }
}

/// Starts a thread that process exit does not wait for, because a file system may hang. An error of
/// the receiver means a panic.
fn start_thread(reader: impl FnOnce() + Send + 'static) -> std::io::Result<oneshot::Receiver<()>> {
    let (sender, ended) = oneshot::channel();
    let run = move || {
        reader();
        // The receiver may be dropped with the source.
        sender.send(()).unwrap_or_default();
    };
    std::thread::Builder::new()
        .name("file reader".to_owned())
        .spawn(run)?;
    Ok(ended)
}

/// The state of the thread that reads files and watches their folders.
struct Worker {
    root: PathBuf,
    /// File system events.
    inbox: Arc<Inbox>,
    /// The receiver of batches.
    events: mpsc::Sender<Batch>,
    /// The file watcher; `None` while the system cannot provide one.
    watch: Option<Watch>,
    agenda: Agenda,
    /// Metadata of the files when last read.
    stamps: BTreeMap<PathBuf, FileMetadata>,
    /// The directories of the last scan.
    folders: BTreeSet<PathBuf>,
    /// Unreadable directories and files.
    unreadable: BTreeSet<PathBuf>,
    /// The objects of the files.
    index: Index,
    /// Whether all initial objects were sent.
    synced: bool,
    log: EventLog,
}

impl Worker {
    /// A reader before its first scan.
    fn new(root: PathBuf, inbox: Arc<Inbox>, events: mpsc::Sender<Batch>) -> Self {
        let log = event_log!(Arc::from(format!("fs://{}", root.display())));
        Self {
            root,
            inbox,
            events,
            watch: None,
            agenda: Agenda::new(Instant::now()),
            stamps: BTreeMap::new(),
            folders: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            index: Index::default(),
            synced: false,
            log,
        }
    }

    /// Runs until the receiver is closed.
    fn run(mut self) {
        loop {
            let news = self.inbox.wait(self.agenda.next());
            if news.closed {
                return;
            }

            let now = Instant::now();
            if news.tree || self.has_folder(&news.others) {
                self.agenda.note_tree(now);
            }
            for (path, signal) in news.files {
                self.agenda.note_file(path, signal, now);
            }

            let mut due = self.agenda.take_due(now);
            let looked = (due.walk || news.reload) && self.scan_tree(&mut due.files, news.reload);
            for path in due.files {
                self.apply(&path, now);
            }

            let mut batch = self.index.take_changes();

            if looked && !self.synced {
                self.synced = true;
                batch.push(SourceEvent::FullSync);
            }

            if batch.is_empty() {
                continue;
            }

            self.log.record(&batch);
            if self.events.blocking_send(batch).is_err() {
                return;
            }
        }
    }

    /// Whether one of these paths is a directory, or was one at the last scan. Others are not read,
    /// such as the temporary files of tools that replace a file (`sed -i`): a scan for each would
    /// cost as much as the whole tree.
    fn has_folder(&self, paths: &BTreeSet<PathBuf>) -> bool {
        let is_folder = |path: &PathBuf| self.folders.contains(path) || path.is_dir();
        paths.iter().any(is_folder)
    }

    /// Scans the tree; schedules changed files, or `all`, for reading. Returns whether the scan
    /// succeeded.
    fn scan_tree(&mut self, due: &mut Vec<PathBuf>, all: bool) -> bool {
        // Watch first, so that changes after the scan cause events.
        let deaf = self.listen().err();
        let walk = scan::walk(&self.root);
        self.agenda.set_unwatched(deaf.is_some() || walk.is_err());
        let root = place_of(&self.root);
        let problem = match (&walk, deaf) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), Some(error)) => Some(format!(
                "changes are detected late, because it cannot be watched: {error}"
            )),
            (Ok(_), None) => None,
        };

        self.index.set_problem(&root, problem);
        let Ok(mut walk) = walk else { return false };
        self.note_unreadable(&walk);
        self.folders = std::mem::take(&mut walk.folders);
        if let Some(watch) = &mut self.watch {
            watch.set_link_targets(std::mem::take(&mut walk.link_targets));
        }

        let changed = walk
            .files
            .iter()
            .filter(|(path, stamp)| all || self.stamps.get(*path) != Some(*stamp));
        due.extend(changed.map(|(path, _)| path.clone()));
        let kept = |path: &&PathBuf| {
            !walk
                .unreadable
                .keys()
                .any(|folder| path.starts_with(folder))
        };

        let gone = self
            .stamps
            .keys()
            .filter(|path| !walk.files.contains_key(*path));
        due.extend(gone.filter(kept).cloned());
        due.sort();
        due.dedup();

        true
    }

    /// Watches the directory and its current subdirectories.
    fn listen(&mut self) -> notify::Result<()> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => none.insert(Watch::new(&self.root, self.inbox.clone())?),
        };
        watch.attach()
    }

    /// Records the problems of unreadable directories, and their end.
    fn note_unreadable(&mut self, walk: &Walk) {
        for well in std::mem::take(&mut self.unreadable) {
            if !walk.unreadable.contains_key(&well) {
                self.index.set_problem(&place_of(&well), None);
            }
        }
        for (path, reason) in &walk.unreadable {
            self.index
                .set_problem(&place_of(path), Some(reason.clone()));
            self.unreadable.insert(path.clone());
        }
    }

    /// Reads a file and applies its content, unless that would delete objects that may come back.
    fn apply(&mut self, path: &Path, now: Instant) {
        let file = place_of(path);
        let stamp = scan::stamp(path);
        let reading = catch_unwind(AssertUnwindSafe(|| {
            scan::read(path, stamp, self.index.hash(&file))
        }));

        // A bug that one file triggers must not affect other files.
        let reading = reading.unwrap_or_else(|_| {
            Reading::Unreadable("BUG: panic while reading the file".to_owned())
        });
        let is_reported_at_once = matches!(reading, Reading::Unfit(_));
        if matches!(reading, Reading::Changing)
            || (!is_reported_at_once && scan::stamp(path) != stamp)
        {
            self.agenda.note_file(path.to_owned(), Signal::Touched, now);
            return;
        }

        // The last scan could not read the file, but it is readable now.
        let is_faulty = matches!(reading, Reading::Failed(_) | Reading::Unfit(_));
        if !is_faulty && self.unreadable.remove(path) {
            self.index.set_problem(&file, None);
        }

        let before = self.index.contents(&file);
        let (contents, hash) = match reading {
            Reading::Same => {
                self.agenda.forget_loss(path);
                self.index.set_missing(&file, false);
                self.stamps
                    .extend(stamp.map(|stamp| (path.to_owned(), stamp)));
                return;
            }
            Reading::Objects(decoded, hash) => {
                (Some(Contents::read(&file, decoded, &before)), Some(hash))
            }
            Reading::Failed(reason) => {
                self.agenda.note_file(path.to_owned(), Signal::Failed, now);
                (Some(Contents::unreadable(&file, reason, &before)), None)
            }
            Reading::Unreadable(reason) | Reading::Unfit(reason) => {
                (Some(Contents::unreadable(&file, reason, &before)), None)
            }
            Reading::Folder => {
                self.agenda.note_tree(now);
                (None, None)
            }
            Reading::Gone | Reading::Changing => (None, None),
        };

        let loses = match &contents {
            Some(contents) => contents.has_deletions_since(&before),
            None => !before.slots.is_empty(),
        };
        if loses && !self.agenda.may_delete(path, now) {
            self.index.set_missing(&file, contents.is_none());
            return;
        }

        self.agenda.forget_loss(path);

        match stamp.filter(|_| contents.is_some()) {
            Some(stamp) => self.stamps.insert(path.to_owned(), stamp),
            None => self.stamps.remove(path),
        };

        match contents {
            Some(contents) => self.index.put(&file, contents, hash),
            None if self.index.contains(&file) => self.index.remove(&file),
            None => {}
        }
    }
}

//! A directory of YAML and JSON as a source.
//!
//! ```text
//! file system ─▶ inbox ─▶ agenda ─▶ read what is due ─▶ index ─▶ batch of events
//! ```
//!
//! One thread owns it all: it waits for the file system, reads and decodes the files that changed, and tells what
//! became different. Only those files are read; the tree as a whole is merely looked over when its shape changes.

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
use index::Index;
use scan::{Reading, Stamp, Walk};
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

/// A directory as a source: files that end in `.yaml`, `.yml` or `.json`, each with any number of objects.
///
/// Until the directory can be read, nothing is synced; when it cannot be read any more, what it held stays in force.
#[derive(Debug)]
pub struct FileSource {
    config: FileSourceConfig,
}

impl FileSource {
    /// A source; nothing is read before it runs.
    #[must_use]
    pub fn new(config: FileSourceConfig) -> Self {
        Self { config }
    }

    /// Tells what the directory holds, and from then on what changes, until nobody listens or the future is dropped.
    /// Whenever `reload` is notified, every file is read anew.
    ///
    /// When the channel is full, it waits: meanwhile changes gather in the file system, and count once.
    ///
    /// # Errors
    /// When the thread that reads fails.
    pub async fn run(self, events: mpsc::Sender<Batch>, reload: Arc<Notify>) -> Result<(), SourceError> {
        let inbox = Arc::new(Inbox::default());
        let place = self.config.root.display().to_string();
        let worker = Worker::new(self.config.root, inbox.clone(), events.clone());
        run_thread(place, inbox, events, reload, move || worker.run()).await
    }
}

/// Runs a reader on a thread of its own until nobody listens or the future is dropped, and passes `reload` on to it.
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
    let mut thread = start_thread(reader).map_err(|source| SourceError::Thread { place: place.clone(), source })?;
    loop {
        tokio::select! {
            ended = &mut thread => return ended.map_err(|_| SourceError::Panicked(place)),
            () = reload.notified() => close.0.add(|news| news.reload = true),
            () = events.closed() => return Ok(()),
        }
    }
}

/// Starts a thread of its own, which the end of the process does not wait for: a file system may not answer. An error in
/// place of its end is a panic.
fn start_thread(reader: impl FnOnce() + Send + 'static) -> std::io::Result<oneshot::Receiver<()>> {
    let (sender, ended) = oneshot::channel();
    let run = move || {
        reader();
        // Nobody waits for it where the source was dropped.
        sender.send(()).unwrap_or_default();
    };
    std::thread::Builder::new().name("file reader".to_owned()).spawn(run)?;
    Ok(ended)
}

/// The thread that reads.
struct Worker {
    root: PathBuf,
    /// What was heard.
    inbox: Arc<Inbox>,
    /// Who wants to know.
    events: mpsc::Sender<Batch>,
    /// The ear; `None` while the system gives none.
    watch: Option<Watch>,
    /// What is to be done when.
    agenda: Agenda,
    /// The files as they were when last read.
    stamps: BTreeMap<PathBuf, Stamp>,
    /// Folders and files that could not be looked at.
    unreadable: BTreeSet<PathBuf>,
    /// What the files hold.
    index: Index,
    /// Whether all initial objects were sent.
    synced: bool,
}

impl Worker {
    /// A reader with everything before it.
    fn new(root: PathBuf, inbox: Arc<Inbox>, events: mpsc::Sender<Batch>) -> Self {
        Self {
            root,
            inbox,
            events,
            watch: None,
            agenda: Agenda::new(Instant::now()),
            stamps: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            index: Index::default(),
            synced: false,
        }
    }

    /// Works until nobody listens.
    fn run(mut self) {
        loop {
            let news = self.inbox.wait(self.agenda.next());
            if news.closed {
                return;
            }
            let now = Instant::now();
            for (path, signal) in news.files {
                self.agenda.note_file(path, signal, now);
            }
            if news.tree {
                self.agenda.note_tree(now);
            }
            let mut due = self.agenda.take_due(now);
            let looked = (due.walk || news.reload) && self.look_over(&mut due.files, news.reload);
            for path in due.files {
                self.apply(&path, now);
            }
            let mut batch = self.index.settle();
            if looked && !self.synced {
                self.synced = true;
                batch.push(SourceEvent::FullSync);
            }
            if !batch.is_empty() && self.events.blocking_send(batch).is_err() {
                return;
            }
        }
    }

    /// Looks over the tree; adds the files that changed, or `all`, to those to be read. Says whether it could be looked at.
    fn look_over(&mut self, due: &mut Vec<PathBuf>, all: bool) -> bool {
        // Listen first: what changes after the look is heard of.
        let deaf = self.listen().err();
        let walk = scan::walk(&self.root);
        self.agenda.set_blind(deaf.is_some() || walk.is_err());
        let root: Arc<str> = Arc::from(self.root.display().to_string());
        let problem = match (&walk, deaf) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), Some(error)) => Some(format!("changes are found late, for it cannot be watched: {error}")),
            (Ok(_), None) => None,
        };
        self.index.set_problem(&root, problem);
        let Ok(walk) = walk else { return false };
        self.note_unreadable(&walk);
        if let Some(watch) = &mut self.watch {
            watch.set_link_targets(walk.link_targets);
        }
        let changed = walk.files.iter().filter(|(path, stamp)| all || self.stamps.get(*path) != Some(*stamp));
        due.extend(changed.map(|(path, _)| path.clone()));
        let kept = |path: &&PathBuf| !walk.unreadable.keys().any(|folder| path.starts_with(folder));
        let gone = self.stamps.keys().filter(|path| !walk.files.contains_key(*path));
        due.extend(gone.filter(kept).cloned());
        due.sort();
        due.dedup();
        true
    }

    /// Listens to the directory and all that is in it now.
    fn listen(&mut self) -> notify::Result<()> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => none.insert(Watch::new(&self.root, self.inbox.clone())?),
        };
        watch.attach()
    }

    /// Notes the problems of folders that cannot be looked into, and the end of such problems.
    fn note_unreadable(&mut self, walk: &Walk) {
        let place = |path: &Path| Arc::from(path.display().to_string());
        for well in std::mem::take(&mut self.unreadable) {
            if !walk.unreadable.contains_key(&well) {
                self.index.set_problem(&place(&well), None);
            }
        }
        for (path, reason) in &walk.unreadable {
            self.index.set_problem(&place(path), Some(reason.clone()));
            self.unreadable.insert(path.clone());
        }
    }

    /// Reads a file and takes in what it holds, unless that would lose something that may come back.
    fn apply(&mut self, path: &Path, now: Instant) {
        let file: Arc<str> = Arc::from(path.display().to_string());
        let stamp = scan::stamp(path);
        let reading = catch_unwind(AssertUnwindSafe(|| scan::read(path, stamp, self.index.hash(&file))));
        // A fault of ours in one file must not take the others with it.
        let reading = reading.unwrap_or_else(|_| Reading::Unreadable("reading it failed, which is a bug".to_owned()));
        let is_told_at_once = matches!(reading, Reading::Unfit(_));
        if matches!(reading, Reading::Changing) || (!is_told_at_once && scan::stamp(path) != stamp) {
            self.agenda.note_file(path.to_owned(), Signal::Touched, now);
            return;
        }
        // The walk found that it could not be looked at; that is over.
        let is_faulty = matches!(reading, Reading::Failed(_) | Reading::Unfit(_));
        if !is_faulty && self.unreadable.remove(path) {
            self.index.set_problem(&file, None);
        }
        let before = self.index.contents(&file);
        let (contents, hash) = match reading {
            Reading::Same => {
                self.agenda.forget_loss(path);
                self.index.set_vanishing(&file, false);
                self.stamps.extend(stamp.map(|stamp| (path.to_owned(), stamp)));
                return;
            }
            Reading::Objects(decoded, hash) => (Some(Contents::read(&file, decoded, &before)), Some(hash)),
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
            Some(contents) => contents.loses_of(&before),
            None => !before.slots.is_empty(),
        };
        if loses && !self.agenda.may_lose(path, now) {
            self.index.set_vanishing(&file, contents.is_none());
            return;
        }
        self.agenda.forget_loss(path);
        match stamp.filter(|_| contents.is_some()) {
            Some(stamp) => self.stamps.insert(path.to_owned(), stamp),
            None => self.stamps.remove(path),
        };
        match contents {
            Some(contents) => self.index.put(&file, contents, hash),
            None if self.index.holds(&file) => self.index.remove(&file),
            None => {}
        }
    }
}

//! Mesh config and mesh networks from files.
//!
//! The files are read at start and whenever they change. An invalid file is reported as a problem,
//! and its last valid content stays in force. Without a file the defaults apply. If a file is
//! invalid or unreadable at start, the source waits for a valid one: with defaults, perhaps of
//! another trust domain, every certificate would be wrong.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::files::{Agenda, Inbox, Signal, read_bytes, run_thread, signal_of};
use super::mesh_text::{Parsed, Valid, parse_mesh_config, parse_mesh_networks};
use super::problem::{FilePosition, Problem, ProblemKind};
use super::{Batch, SourceError, SourceEvent};
use navarch_api::decode::Subject;
use navarch_api::mesh::{MeshConfig, MeshNetworks};

/// Settings of a source of mesh config.
#[derive(Clone, Debug)]
pub struct MeshFileSourceConfig {
    /// The file of the mesh config, applied over `base`.
    pub mesh: Option<PathBuf>,
    /// `--networks-config`: a YAML file with `networks`. `None` if networks are not read from a
    /// file.
    pub networks: Option<PathBuf>,
    /// The values of fields that the file does not set.
    pub base: MeshConfig,
}

/// Mesh config and mesh networks from files.
#[derive(Debug)]
pub struct MeshFileSource {
    config: MeshFileSourceConfig,
}

impl MeshFileSource {
    /// Creates a source. It reads nothing before it runs.
    #[must_use]
    pub fn new(config: MeshFileSourceConfig) -> Self {
        Self { config }
    }

    /// Sends mesh config and networks, and then every change, until the receiver is closed or the
    /// future is dropped. When `reload` is notified, both are read again.
    ///
    /// # Errors
    /// If the thread that reads fails.
    pub async fn run(
        self,
        events: mpsc::Sender<Batch>,
        reload: Arc<Notify>,
    ) -> Result<(), SourceError> {
        let inbox = Arc::new(Inbox::default());
        let worker = Worker::new(self.config, inbox.clone(), events.clone());
        run_thread("mesh config".to_owned(), inbox, events, reload, move || {
            worker.run()
        })
        .await
    }
}

/// A file and its state.
#[derive(Debug)]
struct TextFile {
    path: PathBuf,
    /// Its content when it was last read; `None` before that, and if it is unreadable.
    text: Option<String>,
    /// Whether its text is invalid, or it exists and is unreadable.
    is_broken: bool,
    /// The problems that were sent for it.
    problems: Vec<Problem>,
}

/// The result of reading a file.
enum FileRead {
    Text(String),
    /// There is no file, with the error of the operating system.
    Missing(String),
    /// Why reading failed.
    Unreadable(String),
}

/// The state of the thread that reads the files and watches them.
struct Worker {
    /// The mesh config below the file.
    base: MeshConfig,
    /// The file of the mesh config.
    mesh: Option<TextFile>,
    /// The file of the mesh networks.
    networks: Option<TextFile>,
    /// File system events.
    inbox: Arc<Inbox>,
    /// The receiver of batches.
    events: mpsc::Sender<Batch>,
    /// The file watcher; `None` while the system cannot provide one.
    watcher: Option<RecommendedWatcher>,
    /// The schedule of reading.
    agenda: Agenda,
}

impl TextFile {
    /// A file that was not read yet.
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            text: None,
            is_broken: false,
            problems: Vec::new(),
        }
    }

    /// Whether it had content when it was last read.
    fn had_content(&self) -> bool {
        self.text
            .as_ref()
            .is_some_and(|text| !text.trim().is_empty())
    }

    /// Reads the file; `None` if it is unchanged, or if missing content may come back.
    fn read_if_changed(&self, agenda: &mut Agenda, now: Instant) -> Option<FileRead> {
        let look = match read_bytes(&self.path).map(String::from_utf8) {
            Ok(Ok(text)) => FileRead::Text(text),
            Ok(Err(_)) => FileRead::Unreadable("is not UTF-8 text".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                FileRead::Missing(error.to_string())
            }
            Err(error) => FileRead::Unreadable(error.to_string()),
        };
        let (same, empty) = match &look {
            FileRead::Text(text) => (self.text.as_ref() == Some(text), text.trim().is_empty()),
            FileRead::Missing(_) | FileRead::Unreadable(_) => (false, true),
        };
        if empty && !same && self.had_content() && !agenda.may_delete(&self.path, now) {
            return None;
        }
        agenda.forget_loss(&self.path);
        (!same).then_some(look)
    }

    /// The events for the difference between the sent state and the file; `event` makes the event
    /// of a new value.
    fn apply<T>(
        &mut self,
        look: FileRead,
        parse: impl FnOnce(&str) -> Parsed<T>,
        event: impl FnOnce(Arc<T>) -> SourceEvent,
    ) -> Batch {
        let mut batch = Batch::new();
        let faults = match look {
            FileRead::Text(text) => {
                let parsed = parse(&text);
                self.text = Some(text);
                self.is_broken = parsed.is_err();
                match parsed {
                    Ok(Valid { value, oddities }) => {
                        batch.push(event(Arc::new(value)));
                        oddities
                    }
                    Err(errors) => errors
                        .into_iter()
                        .map(|error| (error.line, ProblemKind::Rejected(error.field)))
                        .collect(),
                }
            }
            FileRead::Missing(reason) => {
                self.text = None;
                self.is_broken = false;
                vec![(0, ProblemKind::Unreadable(reason))]
            }
            FileRead::Unreadable(reason) => {
                self.text = None;
                self.is_broken = true;
                vec![(0, ProblemKind::Unreadable(reason))]
            }
        };

        batch.extend(self.changed_problems(faults));
        batch
    }

    /// The event with the problems, if they differ from those sent before.
    fn changed_problems(&mut self, faults: Vec<(usize, ProblemKind)>) -> Option<SourceEvent> {
        let file: Arc<str> = Arc::from(self.path.display().to_string());
        let problem = |(line, fault)| Problem {
            place: FilePosition {
                file: file.clone(),
                line,
            },
            subject: Subject::default(),
            fault,
        };

        let problems: Vec<_> = faults.into_iter().map(problem).collect();
        if problems == self.problems {
            return None;
        }

        self.problems.clone_from(&problems);
        Some(SourceEvent::Problems {
            place: file,
            problems,
        })
    }
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

impl Worker {
    /// A reader in its initial state.
    fn new(config: MeshFileSourceConfig, inbox: Arc<Inbox>, events: mpsc::Sender<Batch>) -> Self {
        let MeshFileSourceConfig {
            mesh,
            networks,
            base,
        } = config;
        Self {
            base,
            mesh: mesh.map(TextFile::new),
            networks: networks.map(TextFile::new),
            inbox,
            events,
            watcher: None,
            agenda: Agenda::new(Instant::now()),
        }
    }

    /// Runs until the receiver is closed.
    fn run(mut self) {
        // The events to send once no file is broken; then `None`.
        let mut held = Some(self.defaults());

        loop {
            let news = self.inbox.wait(self.agenda.next());
            if news.closed {
                return;
            }

            let now = Instant::now();
            for (path, signal) in news.files {
                self.agenda.note_file(path, signal, now);
            }

            let mut due = self.agenda.take_due(now);
            if due.walk || news.reload {
                let deaf = self.listen().is_err();
                self.agenda.set_unwatched(deaf);
                due.files = self.files().map(|file| file.path.clone()).collect();
            }

            let mut batch = Batch::new();
            for path in due.files {
                batch.extend(self.apply(&path, now));
            }

            let is_broken = self.files().any(|file| file.is_broken);
            if let Some(held) = held.as_mut().filter(|_| is_broken) {
                let (problems, values) = batch
                    .into_iter()
                    .partition(|event| matches!(event, SourceEvent::Problems { .. }));
                held.extend::<Batch>(values);
                batch = problems;
            } else if let Some(mut all) = held.take() {
                all.append(&mut batch);
                all.push(SourceEvent::FullSync);
                batch = all;
            }

            if !batch.is_empty() && self.events.blocking_send(batch).is_err() {
                return;
            }
        }
    }

    fn files(&self) -> impl Iterator<Item = &TextFile> {
        self.mesh.iter().chain(&self.networks)
    }

    /// The events before any file is read.
    fn defaults(&self) -> Batch {
        vec![
            SourceEvent::MeshConfig(Arc::new(self.base.clone())),
            SourceEvent::MeshNetworks(Arc::new(MeshNetworks::default())),
        ]
    }

    /// Watches the directories of the files, and those of the targets of links.
    fn listen(&mut self) -> notify::Result<()> {
        let mut paths: Vec<PathBuf> = self.files().map(|file| file.path.clone()).collect();
        let targets: Vec<_> = paths
            .iter()
            .filter_map(|path| std::fs::canonicalize(path).ok())
            .collect();
        paths.extend(targets);
        let files: Vec<PathBuf> = self.files().map(|file| file.path.clone()).collect();
        let inbox = self.inbox.clone();

        let ours = paths.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error means that an event was lost.
            let signal = event.map_or(Some(Signal::Settled), |event| hear(&ours, &event));
            if let Some(signal) = signal {
                inbox.add(|news| {
                    news.files
                        .extend(files.iter().map(|path| (path.clone(), signal)))
                });
            }
        })?;

        for path in &paths {
            watcher.watch(folder(path), RecursiveMode::NonRecursive)?;
        }

        self.watcher = Some(watcher);
        Ok(())
    }

    /// Reads a file and applies its content.
    fn apply(&mut self, path: &Path, now: Instant) -> Batch {
        let mut batch = Batch::new();
        let agenda = &mut self.agenda;
        let base = &self.base;
        if let Some(file) = self.mesh.as_mut().filter(|file| file.path == path)
            && let Some(look) = file.read_if_changed(agenda, now)
        {
            batch.extend(file.apply(
                look,
                |text| parse_mesh_config(base, text),
                SourceEvent::MeshConfig,
            ));
        }

        if let Some(file) = self.networks.as_mut().filter(|file| file.path == path)
            && let Some(look) = file.read_if_changed(agenda, now)
        {
            batch.extend(file.apply(look, parse_mesh_networks, SourceEvent::MeshNetworks));
        }

        batch
    }
}

/// The signal of an event for our files: mounted ConfigMaps swap a link whose name starts with two
/// dots.
fn hear(ours: &[PathBuf], event: &Event) -> Option<Signal> {
    let signal = signal_of(event.kind)?;
    let is_link = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".."))
    };
    let is_ours = |path: &PathBuf| ours.contains(path) || is_link(path);
    (event.need_rescan() || event.paths.iter().any(is_ours)).then_some(signal)
}

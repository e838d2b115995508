//! When to look at which file: events in, due work out, without a clock of its own.
//!
//! A file is read right after its writer closed it, or once it has been quiet for a while where no closing is seen
//! (links, other systems). A reading that would lose objects waits: editors take a file away before they put the new
//! one, and truncate before they write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// How long events of one stroke are gathered (all files of a swapped mount, say).
const DEBOUNCE: Duration = Duration::from_millis(1);

/// How long a file that was touched, but not closed, must be quiet.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// When a file that could not be read is read again: what is missing, such as file descriptors, may be there by then.
const RETRY: Duration = Duration::from_secs(1);

/// How long a loss waits for its reason to go away.
const GRACE: Duration = Duration::from_millis(20);

/// When to walk the tree once more after it changed shape: what was put into a new folder before that was watched.
const RESCAN_DELAY: Duration = Duration::from_millis(100);

/// How often the tree is walked though nothing was heard. Some file systems tell nothing.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);

/// How often the tree is walked while it cannot be watched or read.
const BLIND_SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// What was heard of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The write is complete, as far as inotify reports: closed, moved, or deleted.
    Settled,
    /// Somebody may be at it still.
    Touched,
    /// Reading it failed.
    Failed,
}

/// What is to be done when.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Files to be read.
    files: BTreeMap<PathBuf, Instant>,
    /// Files whose loss waits, since when.
    losses: BTreeMap<PathBuf, Instant>,
    /// When to walk the tree; the last ends with the sweep.
    walks: BTreeSet<Instant>,
    /// Whether nothing is heard of the tree.
    blind: bool,
}

/// What is due now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Files to be read.
    pub(crate) files: Vec<PathBuf>,
    /// Whether to walk the tree.
    pub(crate) walk: bool,
}

impl Agenda {
    /// Starts with nothing but a walk, at once.
    pub(crate) fn new(now: Instant) -> Self {
        Self { files: BTreeMap::new(), losses: BTreeMap::new(), walks: BTreeSet::from([now]), blind: false }
    }

    /// Notes what was heard of a file.
    pub(crate) fn note_file(&mut self, path: PathBuf, signal: Signal, now: Instant) {
        let wait = match signal {
            Signal::Settled => DEBOUNCE,
            Signal::Touched => SETTLE_TIME,
            Signal::Failed => RETRY,
        };
        self.files.insert(path, now + wait);
    }

    /// Notes that the tree changed shape.
    pub(crate) fn note_tree(&mut self, now: Instant) {
        // Two walks at most are kept: the next, and one after the last change.
        let next = self.walks.first().copied().filter(|at| *at <= now + DEBOUNCE);
        self.walks = BTreeSet::from([next.unwrap_or(now + DEBOUNCE), now + RESCAN_DELAY]);
    }

    /// Notes whether anything is heard of the tree.
    pub(crate) fn set_blind(&mut self, blind: bool) {
        self.blind = blind;
    }

    /// When there is something to be done next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.files.values().chain(&self.walks).min().copied()
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Due {
        let files: Vec<_> = self.files.iter().filter(|(_, at)| **at <= now).map(|(path, _)| path.clone()).collect();
        for path in &files {
            self.files.remove(path);
        }
        let later = self.walks.split_off(&(now + Duration::from_nanos(1)));
        let walk = !std::mem::replace(&mut self.walks, later).is_empty();
        if self.walks.is_empty() {
            self.walks.insert(now + if self.blind { BLIND_SCAN_INTERVAL } else { SCAN_INTERVAL });
        }
        Due { files, walk }
    }

    /// Whether a loss in this file may be taken for true. If not yet, the file comes up again.
    pub(crate) fn may_lose(&mut self, path: &Path, now: Instant) -> bool {
        match self.losses.get(path) {
            Some(since) if now >= *since + GRACE => {
                self.losses.remove(path);
                true
            }
            Some(since) => {
                self.files.insert(path.to_owned(), *since + GRACE);
                false
            }
            None => {
                self.losses.insert(path.to_owned(), now);
                self.files.insert(path.to_owned(), now + GRACE);
                false
            }
        }
    }

    /// Notes that a file loses nothing, or nothing any more.
    pub(crate) fn forget_loss(&mut self, path: &Path) {
        self.losses.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment, in milliseconds.
    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_closed_file_is_due_at_once_and_a_touched_one_when_it_is_quiet() {
        let start = Instant::now();
        let mut agenda = Agenda::new(start);
        assert_eq!(agenda.take_due(start), Due { files: vec![], walk: true });
        agenda.note_file("a".into(), Signal::Touched, start);
        agenda.note_file("b".into(), Signal::Settled, start);
        assert_eq!(agenda.next(), Some(start + DEBOUNCE));
        assert_eq!(agenda.take_due(at(start, 1)).files, [PathBuf::from("b")]);
        agenda.note_file("a".into(), Signal::Touched, at(start, 15));
        assert_eq!(agenda.take_due(at(start, 34)), Due::default());
        agenda.note_file("a".into(), Signal::Settled, at(start, 34));
        assert_eq!(agenda.take_due(at(start, 35)).files, [PathBuf::from("a")]);
    }

    #[test]
    fn a_loss_waits_once_and_is_forgotten_when_it_was_none() {
        let start = Instant::now();
        let mut agenda = Agenda::new(start);
        let path = Path::new("a");
        assert!(!agenda.may_lose(path, start));
        assert!(!agenda.may_lose(path, at(start, 10)));
        assert_eq!(agenda.take_due(at(start, 20)).files, [path]);
        assert!(agenda.may_lose(path, at(start, 20)));
        assert!(!agenda.may_lose(path, at(start, 21)));
        agenda.forget_loss(path);
        assert!(!agenda.may_lose(path, at(start, 60)));
    }

    #[test]
    fn the_tree_is_walked_soon_and_once_more_and_then_now_and_again() {
        let start = Instant::now();
        let mut agenda = Agenda::new(start);
        agenda.take_due(start);
        for millis in 0..5 {
            agenda.note_tree(at(start, millis));
        }
        let mut walks = Vec::new();
        for millis in 0..40_000 {
            if agenda.take_due(at(start, millis)).walk {
                walks.push(millis);
            }
        }
        assert_eq!(walks, [1, 104, 30_104]);
        agenda.set_blind(true);
        agenda.note_tree(at(start, 40_000));
        agenda.take_due(at(start, 41_000));
        assert_eq!(agenda.next(), Some(at(start, 42_000)));
    }
}

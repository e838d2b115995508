//! The schedule of reading files: events in, due work out, without a clock of its own.
//!
//! A file is read right after its writer closed it, or once it has been unchanged for a while if
//! there are no close events (links, other systems). Applying a file that would delete objects is
//! delayed: editors delete a file before they create the new one, and truncate before they write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// Debounce time of related events, such as all files of a swapped mount.
const DEBOUNCE: Duration = Duration::from_millis(1);

/// How long a file that was written, but not closed, must be unchanged.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Retry delay of an unreadable file, as when file descriptors are missing.
const RETRY: Duration = Duration::from_secs(1);

/// How long a deletion is delayed.
const DELETION_DELAY: Duration = Duration::from_millis(20);

/// Delay of a second scan after a structural change, for files that were created in a new directory
/// before it was watched.
const RESCAN_DELAY: Duration = Duration::from_millis(100);

/// Interval of scans without events, as some file systems send none.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);

/// Interval of scans while the tree cannot be watched or read.
const BLIND_SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// An event of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The write is complete, as far as inotify reports: closed, moved, or deleted.
    Settled,
    /// It may still be written.
    Touched,
    /// Reading it failed.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Agenda {
    /// Files to read.
    files: BTreeMap<PathBuf, Instant>,
    /// Files with a delayed deletion, since when.
    losses: BTreeMap<PathBuf, Instant>,
    /// When to scan the tree.
    walks: BTreeSet<Instant>,
    /// Whether the tree is not watched.
    blind: bool,
}

/// The work that is due now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Files to read.
    pub(crate) files: Vec<PathBuf>,
    /// Whether to scan the tree.
    pub(crate) walk: bool,
}

impl Agenda {
    /// Starts with an immediate scan.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            files: BTreeMap::new(),
            losses: BTreeMap::new(),
            walks: BTreeSet::from([now]),
            blind: false,
        }
    }

    /// Records an event of a file.
    pub(crate) fn note_file(&mut self, path: PathBuf, signal: Signal, now: Instant) {
        let wait = match signal {
            Signal::Settled => DEBOUNCE,
            Signal::Touched => SETTLE_TIME,
            Signal::Failed => RETRY,
        };
        self.files.insert(path, now + wait);
    }

    /// Records a structural change.
    pub(crate) fn note_tree(&mut self, now: Instant) {
        // At most two scans are scheduled: the next, and one after the last change.
        let next = self
            .walks
            .first()
            .copied()
            .filter(|at| *at <= now + DEBOUNCE);
        self.walks = BTreeSet::from([next.unwrap_or(now + DEBOUNCE), now + RESCAN_DELAY]);
    }

    /// Records whether the tree is watched.
    pub(crate) fn set_unwatched(&mut self, blind: bool) {
        self.blind = blind;
    }

    /// When the next work is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.files.values().chain(&self.walks).min().copied()
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Due {
        let files: Vec<_> = self
            .files
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(path, _)| path.clone())
            .collect();

        for path in &files {
            self.files.remove(path);
        }

        let later = self.walks.split_off(&(now + Duration::from_nanos(1)));
        let walk = !std::mem::replace(&mut self.walks, later).is_empty();

        if self.walks.is_empty() {
            self.walks.insert(
                now + if self.blind {
                    BLIND_SCAN_INTERVAL
                } else {
                    SCAN_INTERVAL
                },
            );
        }

        Due { files, walk }
    }

    /// Whether a deletion in this file may be applied. If not, the file is scheduled again.
    pub(crate) fn may_delete(&mut self, path: &Path, now: Instant) -> bool {
        match self.losses.get(path) {
            Some(since) if now >= *since + DELETION_DELAY => {
                self.losses.remove(path);
                true
            }
            Some(since) => {
                self.files.insert(path.to_owned(), *since + DELETION_DELAY);
                false
            }
            None => {
                self.losses.insert(path.to_owned(), now);
                self.files.insert(path.to_owned(), now + DELETION_DELAY);
                false
            }
        }
    }

    /// Records that a file no longer has a deletion.
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
        assert_eq!(
            agenda.take_due(start),
            Due {
                files: vec![],
                walk: true
            }
        );
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
        assert!(!agenda.may_delete(path, start));
        assert!(!agenda.may_delete(path, at(start, 10)));
        assert_eq!(agenda.take_due(at(start, 20)).files, [path]);
        assert!(agenda.may_delete(path, at(start, 20)));
        assert!(!agenda.may_delete(path, at(start, 21)));
        agenda.forget_loss(path);
        assert!(!agenda.may_delete(path, at(start, 60)));
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
        agenda.set_unwatched(true);
        agenda.note_tree(at(start, 40_000));
        agenda.take_due(at(start, 41_000));
        assert_eq!(agenda.next(), Some(at(start, 42_000)));
    }
}

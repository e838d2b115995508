//! Entries that wait until their peer is known.

use std::collections::VecDeque;
use std::sync::Arc;

use prost::Message as _;
use tokio::time::Instant;

use super::entry::Waiting;
use super::peers::Workload;
use super::wire::{HttpEntry, TcpEntry};
use super::{Log, State};

/// Maximum number of waiting entries.
const MAX_ENTRIES: usize = 1000;
/// Maximum size of waiting entries in bytes.
const MAX_BYTES: usize = 4 << 20;

/// An entry that waits.
#[derive(Debug)]
pub(super) struct HeldEntry {
    pub(super) log: Arc<Log>,
    pub(super) waiting: Waiting,
    pub(super) entry: Encoded,
}

/// An encoded entry. The decoded one would keep the message that it was received in.
#[derive(Debug)]
pub(super) enum Encoded {
    Http(Box<[u8]>),
    Tcp(Box<[u8]>),
}

/// Waiting entries in order of arrival: entries of one connection depend on each other.
#[derive(Debug, Default)]
pub(super) struct Held {
    entries: VecDeque<HeldEntry>,
    bytes: usize,
}

impl Encoded {
    fn len(&self) -> usize {
        match self {
            Self::Http(bytes) | Self::Tcp(bytes) => bytes.len(),
        }
    }
}

impl Held {
    /// Adds an entry. Returns the oldest entries if there is no room; they are counted now.
    pub(super) fn push(&mut self, entry: HeldEntry) -> Vec<HeldEntry> {
        self.bytes += entry.entry.len();
        self.entries.push_back(entry);
        let mut over = Vec::new();
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= oldest.entry.len();
            over.push(oldest);
        }
        over
    }

    /// Removes and returns the entries that are due.
    pub(super) fn take(&mut self, is_due: impl Fn(&HeldEntry) -> bool) -> Vec<HeldEntry> {
        if self.entries.is_empty() {
            return Vec::new();
        }
        let (due, waiting): (Vec<_>, VecDeque<_>) = std::mem::take(&mut self.entries)
            .into_iter()
            .fold(Default::default(), |(mut due, mut waiting), entry| {
                if is_due(&entry) {
                    due.push(entry);
                } else {
                    waiting.push_back(entry);
                }
                (due, waiting)
            });
        self.bytes = waiting.iter().map(|entry| entry.entry.len()).sum();
        self.entries = waiting;
        due
    }
}

impl State {
    /// Counts a request, now or when its peer is known.
    pub(super) fn take_request(
        &mut self,
        own: &Workload,
        log: &Arc<Log>,
        entry: &HttpEntry,
        now: Instant,
    ) {
        if let Err(waiting) = self.count_request(own, log, entry, now, true) {
            self.hold(
                own,
                log,
                waiting,
                Encoded::Http(entry.encode_to_vec().into()),
                now,
            );
        }
    }

    /// Counts an entry of a connection, now or when its peer is known.
    pub(super) fn take_connection(
        &mut self,
        own: &Workload,
        log: &Arc<Log>,
        entry: &TcpEntry,
        now: Instant,
    ) {
        if let Err(waiting) = self.count_connection(own, log, entry, now, true) {
            self.hold(
                own,
                log,
                waiting,
                Encoded::Tcp(entry.encode_to_vec().into()),
                now,
            );
        }
    }

    /// Counts the entries that have waited for long enough, or whose peer is known now.
    pub(super) fn release(&mut self, own: &Workload, now: Instant) {
        let lookups = &self.lookups;
        let is_due = |entry: &HeldEntry| {
            now >= entry.waiting.until || lookups.is_settled(entry.waiting.address)
        };
        let due = self.held.take(is_due);
        self.count_held(own, due, now);
    }

    fn hold(
        &mut self,
        own: &Workload,
        log: &Arc<Log>,
        waiting: Waiting,
        entry: Encoded,
        now: Instant,
    ) {
        let over = self.held.push(HeldEntry {
            log: log.clone(),
            waiting,
            entry,
        });
        self.count_held(own, over, now);
    }

    fn count_held(&mut self, own: &Workload, entries: Vec<HeldEntry>, now: Instant) {
        for HeldEntry { log, entry, .. } in entries {
            const ENCODED: &str = "`take_request` and `take_connection` encode entries";
            const COUNTED: &str = "an entry that does not wait is counted";
            match entry {
                Encoded::Http(bytes) => {
                    let entry = HttpEntry::decode(&*bytes).expect(ENCODED);
                    self.count_request(own, &log, &entry, now, false)
                        .expect(COUNTED);
                }
                Encoded::Tcp(bytes) => {
                    let entry = TcpEntry::decode(&*bytes).expect(ENCODED);
                    self.count_connection(own, &log, &entry, now, false)
                        .expect(COUNTED);
                }
            }
        }
    }
}

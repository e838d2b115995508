//! The mesh's metrics (`istio_requests_total` and others) for an Envoy that lacks Istio's filter: made out of its access logs.
//!
//! ```text
//! Envoy ──entries──▶ service ──▶ log (one for each name: what is counted) ──▶ labels ──▶ families ──▶ status server
//!                                  │ │ kept: labels of entries alike          │
//!                                  │ └ connections that live ─────────────────┘
//!                                  └▶ lookups, by the peer's address ──▶ asking ──▶ stream to the control plane
//!                                     held: entries that wait for it
//! ```
//!
//! Names, labels, values and buckets are those of Istio's `istio.stats`. Everything that grows with what clients send has a
//! limit; what is over it is counted as such.

mod asking;
mod connections;
mod entry;
mod families;
mod held;
mod histogram;
mod labels;
mod lookups;
mod overrides;
mod peers;
mod service;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use asking::WORKLOAD;
pub(crate) use families::Cursor;
pub(crate) use lookups::NameChanges;
pub use peers::Workload;
pub(crate) use service::service;
pub use service::would_be_told;

use std::collections::HashMap;
use std::sync::Arc;

use navarch_api::metrics_log::MetricsLog;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use connections::Connections;
use families::{Families, Handles};
use held::Held;
use lookups::Lookups;
use overrides::Overrides;
use peers::Peers;
use wire::{HttpEntry, TcpEntry};

/// The most label sets of all metrics together: each is a line, or of a histogram two dozen.
const MAX_SETS: usize = 10_000;
/// The most kinds of entries whose labels are kept at hand; beyond it they are made anew.
const MAX_KINDS: usize = 10_000;
/// Maximum number of distinct access logs. Each change of a Telemetry creates new ones.
const MAX_LOGS: usize = 256;

/// The metrics. Clones are the same.
#[derive(Clone, Debug)]
pub struct MeshMetrics {
    /// Who counts.
    own: Arc<Workload>,
    /// The release of the proxy.
    release: Arc<str>,
    /// What was counted. Never locked across an await.
    state: Arc<Mutex<State>>,
    /// Told when there is something to ask the control plane.
    wanted: Arc<Notify>,
}

/// What was counted, and what is kept to count on.
#[derive(Debug)]
struct State {
    /// By name of the log.
    logs: HashMap<String, LogId>,
    /// What is made of each.
    overrides: Vec<Arc<Log>>,
    families: Families,
    /// Where entries alike are counted.
    kinds: HashMap<Box<[u8]>, Handles>,
    connections: Connections,
    peers: Peers,
    lookups: Lookups,
    held: Held,
    /// Room to write the key of an entry.
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogId(u32);

/// A log, and what is made of it.
#[derive(Debug)]
struct Log {
    id: LogId,
    config: MetricsLog,
    overrides: Overrides,
}

impl MeshMetrics {
    /// For a workload with a proxy of this release; nothing is counted yet.
    #[must_use]
    pub fn new(own: Workload, release: &str) -> Self {
        Self::with_limit(own, release, MAX_SETS)
    }

    /// With another limit.
    fn with_limit(own: Workload, release: &str, sets: usize) -> Self {
        let state = State {
            logs: HashMap::new(),
            overrides: Vec::new(),
            families: Families::new(sets),
            kinds: HashMap::new(),
            connections: Connections::default(),
            peers: Peers::default(),
            lookups: Lookups::default(),
            held: Held::default(),
            key: Vec::new(),
        };
        let is_sign = |sign: &char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-' | '+' | '_');
        let release: String = release.chars().filter(is_sign).collect();
        Self { own: Arc::new(own), release: release.into(), state: Arc::new(Mutex::new(state)), wanted: Arc::default() }
    }

    /// The log of this name; `None` if it is none out of which metrics are made, or too many are known.
    fn log(&self, name: &str) -> Option<Arc<Log>> {
        let mut state = self.state.lock();
        if let Some(LogId(id)) = state.logs.get(name) {
            return state.overrides.get(usize::try_from(*id).ok()?).cloned();
        }
        let config = MetricsLog::from_name(name)?;
        if state.logs.len() >= MAX_LOGS {
            tracing::warn!("too many access logs with metrics; the newest ones are not counted");
            return None;
        }
        let id = LogId(u32::try_from(state.overrides.len()).ok()?);
        let log = Arc::new(Log { id, overrides: Overrides::new(&config.metrics), config });
        state.families.release.get_or_insert_with(|| self.release.clone());
        state.logs.insert(name.to_owned(), id);
        state.overrides.push(log.clone());
        Some(log)
    }

    fn count_requests(&self, log: &Arc<Log>, entries: &[HttpEntry], now: Instant) {
        self.count(now, |state| {
            for entry in entries {
                state.take_request(&self.own, log, entry, now);
            }
        });
    }

    fn count_connections(&self, log: &Arc<Log>, entries: &[TcpEntry], now: Instant) {
        self.count(now, |state| {
            for entry in entries {
                state.take_connection(&self.own, log, entry, now);
            }
        });
    }

    /// Counts entries, after those that have waited for long enough.
    fn count(&self, now: Instant, count: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        state.release(&self.own, now);
        count(&mut state);
        let is_wanted = state.lookups.has_changes();
        drop(state);
        if is_wanted {
            self.wanted.notify_waiters();
        }
    }

    /// What stands before the lines of each metric that there may be (`# HELP` and `# TYPE`).
    #[must_use]
    pub fn heads() -> String {
        families::heads()
    }

    /// The next piece of the exposition, a few dozen label sets; `None` at its end.
    pub(crate) fn page(&self, cursor: &mut Cursor) -> Option<String> {
        let mut state = self.state.lock();
        if cursor.is_begin() {
            state.release(&self.own, Instant::now());
        }
        state.families.page(cursor)
    }

    #[cfg(test)]
    fn exposition(&self) -> String {
        let mut cursor = Cursor::default();
        std::iter::from_fn(|| self.page(&mut cursor)).collect()
    }
}

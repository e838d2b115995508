//! The mesh's metrics (`istio_requests_total` and others) for an Envoy without Istio's filter,
//! computed from its access logs.
//!
//! ```text
//! Envoy ──entries──▶ service ──▶ log (one for each name: what is counted) ──▶ labels ──▶ families ──▶ status server
//!                                  │ │ kept: labels of entries alike          │
//!                                  │ └ connections that live ─────────────────┘
//!                                  └▶ lookups, by the peer's address ──▶ asking ──▶ stream to the control plane
//!                                     held: entries that wait for it
//! ```
//!
//! Names, labels, values and buckets match Istio's `istio.stats`. Everything that grows with
//! clients' requests has a limit; what exceeds it is counted.

mod connections;
mod entry;
mod entry_fields;
mod families;
mod held;
mod histogram;
mod labels;
mod lookups;
mod overrides;
mod peer_attributes;
mod peer_subscription;
mod peers;
mod service;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use families::Cursor;
pub(crate) use lookups::NameChanges;
pub(crate) use peer_subscription::WORKLOAD;
pub use peers::Workload;
pub use service::exposition_after;
pub(crate) use service::service;

use std::collections::HashMap;
use std::sync::Arc;

use navarch_base::metrics_log::MetricsLog;
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

/// Maximum number of label sets of all metrics together: each is a line, or two dozen for a
/// histogram.
const MAX_SETS: usize = 10_000;
/// Maximum number of cached label sets by entry key; labels of further entries are computed each
/// time.
const MAX_KINDS: usize = 10_000;
/// Maximum number of distinct access logs. Each change of a Telemetry creates new ones.
const MAX_LOGS: usize = 256;

/// The metrics. Clones share their state.
#[derive(Clone, Debug)]
pub struct MeshMetrics {
    /// The workload of this proxy.
    own: Arc<Workload>,
    /// The release of the proxy.
    release: Arc<str>,
    /// The counted values. Never locked across an await.
    state: Arc<Mutex<State>>,
    /// Notified when there is a subscription to change.
    wanted: Arc<Notify>,
}

/// The counted values, and the state for counting.
#[derive(Debug)]
struct State {
    /// By name of the log.
    logs: HashMap<String, LogId>,
    /// The configuration of each log.
    overrides: Vec<Arc<Log>>,
    families: Families,
    /// Handles by entry key.
    kinds: HashMap<Box<[u8]>, Handles>,
    connections: Connections,
    peers: Peers,
    lookups: Lookups,
    held: Held,
    /// A buffer for the key of an entry.
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogId(u32);

/// An access log and its configuration.
#[derive(Debug)]
struct Log {
    id: LogId,
    config: MetricsLog,
    overrides: Overrides,
}

impl MeshMetrics {
    /// Metrics for a workload with a proxy of this release.
    #[must_use]
    pub fn new(own: Workload, release: &str) -> Self {
        Self::with_limit(own, release, MAX_SETS)
    }

    /// Metrics with another limit of label sets.
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

        let is_sign =
            |sign: &char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-' | '+' | '_');
        let release: String = release.chars().filter(is_sign).collect();
        Self {
            own: Arc::new(own),
            release: release.into(),
            state: Arc::new(Mutex::new(state)),
            wanted: Arc::default(),
        }
    }

    /// The log of this name; `None` if metrics are not computed from it, or there are too many
    /// logs.
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
        let log = Arc::new(Log {
            id,
            overrides: Overrides::new(&config.metrics),
            config,
        });
        state
            .families
            .release
            .get_or_insert_with(|| self.release.clone());

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

    /// The `# HELP` and `# TYPE` lines of all metrics.
    #[must_use]
    pub fn heads() -> String {
        families::heads()
    }

    /// The next part of the exposition, a few dozen label sets; `None` at the end.
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

//! Counts rejections of ports, by port and reason, and logs them at a limited rate.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tracing::warn;

use super::log_limit::LogLimit;

/// The counter `navarch_rejected_total{port,reason}`. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Rejections {
    counted: Family<Labels, Counter>,
    /// The log limit of each port and reason.
    logged: Arc<Mutex<HashMap<Labels, LogLimit>>>,
}

/// Labels of a rejection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    /// The port's name: `grpc`, `secure-grpc`, `https`, `http`, `monitoring`, `status`, `sts`,
    /// `dns`.
    port: &'static str,
    /// The reason, as words joined by `_`.
    reason: &'static str,
}

impl Rejections {
    /// Registers the counters in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let rejections = Self::default();
        registry.register(
            "navarch_rejected",
            "Connections, streams and requests rejected because of a limit, by port and reason",
            rejections.counted.clone(),
        );
        rejections
    }

    /// Counts a rejection, and logs it unless the same was logged just before. Both labels are
    /// literals, so that the number of series is bounded.
    pub fn count(&self, port: &'static str, reason: &'static str, peer: impl Display) {
        if let Some(suppressed) = self.note(Labels { port, reason }) {
            warn!(port, reason, %peer, suppressed, "rejected client");
        }
    }

    /// Counts a connection that could not be accepted, as when the process has no file descriptor
    /// left, and logs it as [`Rejections::count`] does.
    pub fn accept_failed(&self, port: &'static str, error: &std::io::Error) {
        if let Some(suppressed) = self.note(Labels {
            port,
            reason: "accept_failed",
        }) {
            warn!(port, %error, suppressed, "failed to accept a connection");
        }
    }

    /// Counts a rejection. Returns the number of suppressed lines since the last one, if this one
    /// must be logged.
    fn note(&self, labels: Labels) -> Option<u64> {
        self.counted.get_or_create(&labels).inc();
        self.logged.lock().entry(labels).or_default().admit()
    }

    /// All counts since the start, by port and reason.
    #[must_use]
    pub fn all(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let seen: Vec<Labels> = self.logged.lock().keys().cloned().collect();
        seen.into_iter()
            .map(|Labels { port, reason }| ((port, reason), self.counted(port, reason)))
            .collect()
    }

    /// Number of rejections.
    #[must_use]
    pub fn counted(&self, port: &'static str, reason: &'static str) -> u64 {
        self.counted
            .get(&Labels { port, reason })
            .map_or(0, |counter| counter.get())
    }
}

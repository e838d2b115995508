//! Counts what ports turn away, by port and reason, and logs it without letting a client fill the log.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tracing::warn;

/// One warning per port and reason in this time; the next one says how many were not logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The counter `navarch_rejected_total{port,reason}`. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Rejections {
    /// The metric.
    counted: Family<Labels, Counter>,
    /// When each port and reason was last logged.
    logged: Arc<Mutex<HashMap<Labels, Logged>>>,
}

/// What was turned away where.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    /// The port's name: `grpc`, `secure-grpc`, `https`, `http`, `monitoring`, `status`, `dns`.
    port: &'static str,
    /// Why, in a few words joined by `_`.
    reason: &'static str,
}

/// What the log has been told.
#[derive(Debug)]
struct Logged {
    /// When.
    at: Instant,
    /// How many were not logged since.
    suppressed: u64,
}

impl Rejections {
    /// Counters that are shown with the others of `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let rejections = Self::default();
        registry.register(
            "navarch_rejected",
            "Connections, streams and requests turned away to keep within limits, by port and reason",
            rejections.counted.clone(),
        );
        rejections
    }

    /// Counts one, and logs it unless the same was logged a moment ago. Both labels are literals, so that the number of
    /// series is bounded.
    pub fn count(&self, port: &'static str, reason: &'static str, peer: impl Display) {
        if let Some(suppressed) = self.note(Labels { port, reason }) {
            warn!(port, reason, %peer, suppressed, "client turned away");
        }
    }

    /// Counts a connection that could not be accepted, as when the process has no file descriptor left, and logs it as
    /// [`Rejections::count`] does.
    pub fn accept_failed(&self, port: &'static str, error: &std::io::Error) {
        if let Some(suppressed) = self.note(Labels { port, reason: "accept_failed" }) {
            warn!(port, %error, suppressed, "failed to accept a connection");
        }
    }

    /// Counts one. Gives how many were not logged since the last one, if this one is to be logged.
    fn note(&self, labels: Labels) -> Option<u64> {
        self.counted.get_or_create(&labels).inc();
        let now = Instant::now();
        let mut logged = self.logged.lock();
        let suppressed = match logged.get_mut(&labels) {
            Some(last) if now.duration_since(last.at) < LOG_INTERVAL => {
                last.suppressed += 1;
                return None;
            }
            Some(last) => last.suppressed,
            None => 0,
        };
        logged.insert(labels, Logged { at: now, suppressed: 0 });
        Some(suppressed)
    }

    /// How many were counted.
    #[must_use]
    pub fn counted(&self, port: &'static str, reason: &'static str) -> u64 {
        self.counted.get(&Labels { port, reason }).map_or(0, |counter| counter.get())
    }
}

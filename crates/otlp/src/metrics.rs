//! Metrics of spans.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Handles of the metrics. Clones share them; by default they are not registered.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// `navarch_otlp_spans_total`.
    spans: Family<OutcomeLabel, Counter>,
    /// `navarch_otlp_changes_missed_total`.
    missed: Counter,
}

/// The outcome label of a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The outcome of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanOutcome {
    /// The collector accepted them.
    Sent,
    QueueFull,
    /// The collector was unreachable in time, or rejected the batch.
    Failed,
    /// The collector accepted others of the batch and rejected these.
    Rejected,
}

impl SpanOutcome {
    fn label(self) -> OutcomeLabel {
        let outcome = match self {
            Self::Sent => "sent",
            Self::QueueFull => "queue_full",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
        };
        OutcomeLabel { outcome }
    }
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let about = "Spans exported over OTLP, by outcome: sent, rejected by the collector, failed to send, or dropped because the queue was full (queue_full)";
        registry.register("navarch_otlp_spans", about, metrics.spans.clone());
        let about = "Changes without a trace because too many were in progress";
        registry.register("navarch_otlp_changes_missed", about, metrics.missed.clone());
        metrics
    }

    /// Counts changes without a trace.
    pub fn missed(&self, changes: u64) {
        self.missed.inc_by(changes);
    }

    pub(crate) fn count(&self, outcome: SpanOutcome, spans: usize) {
        if spans > 0 {
            self.spans
                .get_or_create(&outcome.label())
                .inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
        }
    }

    /// The number of spans with this outcome.
    #[cfg(test)]
    pub(crate) fn counted(&self, outcome: SpanOutcome) -> u64 {
        self.spans.get_or_create(&outcome.label()).get()
    }
}

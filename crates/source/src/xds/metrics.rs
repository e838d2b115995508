//! Metrics of configuration sources over xDS.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use navarch_base::counter::Count;
use navarch_base::label_text::LabelText;

/// Handles of the metrics. Clones share them; by default they are not registered.
#[derive(Clone, Debug, Default)]
pub struct XdsMetrics {
    /// `navarch_config_source_connected`.
    connected: Family<SourceLabel, Gauge>,
    /// `navarch_config_source_responses_total`.
    responses: Family<ResponseLabel, Count>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    /// `xds://host:port`.
    source: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabel {
    /// `xds://host:port`.
    source: LabelText,
    /// `ack` or `nack`.
    answer: &'static str,
}

impl XdsMetrics {
    /// Registers `navarch_config_source_connected` and `navarch_config_source_responses_total`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let about = "1 while the stream to an xds:// config source is connected, else 0";
        registry.register(
            "navarch_config_source_connected",
            about,
            metrics.connected.clone(),
        );
        let about =
            "Responses of an xds:// config source, by result: accepted (ack) or rejected (nack)";
        registry.register(
            "navarch_config_source_responses_total",
            about,
            metrics.responses.clone(),
        );
        metrics
    }

    /// Sets whether the stream of a source is connected.
    pub(super) fn connected(&self, source: &Arc<str>, stands: bool) {
        self.connected
            .get_or_create(&SourceLabel {
                source: source.clone().into(),
            })
            .set(i64::from(stands));
    }

    /// Counts a response by whether it was accepted.
    pub(super) fn answered(&self, source: &Arc<str>, taken: bool) {
        let answer = if taken { "ack" } else { "nack" };
        self.responses
            .get_or_create(&ResponseLabel {
                source: source.clone().into(),
                answer,
            })
            .inc();
    }

    /// Number of responses with this result.
    #[cfg(test)]
    pub(super) fn count(&self, source: &str, answer: &'static str) -> u64 {
        self.responses
            .get_or_create(&ResponseLabel {
                source: source.into(),
                answer,
            })
            .get()
    }
}

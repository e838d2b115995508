//! Metrics of recording.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Handles of all metrics that are registered here. Clones share them; by default they are not
/// registered.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// `navarch_record_bytes_total`.
    pub(crate) bytes: Counter,
    /// `navarch_record_failures_total`.
    pub(crate) failures: Counter,
    /// `navarch_record_active`.
    pub(crate) active: Gauge,
}

impl Metrics {
    /// Adds the metrics to `registry`; the returned handles update them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = metrics.clone();
        registry.register(
            "navarch_record_bytes",
            "Bytes written to the recording (`--record`)",
            m.bytes,
        );

        registry.register(
            "navarch_record_failures",
            "Failed writes of the recording",
            m.failures,
        );

        registry.register(
            "navarch_record_active",
            "1 while all inputs are recorded",
            m.active,
        );

        metrics
    }
}

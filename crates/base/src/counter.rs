//! Counters whose names are istiod's.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter whose name is written as declared: OpenMetrics would append `_total`, which istiod's
/// names lack.
#[derive(Clone, Debug, Default)]
pub struct Count(Counter);

impl Count {
    /// Adds one.
    pub fn inc(&self) {
        self.0.inc();
    }

    /// Adds a number.
    pub fn inc_by(&self, number: u64) {
        self.0.inc_by(number);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

impl TypedMetric for Count {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Count {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // A gauge is written without a suffix; the type line is that of a counter.
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

//! Metrics of the control plane's process: version, uptime and resource usage.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use crate::gauge::gauge;
use crate::usage::{self, ProcessMetric, ProcessMetricKind, ProcessUsage};

/// Computed at each scrape.
#[derive(Debug)]
pub struct ProcessMetrics {
    version: &'static str,
    begun: Instant,
    /// The boot time in seconds since 1970; reading it from the kernel is slow.
    booted: Option<f64>,
}

impl ProcessMetrics {
    /// Metrics of a process of this version, which starts now.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        Self {
            version,
            begun: Instant::now(),
            booted: usage::booted(),
        }
    }
}

/// Writes a one with labels.
fn info<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: [(&str, &str); N],
) -> fmt::Result {
    let one = ConstGauge::new(1_i64);
    let mut family = encoder.encode_descriptor(name, help, None, one.metric_type())?;
    one.encode(family.encode_family(&labels)?)
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        info(
            encoder,
            "pilot_info",
            "The release",
            [("version", self.version)],
        )?;

        info(
            encoder,
            "istio_build",
            "The release by component",
            [("component", "pilot"), ("tag", self.version)],
        )?;
        let uptime = self.begun.elapsed().as_secs_f64();
        gauge(
            encoder,
            "istiod_uptime_seconds",
            "Uptime, in seconds",
            uptime,
        )?;

        ProcessUsage::read(self.booted)
            .metrics()
            .try_for_each(|metric| {
                let ProcessMetric {
                    name,
                    help,
                    kind,
                    value,
                } = metric;

                let name = format!("process_{name}");

                match kind {
                    ProcessMetricKind::Gauge => gauge(encoder, &name, help, value),
                    ProcessMetricKind::Counter => {
                        let counter = ConstCounter::new(value);
                        counter.encode(encoder.encode_descriptor(
                            &name,
                            help,
                            None,
                            counter.metric_type(),
                        )?)
                    }
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn process_metrics_are_exposed() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessMetrics::new("1.2.3")));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("istio_build{component=\"pilot\",tag=\"1.2.3\"} 1"),
            "{text}"
        );

        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("no {name}: {text}"));
            line.trim().parse::<f64>().unwrap()
        };

        assert!(value("process_resident_memory_bytes ") > 1e5);
        assert!(value("process_virtual_memory_bytes ") >= value("process_resident_memory_bytes "));
        assert!(
            value("process_open_fds ") >= 3.0
                && value("process_max_fds ") > value("process_open_fds ")
        );
        assert!(
            value("process_virtual_memory_max_bytes ") >= value("process_virtual_memory_bytes ")
        );

        assert!(value("process_network_receive_bytes_total ") >= 0.0);
        assert!(value("process_network_transmit_bytes_total ") >= 0.0);
        assert!(
            value("process_start_time_seconds ") > 1.6e9
                && value("process_cpu_seconds_total ") >= 0.0
        );
    }
}

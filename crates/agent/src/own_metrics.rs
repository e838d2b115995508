//! The agent's own metrics, under pilot-agent's names.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use super::metrics::AgentMetrics;
use navarch_net::rejections::Rejections;
use navarch_process::usage::{self, ProcessMetric, ProcessMetricKind, ProcessUsage};

/// The counted values.
#[derive(Debug)]
pub struct OwnMetrics {
    /// Scrapes of merged metrics.
    scrapes: AtomicU64,
    rejections: Rejections,
    work: AgentMetrics,
    /// Boot time of the machine.
    booted: Option<f64>,
    /// All metrics that are not written by hand: work, and rejections under Navarch's own names.
    registry: Registry,
}

impl Default for OwnMetrics {
    fn default() -> Self {
        Self::new(AgentMetrics::default())
    }
}

impl OwnMetrics {
    /// Includes the metrics of the agent's work.
    #[must_use]
    pub fn new(work: AgentMetrics) -> Self {
        let mut registry = Registry::default();
        let rejections = Rejections::register(&mut registry);
        work.register(&mut registry);
        Self {
            scrapes: AtomicU64::default(),
            rejections,
            work,
            booted: usage::booted(),
            registry,
        }
    }

    /// Counts a scrape, and returns all metrics in Prometheus' text format.
    #[must_use]
    pub fn scrape(&self) -> String {
        let scrapes = self.scrapes.fetch_add(1, Ordering::Relaxed) + 1;
        let mut text = String::new();
        counter(
            &mut text,
            "istio_agent_scrapes_total",
            "The total number of scrapes.",
            "counter",
            scrapes as f64,
        );

        for ProcessMetric {
            name,
            help,
            kind,
            value,
        } in ProcessUsage::read(self.booted).metrics()
        {
            let (total, kind) = match kind {
                ProcessMetricKind::Counter => ("_total", "counter"),
                ProcessMetricKind::Gauge => ("", "gauge"),
            };
            counter(
                &mut text,
                &format!("istio_agent_process_{name}{total}"),
                help,
                kind,
                value,
            );
        }

        self.work.refresh();
        let labels = format!("component=\"agent\",tag=\"{}\"", env!("CARGO_PKG_VERSION"));

        // Writing to a `String` never fails.
        let _ = writeln!(
            text,
            "# HELP istio_agent_istio_build The release by component\n# TYPE istio_agent_istio_build gauge\nistio_agent_istio_build{{{labels}}} 1"
        );
        let _ = encode_registry(&mut text, &self.registry);

        text
    }

    /// The counter of rejected clients.
    #[must_use]
    pub fn rejections(&self) -> Rejections {
        self.rejections.clone()
    }
}

/// Writes one metric.
fn counter(text: &mut String, name: &str, help: &str, kind: &str, value: f64) {
    // Writing to a `String` never fails.
    let _ = writeln!(
        text,
        "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
    );
}

#[cfg(test)]
mod tests {
    use super::OwnMetrics;

    #[test]
    fn own_metrics_have_scrape_counts_and_process_metrics() {
        let metrics = OwnMetrics::default();
        assert!(metrics.scrape().contains("\nistio_agent_scrapes_total 1\n"));
        let second = metrics.scrape();
        assert!(second.contains("\nistio_agent_scrapes_total 2\n"));

        for name in [
            "cpu_seconds_total",
            "max_fds",
            "network_receive_bytes_total",
            "network_transmit_bytes_total",
            "open_fds",
            "resident_memory_bytes",
            "start_time_seconds",
            "virtual_memory_bytes",
            "virtual_memory_max_bytes",
        ] {
            assert!(
                second.contains(&format!("\nistio_agent_process_{name} ")),
                "{name}"
            );
        }

        metrics
            .rejections()
            .count("status", "too_many_connections", "10.0.0.1");
        let third = metrics.scrape();
        let line = "\nnavarch_rejected_total{port=\"status\",reason=\"too_many_connections\"} 1\n";
        assert!(third.contains(line) && !third.contains("# EOF"), "{third}");
    }
}

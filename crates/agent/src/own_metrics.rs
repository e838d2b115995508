//! The agent's own metrics, under pilot-agent's names.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use super::metrics::AgentMetrics;
use navarch_api::regular_file;
use navarch_net::rejections::Rejections;

/// The size of the kernel's pages, which holds on every machine that Envoy is built for with 4 KiB pages.
const PAGE: u64 = 4096;
/// Ticks in a second, as the kernel shows times to programs.
const TICKS: f64 = 100.0;

/// What is counted.
#[derive(Debug)]
pub struct OwnMetrics {
    /// Scrapes of merged metrics.
    scrapes: AtomicU64,
    /// Clients that were turned away.
    rejections: Rejections,
    /// What the agent counts of its work.
    work: AgentMetrics,
    /// All that is not written by hand: work, and rejections under names of Navarch's own.
    registry: Registry,
}

impl Default for OwnMetrics {
    fn default() -> Self {
        Self::new(AgentMetrics::default())
    }
}

impl OwnMetrics {
    /// With what the agent counts of its work.
    #[must_use]
    pub fn new(work: AgentMetrics) -> Self {
        let mut registry = Registry::default();
        let rejections = Rejections::register(&mut registry);
        work.register(&mut registry);
        Self { scrapes: AtomicU64::default(), rejections, work, registry }
    }

    /// Counts a scrape, and gives all metrics in Prometheus' text format.
    #[must_use]
    pub fn scrape(&self) -> String {
        let scrapes = self.scrapes.fetch_add(1, Ordering::Relaxed) + 1;
        let mut text = String::new();
        counter(&mut text, "istio_agent_scrapes_total", "The total number of scrapes.", "counter", scrapes as f64);
        let process = Process::read();
        let values = [
            ("resident_memory_bytes", "Resident memory size in bytes.", "gauge", process.resident),
            ("cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", process.cpu),
            ("open_fds", "Number of open file descriptors.", "gauge", process.files),
        ];
        for (name, help, kind, value) in values {
            if let Some(value) = value {
                counter(&mut text, &format!("istio_agent_process_{name}"), help, kind, value);
            }
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

    /// Where clients that are turned away are counted.
    #[must_use]
    pub fn rejections(&self) -> Rejections {
        self.rejections.clone()
    }
}

/// Writes one metric.
fn counter(text: &mut String, name: &str, help: &str, kind: &str, value: f64) {
    // Writing to a `String` never fails.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

/// What the kernel knows of the process.
struct Process {
    /// Memory in use, in bytes.
    resident: Option<f64>,
    /// CPU time so far, in seconds.
    cpu: Option<f64>,
    /// Open files.
    files: Option<f64>,
}

impl Process {
    /// Reads it.
    fn read() -> Self {
        let statm = regular_file::read_text("/proc/self/statm".as_ref()).unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        let stat = regular_file::read_text("/proc/self/stat".as_ref()).unwrap_or_default();
        // The name in brackets may hold anything; user and system time are the 12th and 13th fields after it.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
        let ticks = |place: usize| fields.get(place).and_then(|ticks| ticks.parse::<f64>().ok());
        Self {
            resident: pages.map(|pages| (pages * PAGE) as f64),
            cpu: ticks(11).zip(ticks(12)).map(|(user, system)| (user + system) / TICKS),
            files: std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OwnMetrics;

    #[test]
    fn scrapes_are_counted_and_the_process_is_told_of() {
        let metrics = OwnMetrics::default();
        assert!(metrics.scrape().contains("\nistio_agent_scrapes_total 1\n"));
        let second = metrics.scrape();
        assert!(second.contains("\nistio_agent_scrapes_total 2\n"));
        for name in ["resident_memory_bytes", "cpu_seconds_total", "open_fds"] {
            assert!(second.contains(&format!("\nistio_agent_process_{name} ")), "{name}");
        }
        metrics.rejections().count("status", "too_many_connections", "10.0.0.1");
        let third = metrics.scrape();
        let line = "\nnavarch_rejected_total{port=\"status\",reason=\"too_many_connections\"} 1\n";
        assert!(third.contains(line) && !third.contains("# EOF"), "{third}");
    }
}

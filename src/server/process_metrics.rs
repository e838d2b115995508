//! Metrics of the process as such: what it is, since when, and what it takes of the machine.

use std::fmt;
use std::path::Path;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use navarch_api::regular_file;

/// The size of the kernel's pages: 4 KiB on the machines that Navarch is built for.
const PAGE: f64 = 4096.0;
/// Ticks in a second, as the kernel shows times to programs.
const TICKS: f64 = 100.0;

/// Told at each scrape.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    version: &'static str,
    begun: Instant,
}

/// What the kernel knows of the process; what it does not say is left out.
#[derive(Debug, Default)]
struct Usage {
    /// Seconds of CPU time so far.
    cpu: Option<f64>,
    /// Seconds since 1970 at which it began.
    started: Option<f64>,
    /// Bytes of memory that it occupies.
    resident: Option<f64>,
    /// Bytes of addresses that it has.
    addressed: Option<f64>,
    files: Option<f64>,
    most_files: Option<f64>,
}

impl ProcessMetrics {
    pub(super) fn new(version: &'static str) -> Self {
        Self { version, begun: Instant::now() }
    }
}

impl Usage {
    fn read() -> Self {
        let read = |path: &str| regular_file::read_text(Path::new(path)).unwrap_or_default();
        let stat = read("/proc/self/stat");
        // The name in brackets may hold anything; fields are counted from after it.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
        let field = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok());
        let booted = read("/proc/stat")
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|seconds| seconds.trim().parse::<f64>().ok());
        let limits = read("/proc/self/limits");
        let most_files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        Self {
            cpu: field(11).zip(field(12)).map(|(user, system)| (user + system) / TICKS),
            started: booted.zip(field(19)).map(|(booted, ticks)| booted + ticks / TICKS),
            addressed: field(20),
            resident: field(21).map(|pages| pages * PAGE),
            files: std::fs::read_dir("/proc/self/fd")
                .ok()
                .and_then(|files| u32::try_from(files.count()).ok())
                .map(f64::from),
            most_files: most_files.and_then(|line| line.split_whitespace().next()?.parse().ok()),
        }
    }
}

/// Writes a number without labels.
fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
    let Some(value) = value else { return Ok(()) };
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// Writes a one with labels.
fn info<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    labels: [(&str, &str); N],
) -> fmt::Result {
    let one = ConstGauge::new(1_i64);
    let mut family = encoder.encode_descriptor(name, help, None, one.metric_type())?;
    one.encode(family.encode_family(&labels)?)
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        info(encoder, ("pilot_info", "The release"), [("version", self.version)])?;
        info(encoder, ("istio_build", "The release by component"), [("component", "pilot"), ("tag", self.version)])?;
        let uptime = self.begun.elapsed().as_secs_f64();
        gauge(encoder, "istiod_uptime_seconds", "Seconds since the start", Some(uptime))?;
        let usage = Usage::read();
        if let Some(cpu) = usage.cpu {
            let counter = ConstCounter::new(cpu);
            let help = "Seconds of CPU time that the process has used";
            counter.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, counter.metric_type())?)?;
        }
        let gauges = [
            ("process_start_time_seconds", "Seconds since 1970 at which the process began", usage.started),
            ("process_resident_memory_bytes", "Bytes of memory that the process occupies", usage.resident),
            ("process_virtual_memory_bytes", "Bytes of addresses that the process has", usage.addressed),
            ("process_open_fds", "Files that the process has open", usage.files),
            ("process_max_fds", "Files that the process may have open", usage.most_files),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| gauge(encoder, name, help, value))
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn the_process_is_told_of() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessMetrics::new("1.2.3")));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("istio_build{component=\"pilot\",tag=\"1.2.3\"} 1"), "{text}");
        let value = |name: &str| {
            let line =
                text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
            line.trim().parse::<f64>().unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e5);
        assert!(value("process_virtual_memory_bytes ") >= value("process_resident_memory_bytes "));
        assert!(value("process_open_fds ") >= 3.0 && value("process_max_fds ") > value("process_open_fds "));
        assert!(value("process_start_time_seconds ") > 1.6e9 && value("process_cpu_seconds_total ") >= 0.0);
    }
}

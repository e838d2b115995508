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
    /// Seconds since 1970 at which the machine began; the kernel takes long to say that.
    booted: Option<f64>,
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
        let stat = read("/proc/stat");
        let booted = stat.lines().find_map(|line| line.strip_prefix("btime "));
        Self { version, begun: Instant::now(), booted: booted.and_then(|seconds| seconds.trim().parse().ok()) }
    }
}

/// What a file of the kernel says; nothing where there is none.
fn read(path: &str) -> String {
    regular_file::read_text(Path::new(path)).unwrap_or_default()
}

/// How many files the process has open. Linux 6.2 and later say so; to list them takes milliseconds where there are thousands.
fn open_files() -> Option<f64> {
    let folder = "/proc/self/fd";
    let known = std::fs::metadata(folder).ok().map(|folder| folder.len()).filter(|count| *count > 0);
    let count = known.or_else(|| u64::try_from(std::fs::read_dir(folder).ok()?.count()).ok())?;
    u32::try_from(count).ok().map(f64::from)
}

impl Usage {
    /// Reads it, on a machine that began then.
    fn read(booted: Option<f64>) -> Self {
        let stat = read("/proc/self/stat");
        // The name in brackets may hold anything; fields are counted from after it.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
        let field = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok());
        let limits = read("/proc/self/limits");
        let most_files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        Self {
            cpu: field(11).zip(field(12)).map(|(user, system)| (user + system) / TICKS),
            started: booted.zip(field(19)).map(|(booted, ticks)| booted + ticks / TICKS),
            addressed: field(20),
            resident: field(21).map(|pages| pages * PAGE),
            files: open_files(),
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
        let usage = Usage::read(self.booted);
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

//! Resource usage of the process as the kernel reports it, under the names of Prometheus' own
//! clients.

use std::path::Path;

use navarch_base::regular_file;

/// The size of the kernel's pages: 4 KiB on the machines that Navarch and Envoy are built for.
const PAGE: f64 = 4096.0;
/// Clock ticks per second, in the kernel's interfaces for programs.
const TICKS: f64 = 100.0;
/// The value for "no limit", as in Prometheus' client for Go.
const UNLIMITED: f64 = u64::MAX as f64;

/// The resource usage of the process; `None` if the kernel does not report a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// Seconds of CPU time so far.
    pub cpu: Option<f64>,
    /// The start time, in seconds since 1970.
    pub started: Option<f64>,
    /// Bytes of resident memory.
    pub resident: Option<f64>,
    /// Bytes of address space.
    pub address_space: Option<f64>,
    /// The limit of the address space, in bytes.
    pub max_address_space: Option<f64>,
    /// The number of open files.
    pub open_files: Option<f64>,
    /// The limit of open files.
    pub max_open_files: Option<f64>,
    /// Bytes received over IP in the network namespace.
    pub received: Option<f64>,
    /// Bytes sent over IP in the network namespace.
    pub sent: Option<f64>,
}

/// Memory that is not backed by a file: heap, stacks and the program's variables. `None` if the
/// kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrivateMemory {
    /// Bytes of writable address space, used or not.
    pub mapped: Option<f64>,
    /// Bytes of it that are resident.
    pub resident: Option<f64>,
    /// Bytes that the stack of the main thread has grown to. The kernel does not tell the stacks of
    /// other threads from other memory.
    pub main_stack: Option<f64>,
}

/// A value, as a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessMetric {
    /// The name after `process_`, without the `_total` of a counter.
    pub name: &'static str,
    /// The text of `# HELP`, without a full stop.
    pub help: &'static str,
    /// The type of `# TYPE`.
    pub kind: ProcessMetricKind,
    /// In the unit that `name` ends in: seconds, bytes, or a number of file descriptors.
    pub value: f64,
}

/// Prometheus' metric types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessMetricKind {
    /// Only increases; its lines end in `_total`.
    Counter,
    /// Increases and decreases.
    Gauge,
}

/// The boot time of the machine, in seconds since 1970. The kernel takes milliseconds to report it,
/// so read it once.
#[must_use]
pub fn booted() -> Option<f64> {
    let stat = text("/proc/stat");
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

/// The content of a file of the kernel; empty if the file is missing.
fn text(path: &str) -> String {
    regular_file::read_text(Path::new(path)).unwrap_or_default()
}

/// The number of open files. Linux 6.2 and later report it directly; listing them takes
/// milliseconds if there are thousands.
fn open_files() -> Option<f64> {
    let folder = "/proc/self/fd";
    let known = std::fs::metadata(folder)
        .ok()
        .map(|folder| folder.len())
        .filter(|count| *count > 0);
    let count = known.or_else(|| u64::try_from(std::fs::read_dir(folder).ok()?.count()).ok())?;
    u32::try_from(count).ok().map(f64::from)
}

/// The effective value of a limit, in the text of `/proc/self/limits`.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let value = limits
        .lines()
        .find_map(|line| line.strip_prefix(name))?
        .split_whitespace()
        .next()?;
    if value == "unlimited" {
        Some(UNLIMITED)
    } else {
        value.parse().ok()
    }
}

/// A counter of IP in the text of `/proc/self/net/netstat`, in which a line of names precedes a
/// line of values.
fn octets(netstat: &str, name: &str) -> Option<f64> {
    let mut lines = netstat
        .lines()
        .filter_map(|line| line.strip_prefix("IpExt: "));
    let names = lines.next()?;
    let values = lines.next()?;
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// A size in the text of `/proc/self/status`.
fn size(status: &str, name: &str) -> Option<f64> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name))?
        .strip_suffix("kB")?;
    value
        .trim()
        .parse::<f64>()
        .ok()
        .map(|kibibytes| kibibytes * 1024.0)
}

impl PrivateMemory {
    /// Reads the values.
    #[must_use]
    pub fn read() -> Self {
        let status = text("/proc/self/status");
        Self {
            mapped: size(&status, "VmData:"),
            resident: size(&status, "RssAnon:"),
            main_stack: size(&status, "VmStk:"),
        }
    }
}

impl ProcessUsage {
    /// Reads the values, on a machine with this [boot time](booted).
    #[must_use]
    pub fn read(booted: Option<f64>) -> Self {
        let stat = text("/proc/self/stat");

        // The name in parentheses may contain anything; fields are counted after it.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
        let field = |place: usize| {
            fields
                .get(place)
                .and_then(|field| field.parse::<f64>().ok())
        };

        let limits = text("/proc/self/limits");
        let netstat = text("/proc/self/net/netstat");
        Self {
            cpu: field(11)
                .zip(field(12))
                .map(|(user, system)| (user + system) / TICKS),
            started: booted
                .zip(field(19))
                .map(|(booted, ticks)| booted + ticks / TICKS),
            address_space: field(20),
            max_address_space: limit(&limits, "Max address space"),
            resident: field(21).map(|pages| pages * PAGE),
            open_files: open_files(),
            max_open_files: limit(&limits, "Max open files"),
            received: octets(&netstat, "InOctets"),
            sent: octets(&netstat, "OutOctets"),
        }
    }

    /// All known values, by the names of Prometheus' client for Go (1.23).
    pub fn metrics(&self) -> impl Iterator<Item = ProcessMetric> {
        use ProcessMetricKind::{Counter, Gauge};

        let all = [
            (
                "cpu_seconds",
                "Total CPU time of the process in seconds",
                Counter,
                self.cpu,
            ),
            (
                "start_time_seconds",
                "Start time of the process in seconds since the Unix epoch",
                Gauge,
                self.started,
            ),
            (
                "resident_memory_bytes",
                "Resident memory size of the process in bytes",
                Gauge,
                self.resident,
            ),
            (
                "virtual_memory_bytes",
                "Virtual memory size of the process in bytes",
                Gauge,
                self.address_space,
            ),
            (
                "virtual_memory_max_bytes",
                "Maximum virtual memory size of the process in bytes",
                Gauge,
                self.max_address_space,
            ),
            (
                "open_fds",
                "Number of open file descriptors",
                Gauge,
                self.open_files,
            ),
            (
                "max_fds",
                "Maximum number of open file descriptors",
                Gauge,
                self.max_open_files,
            ),
            (
                "network_receive_bytes",
                "Bytes received over IP in the network namespace",
                Counter,
                self.received,
            ),
            (
                "network_transmit_bytes",
                "Bytes sent over IP in the network namespace",
                Counter,
                self.sent,
            ),
        ];

        let known = |(name, help, kind, value): (_, _, _, Option<f64>)| {
            Some(ProcessMetric {
                name,
                help,
                kind,
                value: value?,
            })
        };

        all.into_iter().filter_map(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_metrics_match_the_go_client() {
        let usage = ProcessUsage::read(booted());
        assert_eq!(usage.metrics().count(), 9, "{usage:?}");
        assert!(
            usage.resident > Some(1e5)
                && usage.address_space >= usage.resident
                && usage.max_address_space >= usage.address_space
        );
        assert!(
            usage.open_files >= Some(3.0)
                && usage.max_open_files > usage.open_files
                && usage.started > Some(1.6e9)
        );
        assert!(usage.cpu >= Some(0.0) && usage.received >= Some(0.0) && usage.sent >= Some(0.0));
    }

    #[test]
    fn limits_and_counters_are_found_by_their_names() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
            Max open files            20000                40000                files\n\
            Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(20_000.0));
        assert_eq!(limit(limits, "Max address space"), Some(UNLIMITED));
        let netstat =
            "TcpExt: InOctets\nTcpExt: 7\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 320 684\n";
        assert_eq!(
            [octets(netstat, "InOctets"), octets(netstat, "OutOctets")],
            [Some(320.0), Some(684.0)]
        );

        assert_eq!(
            [limit("", "Max open files"), octets("", "InOctets")],
            [None, None]
        );
        let status = "VmStk:\t     132 kB\nVmData:\t   41612 kB\nThreads:\t3\n";
        assert_eq!(size(status, "VmData:"), Some(42_610_688.0));
        assert_eq!(size(status, "VmStk:"), Some(135_168.0));
        assert_eq!(
            [size(status, "RssAnon:"), size(status, "Threads:")],
            [None, None]
        );
    }

    #[test]
    fn private_memory_is_positive_and_at_most_the_total() {
        let memory = PrivateMemory::read();
        let usage = ProcessUsage::read(None);
        assert!(
            memory.resident > Some(1e5) && memory.mapped >= memory.resident,
            "{memory:?}"
        );
        assert!(usage.address_space >= memory.mapped, "{usage:?} {memory:?}");
        assert!(memory.main_stack > Some(0.0), "{memory:?}");
    }
}

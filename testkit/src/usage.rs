//! The resource usage of a process, read from `/proc` by its PID.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// Kernel ticks per second in `/proc/<pid>/stat`: fixed by Linux's ABI on all platforms of Envoy.
const TICKS: f64 = 100.0;

/// Memory is stable if it has not changed for this number of seconds; otherwise the time limit
/// applies.
const RESTS: [u32; 2] = [5, 60];

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// Seconds of CPU, user and system.
    pub cpu_seconds: f64,
    /// Resident memory, in kB.
    pub rss_kb: u64,
    /// The anonymous part of it, in kB: without the pages of the program's file, which count once
    /// they are executed and can be read again.
    pub anon_kb: u64,
    /// Peak resident memory, in kB.
    pub peak_kb: u64,
    /// Open files.
    pub files: usize,
    /// `Threads` in `/proc/<pid>/status`: the number that exist now.
    pub threads: u64,
}

impl Usage {
    /// CPU seconds between two measurements, if both exist.
    #[must_use]
    pub fn cpu_between(before: Option<Self>, after: Option<Self>) -> Option<f64> {
        Some(after?.cpu_seconds - before?.cpu_seconds)
    }
}

/// Reads the resource usage of a process.
///
/// # Errors
/// If the process does not exist, or access is denied.
pub fn usage(pid: u32) -> Result<Usage> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    };
    let stat = read("stat")?;
    let status = read("status")?;

    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or_default()
    };

    Ok(Usage {
        cpu_seconds: cpu_seconds(&stat),
        rss_kb: line("VmRSS:"),
        anon_kb: line("RssAnon:"),
        peak_kb: line("VmHWM:"),
        files: fs::read_dir(format!("/proc/{pid}/fd"))
            .map(Iterator::count)
            .unwrap_or_default(),
        threads: line("Threads:"),
    })
}

/// CPU seconds of the threads of a process with a name; 0 without such a thread.
///
/// # Errors
/// If the process does not exist, or access is denied.
pub fn thread_cpu_seconds(pid: u32, name: &str) -> Result<f64> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    let wanted = format!("({name})");
    let mut seconds = 0.0;

    for task in tasks {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else {
            continue;
        };
        if stat.contains(&wanted) {
            seconds += cpu_seconds(&stat);
        }
    }

    Ok(seconds)
}

/// CPU seconds in the `stat` file of a process or a thread.
fn cpu_seconds(stat: &str) -> f64 {
    // The name in parentheses may contain anything; the format after it is fixed.
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();

    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or_default()
    };

    (ticks(11) + ticks(12)) / TICKS
}

/// Waits until the memory of a process has not changed by more than one percent for five seconds,
/// for a minute at most. Returns the number of seconds.
///
/// # Errors
/// As [`usage`].
pub async fn settle(pid: u32) -> Result<u32> {
    let [needed, longest] = RESTS;
    let mut last = usage(pid)?.rss_kb;
    let mut rest = 0;
    for second in 1..=longest {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = usage(pid)?.rss_kb;
        rest = if now.abs_diff(last) <= last / 100 {
            rest + 1
        } else {
            0
        };
        last = now;
        if rest == needed {
            return Ok(second);
        }
    }
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_files() {
        let usage = usage(std::process::id()).unwrap();
        assert!(
            usage.anon_kb > 0
                && usage.rss_kb >= usage.anon_kb
                && usage.peak_kb >= usage.rss_kb
                && usage.files > 0
                && usage.threads > 0,
            "{usage:?}"
        );
        assert!(
            super::usage(u32::MAX)
                .unwrap_err()
                .to_string()
                .contains("/proc/")
        );
    }

    #[test]
    fn cpu_is_read_behind_any_name() {
        let stat = "7 (a) b (c) R 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 9";
        assert!((cpu_seconds(stat) - 2.0).abs() < 1e-9);
        let pid = std::process::id();
        assert_eq!(thread_cpu_seconds(pid, "no such thread").unwrap(), 0.0);
        assert!(thread_cpu_seconds(u32::MAX, "any").is_err());
    }
}

//! Istio's flags and environment variables for connections, streams, and the memory of clients.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use super::discovery::duration;
use super::environment;
use navarch_base::go_text::parse_bool;
use navarch_base::regular_file;
use navarch_xds::{Encodings, Limits};

/// Flags about connections. The first two have their defaults from the environment.
#[derive(Args, Debug, Default)]
pub(super) struct KeepaliveFlags {
    /// Idle time of a connection after which the client is pinged; if unset,
    /// `GRPC_KEEPALIVE_INTERVAL`, or 30s
    #[arg(long, alias = "keepaliveInterval", value_name = "DURATION", value_parser = duration)]
    keepalive_interval: Option<Duration>,
    /// Timeout for the acknowledgement of a ping, after which the connection is closed; if unset,
    /// `GRPC_KEEPALIVE_TIMEOUT`, or 10s
    #[arg(long, alias = "keepaliveTimeout", value_name = "DURATION", value_parser = duration)]
    keepalive_timeout: Option<Duration>,
    /// Maximum age of a connection, with a jitter of 10 %; 0 is unlimited
    #[arg(
        long,
        alias = "keepaliveMaxServerConnectionAge",
        value_name = "DURATION",
        default_value = "30m",
        value_parser = duration
    )]
    keepalive_max_server_connection_age: Duration,
}

/// Default maximum size of a request in ambient mode, in bytes: a reconnecting ztunnel lists all of
/// its resources, with some 120 bytes each.
const AMBIENT_REQUEST_BYTES: usize = 16 << 20;
/// grpc-go's value for an interval of zero.
const DEFAULT_INTERVAL: Duration = Duration::from_hours(2);
/// grpc-go's value for a timeout of zero.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);
/// Ages from this value on are unlimited, as istiod's default is.
const UNLIMITED_AGE: Duration = Duration::from_hours(24 * 365 * 100);
/// The memory of clients if the available memory is unknown.
const UNKNOWN_MEMORY: usize = 1 << 30;
/// Minimum default for the memory of clients.
const LEAST_MEMORY: usize = 256 << 20;

/// The limits of connections and streams, from flags and variables. `variable` returns the value of
/// a variable.
///
/// # Errors
/// If `NAVARCH_PUSH_HISTORY` is too large; with `NAVARCH_STRICT_ENVIRONMENT`, at the first variable
/// with an invalid value.
pub(super) fn limits(
    variable: impl Fn(&str) -> Option<String>,
    flags: &KeepaliveFlags,
) -> anyhow::Result<Limits> {
    let text = |name: &str| variable(name).filter(|value| !value.is_empty());
    let span = |name: &str, flag: Option<Duration>, default: Duration| {
        let set = environment::duration(&variable, name);
        set.map(|set| flag.or(set).unwrap_or(default))
    };

    let number = |name: &str, default: usize| {
        let set = environment::parsed(&variable, name, "integer", |text| text.parse().ok());
        set.map(|set| set.unwrap_or(default))
    };

    if let Some(value) = text("PILOT_PUSH_THROTTLE") {
        tracing::warn!(
            value,
            "PILOT_PUSH_THROTTLE has no effect: one computation serves all proxies, so there are no \
             concurrent pushes to limit"
        );
    }

    let mut limits = Limits::default();
    let interval = span(
        "GRPC_KEEPALIVE_INTERVAL",
        flags.keepalive_interval,
        limits.keepalive_interval,
    )?;

    limits.keepalive_interval = if interval.is_zero() {
        DEFAULT_INTERVAL
    } else {
        interval
    };

    let timeout = span(
        "GRPC_KEEPALIVE_TIMEOUT",
        flags.keepalive_timeout,
        limits.keepalive_timeout,
    )?;

    limits.keepalive_timeout = if timeout.is_zero() {
        DEFAULT_TIMEOUT
    } else {
        timeout
    };
    let age = flags.keepalive_max_server_connection_age;
    limits.max_age = (!age.is_zero() && age < UNLIMITED_AGE).then_some(age);

    let rate = |text: &str| {
        text.parse()
            .ok()
            .filter(|rate: &f64| rate.is_finite() && *rate >= 0.0)
    };
    let per_second = environment::parsed(&variable, "PILOT_MAX_REQUESTS_PER_SECOND", "rate", rate)?;
    if let Some(per_second) = per_second {
        limits.streams_per_second = per_second;
    }

    let streams = environment::parsed(&variable, "ISTIO_GPRC_MAXSTREAMS", "integer", |text| {
        text.parse().ok()
    })?;
    limits.streams_per_connection = match streams {
        // As in grpc-go.
        Some(0) => u32::MAX,
        streams => streams.unwrap_or(100_000),
    };

    let ambient = text("PILOT_ENABLE_AMBIENT")
        .and_then(|value| parse_bool(&value))
        .unwrap_or_default();
    let request_bytes = if ambient {
        AMBIENT_REQUEST_BYTES
    } else {
        limits.request_bytes
    };

    limits.request_bytes = number("ISTIO_GPRC_MAXRECVMSGSIZE", request_bytes)?;
    limits.unproved_names = number("NAVARCH_MAX_UNAUTHENTICATED_NAMES", limits.unproved_names)?;
    limits.push_history = number("NAVARCH_PUSH_HISTORY", limits.push_history)?;
    let history = limits.push_history;
    let most = Limits::MAX_PUSH_HISTORY;
    ensure!(
        history <= most,
        "NAVARCH_PUSH_HISTORY={history} is too large: the maximum is {most} responses per stream"
    );

    Ok(limits)
}

/// `NAVARCH_XDS_COMPRESSION`: the encodings that responses may be compressed with.
///
/// # Errors
/// If the value is invalid, with `NAVARCH_STRICT_ENVIRONMENT`.
pub(super) fn encodings(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Encodings, environment::VariableError> {
    let expected = "list of gzip and zstd, or none";
    let read = |text: &str| text.parse().ok();
    let set = environment::parsed(variable, "NAVARCH_XDS_COMPRESSION", expected, read)?;
    Ok(set.unwrap_or_default())
}

/// `NAVARCH_CLIENT_MEMORY`: the memory budget of all xDS clients together, in bytes. Default: a
/// quarter of the process's memory.
///
/// # Errors
/// If the value is invalid, with `NAVARCH_STRICT_ENVIRONMENT`.
pub(super) fn client_memory(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<usize, environment::VariableError> {
    let expected = "number of bytes such as 1Gi";
    let set = environment::parsed(variable, "NAVARCH_CLIENT_MEMORY", expected, |text| {
        bytes(text).filter(|bytes| *bytes > 0)
    })?;
    Ok(set.unwrap_or_else(|| share_of(memory_limit(Path::new("/")))))
}

/// The default memory of clients, given the available memory.
fn share_of(memory: Option<usize>) -> usize {
    memory.map_or(UNKNOWN_MEMORY, |memory| (memory / 4).max(LEAST_MEMORY))
}

/// The memory limit of the process: that of its container, or else the machine's memory. `root`
/// contains `/sys` and `/proc`.
fn memory_limit(root: &Path) -> Option<usize> {
    let read = |file: &str| regular_file::read_text(&root.join(file)).ok();
    let machine = read("proc/meminfo").and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<usize>()
            .ok()?
            .checked_mul(1 << 10)
    });

    let container = [
        "sys/fs/cgroup/memory.max",
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let container = container
        .into_iter()
        .find_map(|file| read(file)?.trim().parse::<usize>().ok());

    match (container, machine) {
        (Some(container), Some(machine)) => Some(container.min(machine)),
        (one, other) => one.or(other),
    }
}

/// Minimum size of a recording.
const LEAST_RECORD: u64 = 1 << 20;

/// Parses the size of a recording.
///
/// # Errors
/// If it is not a number of bytes, or too small.
pub(super) fn record_size(text: &str) -> Result<u64, String> {
    let size = bytes(text).and_then(|size| u64::try_from(size).ok());
    match size.ok_or_else(|| format!("{text:?} is not a number of bytes such as 512Mi"))? {
        size if size < LEAST_RECORD => Err("the minimum size of a recording is 1Mi".to_owned()),
        size => Ok(size),
    }
}

/// Parses a number of bytes in Kubernetes' format: plain, or with one of `Ki`, `Mi`, `Gi`, `k`,
/// `M`, `G`.
fn bytes(text: &str) -> Option<usize> {
    let units = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let (number, unit) = units
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
        .unwrap_or((text, 1));
    number.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        flags: KeepaliveFlags,
    }

    fn flags(arguments: &[&str]) -> KeepaliveFlags {
        Command::try_parse_from([&["x"], arguments].concat())
            .unwrap()
            .flags
    }

    fn one<'a>(name: &'a str, value: &'a str) -> impl Fn(&str) -> Option<String> + 'a {
        move |requested| (requested == name).then(|| value.to_owned())
    }

    /// One variable in an environment in which invalid values are errors.
    fn strict<'a>(name: &'a str, value: &'a str) -> impl Fn(&str) -> Option<String> + 'a {
        move |requested| match requested {
            "NAVARCH_STRICT_ENVIRONMENT" => Some("true".to_owned()),
            _ => one(name, value)(requested),
        }
    }

    #[test]
    fn unset_limits_have_defaults() {
        for unset in [None, Some(String::new())] {
            assert_eq!(
                limits(|_| unset.clone(), &flags(&[])).unwrap(),
                Limits::default()
            );
        }
    }

    #[test]
    fn flags_go_before_variables_and_variables_before_defaults() {
        let interval = |value, arguments: &[&str]| {
            limits(one("GRPC_KEEPALIVE_INTERVAL", value), &flags(arguments))
                .unwrap()
                .keepalive_interval
        };
        assert_eq!(interval("5s", &[]), Duration::from_secs(5));
        assert_eq!(
            interval("5s", &["--keepaliveInterval", "7s"]),
            Duration::from_secs(7)
        );

        assert_eq!(interval("0s", &[]), DEFAULT_INTERVAL);
        let timeout = limits(one("GRPC_KEEPALIVE_TIMEOUT", "3s"), &flags(&[]))
            .unwrap()
            .keepalive_timeout;
        assert_eq!(timeout, Duration::from_secs(3));
        let timeout = limits(|_| None, &flags(&["--keepaliveTimeout=4s"]))
            .unwrap()
            .keepalive_timeout;
        assert_eq!(timeout, Duration::from_secs(4));

        let age = |value: &str| {
            limits(
                |_| None,
                &flags(&["--keepaliveMaxServerConnectionAge", value]),
            )
            .unwrap()
            .max_age
        };

        assert_eq!(age("1h"), Some(Duration::from_hours(1)));
        assert_eq!((age("0s"), age("2562047h47m16.854775807s")), (None, None));
    }

    #[test]
    fn every_variable_has_its_effect_and_a_bad_value_is_named_or_the_default() {
        let set = |name, value| limits(one(name, value), &flags(&[]));
        assert_eq!(
            set("PILOT_MAX_REQUESTS_PER_SECOND", "2.5")
                .unwrap()
                .streams_per_second,
            2.5
        );

        assert_eq!(
            set("ISTIO_GPRC_MAXSTREAMS", "12")
                .unwrap()
                .streams_per_connection,
            12
        );

        assert_eq!(
            set("ISTIO_GPRC_MAXSTREAMS", "0")
                .unwrap()
                .streams_per_connection,
            u32::MAX
        );

        assert_eq!(
            set("ISTIO_GPRC_MAXRECVMSGSIZE", "1024")
                .unwrap()
                .request_bytes,
            1024
        );

        assert_eq!(
            set("PILOT_ENABLE_AMBIENT", "true").unwrap().request_bytes,
            AMBIENT_REQUEST_BYTES
        );
        assert_eq!(
            set("NAVARCH_MAX_UNAUTHENTICATED_NAMES", "7")
                .unwrap()
                .unproved_names,
            7
        );

        assert_eq!(set("NAVARCH_PUSH_HISTORY", "0").unwrap().push_history, 0);
        assert!(
            set("NAVARCH_PUSH_HISTORY", "1001")
                .unwrap_err()
                .to_string()
                .contains("the maximum is 1000")
        );

        assert_eq!(set("PILOT_PUSH_THROTTLE", "3").unwrap(), Limits::default());

        for name in [
            "GRPC_KEEPALIVE_INTERVAL",
            "GRPC_KEEPALIVE_TIMEOUT",
            "PILOT_MAX_REQUESTS_PER_SECOND",
            "ISTIO_GPRC_MAXSTREAMS",
            "ISTIO_GPRC_MAXRECVMSGSIZE",
            "NAVARCH_MAX_UNAUTHENTICATED_NAMES",
            "NAVARCH_PUSH_HISTORY",
        ] {
            let error = limits(strict(name, "many"), &flags(&[])).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(set(name, "many").unwrap(), Limits::default());
        }
    }

    #[test]
    fn clients_may_hold_a_quarter_of_the_container_or_the_machine() {
        let memory = |value| client_memory(one("NAVARCH_CLIENT_MEMORY", value));
        assert_eq!(
            (
                memory("3Gi").unwrap(),
                memory("500M").unwrap(),
                memory("1024").unwrap()
            ),
            (3 << 30, 500_000_000, 1024)
        );

        for wrong in ["lots", "0"] {
            assert!(client_memory(strict("NAVARCH_CLIENT_MEMORY", wrong)).is_err());
            assert_eq!(memory(wrong), client_memory(|_| None));
        }
        let root = tempfile::tempdir().unwrap();
        assert_eq!(share_of(memory_limit(root.path())), UNKNOWN_MEMORY);
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write(
            "proc/meminfo",
            "MemTotal:       16777216 kB\nMemFree: 5 kB\n",
        );

        assert_eq!(share_of(memory_limit(root.path())), 4 << 30);
        write("sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(share_of(memory_limit(root.path())), 4 << 30);
        write("sys/fs/cgroup/memory.max", "8589934592\n");
        assert_eq!(share_of(memory_limit(root.path())), 2 << 30);
        write("sys/fs/cgroup/memory.max", "1000\n");
        assert_eq!(share_of(memory_limit(root.path())), LEAST_MEMORY);
    }
}

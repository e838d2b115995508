//! Envoy's command line.

use super::node::{AddressMode, Addresses};
use super::settings::Settings;
use navarch_api::duration::Duration;
use navarch_api::mesh::ProxyConfig;
use navarch_api::yaml::{self, Schema};

/// Envoy's arguments. `bootstrap` is the path of the bootstrap, `over` the JSON that overrides it,
/// if any.
#[must_use]
pub fn envoy_arguments(
    config: &ProxyConfig,
    settings: &Settings,
    addresses: &Addresses,
    bootstrap: &str,
    over: Option<&str>,
) -> Vec<String> {
    let version = if addresses.mode() == AddressMode::V6 {
        "v6"
    } else {
        "v4"
    };

    let drain = config.drain_duration.map_or(0, Duration::as_secs);
    let flush = config.file_flush_interval.map_or(1000, Duration::as_millis);
    let mut arguments = vec![
        "-c".to_owned(),
        bootstrap.to_owned(),
        "--drain-time-s".to_owned(),
        drain.to_string(),
        // Connections are drained at once, not gradually over the drain time.
        "--drain-strategy".to_owned(),
        "immediate".to_owned(),
        "--local-address-ip-version".to_owned(),
        version.to_owned(),
        "--file-flush-interval-msec".to_owned(),
        flush.to_string(),
    ];

    if !settings.uses_hot_restart() {
        arguments.push("--disable-hot-restart".to_owned());
    }
    arguments.push("--allow-unknown-static-fields".to_owned());

    let mut add = |flag: &str, value: Option<String>| {
        arguments.push(flag.to_owned());
        arguments.extend(value);
    };

    if config.file_flush_min_size_kb > 0 {
        add(
            "--file-flush-min-size-kb",
            Some(config.file_flush_min_size_kb.to_string()),
        );
    }

    let (level, components) = log_levels(&settings.log_level);
    if !level.is_empty() {
        add("-l", Some(level));
    }

    if !components.is_empty() {
        add("--component-log-level", Some(components));
    } else if !settings.component_log_level.is_empty() {
        add(
            "--component-log-level",
            Some(settings.component_log_level.clone()),
        );
    }

    if settings.skip_deprecated_logs {
        add("--skip-deprecated-logs", None);
    }

    if settings.core_dump {
        add("--enable-core-dump", None);
    }

    if let Some(over) = over {
        add("--config-yaml", Some(over.to_owned()));
    }

    if let Some(concurrency) = config.concurrency.filter(|concurrency| *concurrency > 0) {
        add("--concurrency", Some(concurrency.to_string()));
    }

    arguments
}

/// Splits `info,misc:error` into the default level and the component levels. Invalid parts are
/// ignored.
fn log_levels(text: &str) -> (String, String) {
    let mut level = "";
    let mut components = Vec::new();
    for part in text.split(',') {
        match part.matches(':').count() {
            0 => level = part,
            1 => components.push(part),
            _ => tracing::warn!(part, "invalid log level; ignored"),
        }
    }
    (level.to_owned(), components.join(","))
}

/// The YAML of a bootstrap override as JSON, with the node's address for `$(HOST_IP)`.
///
/// # Errors
/// If it is not YAML.
pub fn override_json(text: &str, host_ip: &str) -> Result<String, yaml::SyntaxError> {
    let text = if host_ip.contains(':') {
        let bracketed = format!("[{host_ip}]");
        text.replace("[$(HOST_IP)]", &bracketed)
            .replace("$(HOST_IP)", &bracketed)
    } else {
        text.replace("$(HOST_IP)", host_ip)
    };
    yaml::parse(&text, Schema::V1_1).map(|value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_components_are_parted_from_that_of_all() {
        assert_eq!(
            log_levels("info,misc:error,upstream:debug"),
            ("info".to_owned(), "misc:error,upstream:debug".to_owned())
        );
        assert_eq!(log_levels("warning"), ("warning".to_owned(), String::new()));
    }

    #[test]
    fn an_ipv6_node_address_is_bracketed_once() {
        assert_eq!(
            override_json("a: $(HOST_IP)", "10.0.0.1").unwrap(),
            r#"{"a":"10.0.0.1"}"#
        );
        assert_eq!(
            override_json("a: '[$(HOST_IP)]:80'", "fd00::1").unwrap(),
            r#"{"a":"[fd00::1]:80"}"#
        );
    }
}

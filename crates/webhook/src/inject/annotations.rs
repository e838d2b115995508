//! Validation of annotation values.

use serde_json::{Map, Value};

use super::error::InjectError;
use super::names::{INTERCEPTION_MODE, PROXY_CONFIG, STATUS_PORT};
use super::quantity::Quantity;
use navarch_api::mesh::ProxyConfig;
use navarch_api::validation::validate_proxy_config;
use navarch_base::cidr::Cidr;
use navarch_base::go_text::parse_bool;

/// The maximum length of a value in an error message.
const MAX_SHOWN: usize = 120;

/// The maximum length of a network interface's name (Linux's `IFNAMSIZ` without the terminator).
const MAX_INTERFACE: usize = 15;

/// Validates a value.
type Rule = fn(&str) -> Result<(), String>;

/// The validated annotations and their rules (istiod's `pkg/kube/inject/validate.go`).
const RULES: [(&str, Rule); 19] = [
    (INTERCEPTION_MODE, interception_mode),
    (STATUS_PORT, port),
    (
        "readiness.status.sidecar.istio.io/initialDelaySeconds",
        whole_number,
    ),
    (
        "readiness.status.sidecar.istio.io/periodSeconds",
        whole_number,
    ),
    (
        "readiness.status.sidecar.istio.io/failureThreshold",
        whole_number,
    ),
    (
        "traffic.sidecar.istio.io/includeOutboundIPRanges",
        ranges_or_all,
    ),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", ranges),
    ("traffic.sidecar.istio.io/includeInboundPorts", ports_or_all),
    ("traffic.sidecar.istio.io/excludeInboundPorts", ports),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", ports),
    ("traffic.sidecar.istio.io/excludeInterfaces", interfaces),
    ("traffic.sidecar.istio.io/kubevirtInterfaces", interfaces),
    ("istio.io/reroute-virtual-interfaces", interfaces),
    ("prometheus.istio.io/merge-metrics", boolean),
    (PROXY_CONFIG, proxy_config),
    ("sidecar.istio.io/proxyCPU", quantity),
    ("sidecar.istio.io/proxyMemory", quantity),
    ("sidecar.istio.io/proxyCPULimit", quantity),
    ("sidecar.istio.io/proxyMemoryLimit", quantity),
];

/// Validates all annotations of a pod.
///
/// # Errors
/// At the first annotation with an invalid value.
pub(super) fn validate(annotations: Option<&Map<String, Value>>) -> Result<(), InjectError> {
    let Some(annotations) = annotations else {
        return Ok(());
    };
    for (name, rule) in RULES {
        if let Some(value) = annotations.get(name).and_then(Value::as_str)
            && let Err(reason) = rule(value)
        {
            let value = value.chars().take(MAX_SHOWN).collect();
            return Err(InjectError::Annotation {
                name: name.to_owned(),
                value,
                reason,
            });
        }
    }
    Ok(())
}

/// Checks `sidecar.istio.io/interceptionMode`.
fn interception_mode(text: &str) -> Result<(), String> {
    match text {
        "REDIRECT" | "TPROXY" | "NONE" => Ok(()),
        _ => Err("unknown mode; use REDIRECT, TPROXY or NONE".to_owned()),
    }
}

/// A non-negative integer.
fn whole_number(text: &str) -> Result<(), String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(_) if plain => Ok(()),
        Ok(_) | Err(_) => Err("it is not a non-negative integer; use only digits".to_owned()),
    }
}

fn port(text: &str) -> Result<(), String> {
    let text = text.trim();
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(_) if plain => Ok(()),
        Ok(_) | Err(_) => Err(format!(
            "{text:?} is not a port; use a number from 0 to 65535"
        )),
    }
}

/// Comma-separated ports.
fn ports(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        Ok(())
    } else {
        text.split(',').try_for_each(port)
    }
}

/// Comma-separated ports, or `*`.
fn ports_or_all(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { ports(text) }
}

/// Comma-separated address ranges.
fn ranges(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let fault =
        |part: &str| format!("{part:?} is not a CIDR; use for example 10.0.0.0/8,192.168.0.0/16");
    text.split(',')
        .try_for_each(|part| Cidr::parse(part).map(|_| ()).ok_or_else(|| fault(part)))
}

/// Comma-separated address ranges, or `*`.
fn ranges_or_all(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { ranges(text) }
}

/// Comma-separated names of network interfaces.
fn interfaces(text: &str) -> Result<(), String> {
    let good = |name: &str| {
        let mut bytes = name.bytes();
        bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
            && name.len() <= MAX_INTERFACE
    };
    if text.is_empty() || text.split(',').all(|name| good(name.trim())) {
        return Ok(());
    }
    Err("it is not a list of network interfaces; use names such as eth0,eth1".to_owned())
}

fn boolean(text: &str) -> Result<(), String> {
    parse_bool(text)
        .map(|_| ())
        .ok_or_else(|| "it is not a boolean; use true or false".to_owned())
}

fn quantity(text: &str) -> Result<(), String> {
    let fault = || "it is not a quantity; use for example 100m, 0.5, 128Mi or 1Gi".to_owned();
    Quantity::parse(text).map(|_| ()).ok_or_else(fault)
}

fn proxy_config(text: &str) -> Result<(), String> {
    let config = ProxyConfig::istio_defaults()
        .apply(text)
        .map_err(|error| error.to_string())?;
    match validate_proxy_config(&config.value).errors.first() {
        Some(problem) => Err(problem.to_string()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_values_are_validated_as_in_istiod() {
        let rule = |name: &str| RULES.iter().find(|(other, _)| *other == name).unwrap().1;

        for (name, good, bad) in [
            (
                INTERCEPTION_MODE,
                vec!["REDIRECT", "TPROXY", "NONE"],
                vec!["", "redirect", "none "],
            ),
            (
                STATUS_PORT,
                vec!["0", "15020", " 1 "],
                vec!["", "65536", "+1", "x", "1,2"],
            ),
            (
                "readiness.status.sidecar.istio.io/periodSeconds",
                vec!["0", "7"],
                vec!["", "-1", "+1", " 1", "4294967296"],
            ),
            (
                "traffic.sidecar.istio.io/includeOutboundIPRanges",
                vec!["*", "", "10.0.0.0/8", "10.0.0.0/8,fd00::/8"],
                vec![
                    "10.0.0.0",
                    "10.0.0.0/8, 11.0.0.0/8",
                    "*,10.0.0.0/8",
                    "10.0.0.0/33",
                ],
            ),
            (
                "traffic.sidecar.istio.io/excludeOutboundIPRanges",
                vec!["", "10.0.0.0/8"],
                vec!["*"],
            ),
            (
                "traffic.sidecar.istio.io/includeInboundPorts",
                vec!["*", "", " ", "80, 90"],
                vec!["80,", "x"],
            ),
            (
                "traffic.sidecar.istio.io/excludeInboundPorts",
                vec!["", "80"],
                vec!["*"],
            ),
            (
                "traffic.sidecar.istio.io/excludeInterfaces",
                vec!["", "eth0, eth1.5"],
                vec!["eth0,", "0eth", "a234567890123456"],
            ),
            (
                "prometheus.istio.io/merge-metrics",
                vec!["true", "F"],
                vec!["", "yes"],
            ),
            (
                PROXY_CONFIG,
                vec!["", "concurrency: 2", "{\"unknown\":1}"],
                vec!["concurrency: x", "- a", "statusPort: 70000"],
            ),
            (
                "sidecar.istio.io/proxyCPU",
                vec!["100m", "2"],
                vec!["", "x", "1\n", "1 "],
            ),
        ] {
            for value in good {
                assert_eq!(rule(name)(value), Ok(()), "{name}: {value:?}");
            }
            for value in bad {
                assert!(rule(name)(value).is_err(), "{name}: {value:?}");
            }
        }
    }
}

//! Valid values of pod annotations. Errors have the texts of the injector, those of numbers the
//! texts of Go's `strconv`.

use std::net::IpAddr;

use navarch_api::mesh::ProxyConfig;
use navarch_api::validation::validate_proxy_config;
use navarch_base::go_text::parse_bool;

use navarch_base::go_text::quoted;

/// The longest name of an interface in Linux (`IFNAMSIZ` - 1).
const MAX_INTERFACE: usize = 15;

/// Checks the value of an annotation.
pub(super) fn check(key: &str, value: &str) -> Result<(), String> {
    let of_sidecar = key.strip_prefix("traffic.sidecar.istio.io/");

    match (key, of_sidecar) {
        ("sidecar.istio.io/interceptionMode", _) => match value {
            "REDIRECT" | "TPROXY" | "NONE" => Ok(()),
            _ => Err(format!(
                "interceptionMode invalid, use REDIRECT,TPROXY,NONE: {value}"
            )),
        },

        // istioctl names the wrong parameter here.
        ("status.sidecar.istio.io/port", _) => {
            port(value).map_err(|fault| format!("excludeInboundPorts invalid: {fault}"))
        }
        (
            "readiness.status.sidecar.istio.io/initialDelaySeconds"
            | "readiness.status.sidecar.istio.io/periodSeconds"
            | "readiness.status.sidecar.istio.io/failureThreshold",
            _,
        ) => number(value, u64::from(u32::MAX)),

        ("prometheus.istio.io/merge-metrics", _) => match parse_bool(value) {
            Some(_) => Ok(()),
            None => Err(format!(
                "strconv.ParseBool: parsing {}: invalid syntax",
                quoted(value)
            )),
        },
        (
            "sidecar.istio.io/proxyCPU"
            | "sidecar.istio.io/proxyMemory"
            | "sidecar.istio.io/proxyCPULimit"
            | "sidecar.istio.io/proxyMemoryLimit",
            _,
        ) => quantity(value),

        ("proxy.istio.io/config", _) => proxy_config(value),
        ("istio.io/reroute-virtual-interfaces", _) => interfaces(value),
        (_, Some("excludeInterfaces" | "kubevirtInterfaces")) => interfaces(value),

        (_, Some("includeOutboundIPRanges" | "includeInboundPorts")) if value == "*" => Ok(()),
        (_, Some("includeOutboundIPRanges")) => {
            ranges(value).map_err(|fault| format!("includeIPRanges invalid: {fault}"))
        }
        (_, Some("excludeOutboundIPRanges")) => {
            ranges(value).map_err(|fault| format!("excludeIPRanges invalid: {fault}"))
        }
        (
            _,
            Some(list @ ("includeInboundPorts" | "excludeInboundPorts" | "excludeOutboundPorts")),
        ) => ports(value).map_err(|fault| format!("{list} invalid: {fault}")),

        (_, _) => Ok(()),
    }
}

/// Checks a number.
fn number(text: &str, most: u64) -> Result<(), String> {
    let fault = |what: &str| {
        Err(format!(
            "strconv.ParseUint: parsing {}: {what}",
            quoted(text)
        ))
    };
    if text.is_empty() || !text.bytes().all(|sign| sign.is_ascii_digit()) {
        return fault("invalid syntax");
    }
    if text.parse::<u64>().is_ok_and(|number| number <= most) {
        Ok(())
    } else {
        fault("value out of range")
    }
}

/// Checks a port.
fn port(text: &str) -> Result<(), String> {
    number(text.trim(), u64::from(u16::MAX))
        .map_err(|fault| format!("failed parsing port '{text}': {fault}"))
}

/// Checks a list of ports.
fn ports(text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(());
    }
    text.split(',').try_for_each(|one| {
        port(one).map_err(|fault| format!("failed parsing port '{one}': {fault}"))
    })
}

/// Checks a list of ranges of addresses.
fn ranges(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    text.split(',').try_for_each(|one| {
        range(one).map_err(|fault| {
            format!(
                "failed parsing cidr '{one}': netip.ParsePrefix({}): {fault}",
                quoted(one)
            )
        })
    })
}

/// Checks a range of addresses.
fn range(text: &str) -> Result<(), String> {
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| "no '/'".to_owned())?;
    let parsed: IpAddr = address
        .parse()
        .map_err(|_| format!("ParseAddr({}): unable to parse IP", quoted(address)))?;
    if bits.is_empty()
        || !bits.bytes().all(|sign| sign.is_ascii_digit())
        || bits.len() > 1 && bits.starts_with('0')
    {
        return Err(format!("bad bits after slash: {}", quoted(bits)));
    }
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    if bits.parse::<u32>().is_ok_and(|bits| bits <= most) {
        Ok(())
    } else {
        Err("prefix length out of range".to_owned())
    }
}

/// Checks a list of interfaces.
fn interfaces(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }

    text.split(',').map(str::trim).try_for_each(|name| {
        if name.is_empty() {
            return Err("empty interface name".to_owned());
        }

        if name.len() > MAX_INTERFACE {
            return Err(format!(
                "interface name {} too long (max {MAX_INTERFACE} chars)",
                quoted(name)
            ));
        }

        let is_good = |sign: char| sign.is_ascii_alphanumeric() || "_.+-".contains(sign);
        if name.chars().all(is_good) {
            Ok(())
        } else {
            Err(format!(
                "interface name {} contains invalid characters",
                quoted(name)
            ))
        }
    })
}

/// Checks an amount of a resource, such as `100m` or `1.5Gi`.
fn quantity(text: &str) -> Result<(), String> {
    const SUFFIXES: [&str; 15] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi",
    ];
    if text.chars().any(char::is_control) {
        return Err("value contains control characters".to_owned());
    }

    let fault = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
        .unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let is_number =
        digits.bytes().any(|sign| sign.is_ascii_digit()) && digits.matches('.').count() < 2;

    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    let is_exponent = exponent
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|sign| sign.is_ascii_digit()));
    if is_number && (is_exponent || SUFFIXES.contains(&suffix) || suffix == "Ei") {
        Ok(())
    } else {
        Err(fault.to_owned())
    }
}

/// Checks settings of a proxy.
fn proxy_config(text: &str) -> Result<(), String> {
    let config = ProxyConfig::istio_defaults().apply(text);
    let config = config
        .map_err(|error| format!("failed to convert to apply proxy config: {error}"))?
        .value;
    let errors: Vec<_> = validate_proxy_config(&config)
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_annotation_values_are_distinguished() {
        let good = [
            ("sidecar.istio.io/interceptionMode", "TPROXY"),
            ("status.sidecar.istio.io/port", "0"),
            ("readiness.status.sidecar.istio.io/periodSeconds", "10"),
            ("prometheus.istio.io/merge-metrics", "T"),
            ("sidecar.istio.io/proxyCPU", "1.5e3"),
            ("sidecar.istio.io/proxyMemory", "128Mi"),
            ("proxy.istio.io/config", "concurrency: 2"),
            ("traffic.sidecar.istio.io/includeOutboundIPRanges", "*"),
            (
                "traffic.sidecar.istio.io/excludeOutboundIPRanges",
                "10.0.0.0/8,2001:db8::/32",
            ),
            ("traffic.sidecar.istio.io/excludeInboundPorts", " 80, 443"),
            ("traffic.sidecar.istio.io/excludeInterfaces", "eth0, lo"),
        ];

        for (key, value) in good {
            assert_eq!(check(key, value), Ok(()), "{key}={value}");
        }

        let bad = [
            (
                "sidecar.istio.io/interceptionMode",
                "x",
                "interceptionMode invalid, use REDIRECT,TPROXY,NONE: x",
            ),
            (
                "readiness.status.sidecar.istio.io/periodSeconds",
                "-1",
                "strconv.ParseUint: parsing \"-1\": invalid syntax",
            ),
            (
                "readiness.status.sidecar.istio.io/periodSeconds",
                "4294967296",
                "strconv.ParseUint: parsing \"4294967296\": value out of range",
            ),
            (
                "traffic.sidecar.istio.io/excludeOutboundIPRanges",
                "1.2.3.4",
                "excludeIPRanges invalid: failed parsing cidr '1.2.3.4': netip.ParsePrefix(\"1.2.3.4\"): no '/'",
            ),
            (
                "traffic.sidecar.istio.io/excludeInterfaces",
                "eth0,",
                "empty interface name",
            ),
        ];

        for (key, value, fault) in bad {
            assert_eq!(check(key, value).unwrap_err(), fault);
        }

        for (key, value) in [
            ("sidecar.istio.io/proxyCPU", "1x"),
            ("proxy.istio.io/config", "concurrency: many"),
        ] {
            assert!(check(key, value).is_err(), "{key}={value}");
        }
    }
}

//! Flags and variables of istio-iptables, and the facts about the machine that the options depend
//! on.

use std::net::IpAddr;
use std::time::Duration;

use super::capture::{Capture, CaptureError, DnsCapture, Mode};
use super::flags::{FLAGS, variables_of};
use crate::flags::{CommandLine, Flag, FlagError, FlagValue, UnknownFlags};
use crate::variables::{Variables, parse_duration};
use navarch_base::go_text::parse_bool;

/// The default user ID for Envoy's own traffic.
const DEFAULT_PROXY_UID: &str = "1337";

/// The options of istio-iptables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate flag of istio-iptables"
)]
pub struct Options {
    /// The capture settings.
    pub capture: Capture,
    /// Print the commands instead of running them.
    pub dry_run: bool,
    /// Do not change the kernel.
    pub skip_apply: bool,
    /// Check whether connections are captured.
    pub validate: bool,
    /// Replace different existing rules, instead of adding the new rules to them.
    pub reconcile: bool,
    /// Only remove the rules.
    pub cleanup_only: bool,
    /// Apply the rules even if they seem to exist.
    pub force_apply: bool,
    /// Lock the pod's network namespace instead of the machine's lock file.
    pub cni_mode: bool,
    /// The path of the pod's network namespace, as the lock file in CNI mode.
    pub network_namespace: String,
    /// The variant of the tools; empty selects a working one.
    pub binary: String,
    /// Use nftables instead of iptables.
    pub nftables: bool,
    /// Add log rules for the decisions of the rules.
    pub trace: bool,
    /// The port to which validation connects.
    pub probe_port: u16,
    /// The timeout of the validation.
    pub probe_timeout: Duration,
    /// The pod's address.
    pub host_address: IpAddr,
}

/// Facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The addresses of all interfaces, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// The name servers in `/etc/resolv.conf`; `None` if the file is unreadable.
    pub name_servers: Option<Vec<String>>,
    /// The ID of the user that `ENVOY_USER` names.
    pub proxy_user: Option<u32>,
}

/// Why the options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The command line is invalid.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The capture settings are invalid.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The DNS servers to capture are unknown.
    #[error(
        "failed to read the DNS servers of /etc/resolv.conf; use --capture-all-dns to capture DNS without it"
    )]
    Resolvers,
    /// The machine has no usable address.
    #[error("no interface has a global unicast address")]
    NoAddress,
}

impl Options {
    /// In the order of `--help`; istio-iptables and istio-clean-iptables have the same.
    pub const FLAGS: &[Flag] = FLAGS;

    /// The variables that set a flag; the last one that is set applies, and the flag takes
    /// precedence over all.
    pub fn variables_of(flag: &str) -> impl Iterator<Item = String> + use<> {
        variables_of(flag)
    }

    /// Reads flags and variables; flags take precedence. An invalid variable of a switch or number
    /// counts as unset.
    ///
    /// # Errors
    /// When a flag or a capture setting is invalid, or the machine has no address.
    pub fn read(
        arguments: &[String],
        variables: &Variables,
        host: &HostFacts,
    ) -> Result<Self, OptionsError> {
        let mut line = from_variables(variables);
        line.flags
            .extend(CommandLine::read(FLAGS, UnknownFlags::Reject, arguments)?.flags);
        let (host_address, ipv6) = local_address(&host.addresses, on(&line, "dual-stack")?)?;
        let capture = capture(&line, variables, host, ipv6)?;
        capture.check()?;
        let binary = value(&line, "force-iptables-binary", "");
        if !["", "legacy", "nft"].contains(&binary.as_str()) {
            return Err(CaptureError::Binary(binary).into());
        }

        let timeout = line.parsed("probe-timeout", "duration such as 5s", parse_duration)?;
        Ok(Self {
            capture,
            dry_run: on(&line, "dry-run")?,
            skip_apply: on(&line, "skip-rule-apply")?,
            validate: on(&line, "run-validation")?,
            reconcile: on(&line, "reconcile")?,
            cleanup_only: on(&line, "cleanup-only")?,
            force_apply: on(&line, "force-apply")?,
            cni_mode: on(&line, "cni-mode")?,
            network_namespace: value(&line, "network-namespace", ""),
            binary,
            nftables: on(&line, "native-nftables")?,
            trace: on(&line, "iptables-trace-logging")?,
            probe_port: line
                .parsed("iptables-probe-port", "port", |text| text.parse().ok())?
                .unwrap_or(15002),
            probe_timeout: timeout.unwrap_or(Duration::from_secs(5)),
            host_address,
        })
    }
}

/// Converts variables to flags. Invalid values are ignored, as in istio-iptables.
fn from_variables(variables: &Variables) -> CommandLine {
    let mut line = CommandLine::default();
    for (flag, variable) in FLAGS
        .iter()
        .flat_map(|flag| variables_of(flag.name).map(move |variable| (flag, variable)))
    {
        let Some(text) = variables.get(&variable) else {
            continue;
        };
        let readable = match flag.name {
            "iptables-probe-port" => text.parse::<u16>().is_ok(),
            "probe-timeout" => parse_duration(text).is_some(),
            _ => flag.value == FlagValue::Text || parse_bool(text).is_some(),
        };
        if readable {
            line.flags.insert(flag.name, text.to_owned());
        }
    }

    line
}

/// Whether a switch is set.
fn on(line: &CommandLine, flag: &'static str) -> Result<bool, FlagError> {
    Ok(line.parsed(flag, "boolean", parse_bool)?.unwrap_or(false))
}

fn value(line: &CommandLine, flag: &str, default: &str) -> String {
    line.flags
        .get(flag)
        .map_or(default, String::as_str)
        .to_owned()
}

fn capture(
    line: &CommandLine,
    variables: &Variables,
    host: &HostFacts,
    ipv6: bool,
) -> Result<Capture, OptionsError> {
    let default = Capture::default();
    let proxy_user = host
        .proxy_user
        .map_or_else(|| DEFAULT_PROXY_UID.to_owned(), |user| user.to_string());
    let proxy_uids = Some(value(line, "proxy-uid", ""))
        .filter(|uids| !uids.is_empty())
        .unwrap_or(proxy_user);
    let proxy_gids = Some(value(line, "proxy-gid", "")).filter(|gids| !gids.is_empty());

    Ok(Capture {
        proxy_port: value(line, "envoy-port", &default.proxy_port),
        inbound_port: value(line, "inbound-capture-port", &default.inbound_port),
        tunnel_port: value(line, "inbound-tunnel-port", &default.tunnel_port),
        proxy_gids: proxy_gids.unwrap_or_else(|| proxy_uids.clone()),
        proxy_uids,
        mode: if value(line, "istio-inbound-interception-mode", "") == "TPROXY" {
            Mode::Tproxy
        } else {
            Mode::Redirect
        },
        tproxy_mark: value(line, "istio-inbound-tproxy-mark", &default.tproxy_mark),
        tproxy_table: value(
            line,
            "istio-inbound-tproxy-route-table",
            &default.tproxy_table,
        ),
        inbound_ports: value(line, "istio-inbound-ports", ""),
        inbound_ports_excluded: value(line, "istio-local-exclude-ports", ""),
        outbound_ports: value(line, "istio-outbound-ports", ""),
        outbound_ports_excluded: value(line, "istio-local-outbound-ports-exclude", ""),
        outbound_ranges: value(line, "istio-service-cidr", ""),
        outbound_ranges_excluded: value(line, "istio-service-exclude-cidr", ""),
        owner_groups: variables.text_or("ISTIO_OUTBOUND_OWNER_GROUPS", &default.owner_groups),
        owner_groups_excluded: variables.text_or("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", ""),
        virtual_interfaces: value(line, "kube-virt-interfaces", ""),
        excluded_interfaces: value(line, "istio-exclude-interfaces", ""),
        drop_invalid: on(line, "drop-invalid")?,
        dns: dns(line, host)?,
        ipv6,
        loopback_range: variables
            .text_or("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", &default.loopback_range),
    })
}

/// The DNS queries to capture.
fn dns(line: &CommandLine, host: &HostFacts) -> Result<DnsCapture, OptionsError> {
    Ok(
        match (on(line, "redirect-dns")?, on(line, "capture-all-dns")?) {
            (false, _) => DnsCapture::Off,
            (true, true) => DnsCapture::All,
            (true, false) => {
                let servers = host.name_servers.as_ref().ok_or(OptionsError::Resolvers)?;
                DnsCapture::Servers(
                    servers
                        .iter()
                        .filter_map(|server| server.parse().ok())
                        .collect(),
                )
            }
        },
    )
}

/// The pod's address, and whether IPv6 is used: if the first address is IPv6 or, with dual stack,
/// any address.
fn local_address(addresses: &[IpAddr], dual_stack: bool) -> Result<(IpAddr, bool), OptionsError> {
    let mut usable = addresses
        .iter()
        .map(IpAddr::to_canonical)
        .filter(|address| is_usable(*address));
    let first = usable.next().ok_or(OptionsError::NoAddress)?;
    Ok((
        first,
        first.is_ipv6() || (dual_stack && usable.any(|address| address.is_ipv6())),
    ))
}

/// Whether an address is neither loopback nor link-local.
fn is_usable(address: IpAddr) -> bool {
    let link_local = match address {
        // 224.0.0.0/24 is link-local multicast.
        IpAddr::V4(v4) => v4.is_link_local() || v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || (v6.is_multicast()
                    && v6.segments().first().is_some_and(|first| first & 0xf == 2))
        }
    };
    !address.is_loopback() && !link_local
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(addresses: &[&str]) -> HostFacts {
        let addresses = addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        HostFacts {
            addresses,
            name_servers: Some(vec!["10.96.0.10".to_owned()]),
            proxy_user: None,
        }
    }

    fn read(line: &str, variables: &[(&str, &str)]) -> Result<Options, OptionsError> {
        let arguments: Vec<_> = line
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        Options::read(
            &arguments,
            &variables.iter().copied().collect(),
            &host(&["127.0.0.1", "10.0.0.1", "fd00::1"]),
        )
    }

    #[test]
    fn flags_take_precedence_over_variables() {
        let options = read(
            "-b 80 -u 7",
            &[
                ("ISTIO_INBOUND_PORTS", "*"),
                ("ENVOY_PORT", "1"),
                ("INBOUND_CAPTURE_PORT", "2"),
            ],
        )
        .unwrap();
        assert_eq!(
            (
                options.capture.inbound_ports.as_str(),
                options.capture.proxy_port.as_str()
            ),
            ("80", "15001")
        );

        assert_eq!(
            (
                options.capture.inbound_port.as_str(),
                options.capture.proxy_gids.as_str()
            ),
            ("2", "7")
        );

        let options = read(
            "",
            &[
                ("REDIRECT_DNS", "false"),
                ("ISTIO_META_DNS_CAPTURE", "true"),
            ],
        )
        .unwrap();
        assert_eq!(
            options.capture.dns,
            DnsCapture::Servers(vec!["10.96.0.10".parse().unwrap()])
        );
        assert!(
            !read("", &[("DRY_RUN", "perhaps"), ("PROBE_TIMEOUT", "")])
                .unwrap()
                .dry_run
        );
    }

    #[test]
    fn an_omitted_flag_has_the_default_in_its_help_text() {
        for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            assert_eq!(
                read(&format!("--{}={}", flag.name, flag.default), &[]),
                read("", &[]),
                "--{}",
                flag.name
            );
        }
    }

    #[test]
    fn ipv6_follows_the_first_address_or_any_of_two_families() {
        assert!(!read("", &[]).unwrap().capture.ipv6);
        assert!(read("--dual-stack", &[]).unwrap().capture.ipv6);
        assert!(
            Options::read(&[], &Variables::default(), &host(&["fe80::1", "fd00::1"]))
                .unwrap()
                .capture
                .ipv6
        );
        assert_eq!(
            Options::read(&[], &Variables::default(), &host(&["127.0.0.1"])),
            Err(OptionsError::NoAddress)
        );
    }

    #[test]
    fn resolvers_are_read_only_if_dns_capture_needs_them() {
        let host = HostFacts {
            name_servers: None,
            ..host(&["10.0.0.1"])
        };
        let read = |line: &[&str]| {
            let line: Vec<_> = line.iter().map(|word| (*word).to_owned()).collect();
            Options::read(&line, &Variables::default(), &host).map(|options| options.capture.dns)
        };
        assert_eq!(read(&[]), Ok(DnsCapture::Off));
        assert_eq!(
            read(&["--redirect-dns", "--capture-all-dns"]),
            Ok(DnsCapture::All)
        );
        assert_eq!(read(&["--redirect-dns"]), Err(OptionsError::Resolvers));
    }
}

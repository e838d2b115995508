//! The settings of traffic capture, on which all rules depend.

use std::net::IpAddr;

use super::families::IpFamily;
use super::ranges::{Range, Ranges, list};

/// The maximum number of included groups: one rule matches all of them, and kernels limit the
/// matches of a rule.
const MAX_INCLUDED_GROUPS: usize = 64;

/// How inbound connections reach Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// REDIRECT rewrites the destination.
    #[default]
    Redirect,
    /// TPROXY marks and routes packets, which preserves source and destination.
    Tproxy,
}

/// Settings of traffic capture. Lists are comma-separated text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Envoy's port for outbound connections.
    pub proxy_port: String,
    /// Envoy's port for inbound connections.
    pub inbound_port: String,
    /// The port of HBONE tunnels, which is excluded from capture.
    pub tunnel_port: String,
    /// Users whose traffic is Envoy's own, and therefore excluded from capture.
    pub proxy_uids: String,
    /// Groups whose traffic is Envoy's own, and therefore excluded from capture.
    pub proxy_gids: String,
    /// How inbound connections reach Envoy.
    pub mode: Mode,
    /// The mark for packets that TPROXY sends to Envoy.
    pub tproxy_mark: String,
    /// The routing table for marked packets.
    pub tproxy_table: String,
    /// Inbound ports to capture: `*`, a list, or empty.
    pub inbound_ports: String,
    /// Inbound ports to exclude if all others are captured.
    pub inbound_ports_excluded: String,
    /// Outbound ports to capture for any destination.
    pub outbound_ports: String,
    /// Outbound ports that are never captured, separated by commas.
    pub outbound_ports_excluded: String,
    /// Outbound destinations to capture: `*` or CIDRs.
    pub outbound_ranges: String,
    /// Outbound destinations to exclude.
    pub outbound_ranges_excluded: String,
    /// Groups whose traffic is captured: `*` or a list.
    pub owner_groups: String,
    /// Groups whose traffic is excluded, with `*` in `owner_groups`.
    pub owner_groups_excluded: String,
    /// Interfaces of virtual machines, whose inbound traffic is treated as outbound.
    pub virtual_interfaces: String,
    /// Interfaces whose traffic is not captured, separated by commas.
    pub excluded_interfaces: String,
    /// Whether packets in conntrack state INVALID are dropped.
    pub drop_invalid: bool,
    /// The DNS queries that are redirected to the agent.
    pub dns: DnsCapture,
    /// Whether IPv6 rules are generated.
    pub ipv6: bool,
    /// The IPv4 range that is the application's own loopback.
    pub loopback_range: String,
}

/// The DNS queries that are redirected to the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DnsCapture {
    /// No queries.
    #[default]
    Off,
    /// All queries.
    All,
    /// Queries to these servers.
    Servers(Vec<IpAddr>),
}

/// Why capture settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// One rule cannot match this many groups.
    #[error("{0} owner groups exceed the maximum of {MAX_INCLUDED_GROUPS} per rule")]
    TooManyGroups(usize),
    /// A list of ranges contains an invalid CIDR.
    #[error("{name}: {value:?} is neither `*` nor a list of CIDRs")]
    Ranges {
        /// The setting that contains the list.
        name: &'static str,
        /// The invalid text.
        value: String,
    },
    /// The settings exclude all addresses.
    #[error(
        "`*` is not allowed in excluded outbound CIDRs: leave the included CIDRs empty instead"
    )]
    AllExcluded,
    /// The loopback range is not a CIDR.
    #[error("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR={0:?} is not a CIDR within 127.0.0.0/8")]
    Loopback(String),
    /// The variant of the tools is unknown.
    #[error("--force-iptables-binary={0:?} is neither `legacy` nor `nft`")]
    Binary(String),
}

impl Default for Capture {
    fn default() -> Self {
        Self {
            proxy_port: "15001".to_owned(),
            inbound_port: "15006".to_owned(),
            tunnel_port: "15008".to_owned(),
            proxy_uids: String::new(),
            proxy_gids: String::new(),
            mode: Mode::Redirect,
            tproxy_mark: "1337".to_owned(),
            tproxy_table: "133".to_owned(),
            inbound_ports: String::new(),
            inbound_ports_excluded: String::new(),
            outbound_ports: String::new(),
            outbound_ports_excluded: String::new(),
            outbound_ranges: String::new(),
            outbound_ranges_excluded: String::new(),
            owner_groups: "*".to_owned(),
            owner_groups_excluded: String::new(),
            virtual_interfaces: String::new(),
            excluded_interfaces: String::new(),
            drop_invalid: false,
            dns: DnsCapture::Off,
            ipv6: false,
            loopback_range: "127.0.0.1/32".to_owned(),
        }
    }
}

impl Capture {
    /// Validates the settings.
    ///
    /// # Errors
    /// At the first invalid setting.
    pub fn check(&self) -> Result<(), CaptureError> {
        let groups = list(&self.owner_groups).count();
        if self.owner_groups != "*" && groups > MAX_INCLUDED_GROUPS {
            return Err(CaptureError::TooManyGroups(groups));
        }
        let range = self.loopback_range.parse::<Range>().ok();
        if !range.is_some_and(|range| {
            range.address.is_ipv4() && range.address.is_loopback() && range.length >= 8
        }) {
            return Err(CaptureError::Loopback(self.loopback_range.clone()));
        }
        if self.excluded()?.all {
            return Err(CaptureError::AllExcluded);
        }
        self.included().map(drop)
    }

    /// The outbound destinations that are captured.
    pub(super) fn included(&self) -> Result<Ranges, CaptureError> {
        ranges("outbound ranges", &self.outbound_ranges)
    }

    /// The outbound destinations that are excluded.
    pub(super) fn excluded(&self) -> Result<Ranges, CaptureError> {
        ranges("excluded outbound ranges", &self.outbound_ranges_excluded)
    }

    /// The address families for which rules are generated.
    pub fn families(&self) -> impl Iterator<Item = IpFamily> {
        [IpFamily::V4, IpFamily::V6]
            .into_iter()
            .filter(|family| self.ipv6 || *family == IpFamily::V4)
    }

    /// The range of a family that is the application's own loopback.
    pub(super) fn loopback(&self, family: IpFamily) -> &str {
        match family {
            IpFamily::V4 => &self.loopback_range,
            IpFamily::V6 => "::1/128",
        }
    }
}

/// Parses a setting that contains ranges.
fn ranges(name: &'static str, value: &str) -> Result<Ranges, CaptureError> {
    Ranges::parse(value).ok_or_else(|| CaptureError::Ranges {
        name,
        value: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_rules_are_rejected() {
        assert_eq!(Capture::default().check(), Ok(()));
        let all_excluded = Capture {
            outbound_ranges_excluded: "*".to_owned(),
            ..Capture::default()
        };
        assert_eq!(all_excluded.check(), Err(CaptureError::AllExcluded));

        for range in ["10.0.0.0/8", "127.0.0.0/7", "::1/128", "127.0.0.1"] {
            let capture = Capture {
                loopback_range: range.to_owned(),
                ..Capture::default()
            };
            assert_eq!(
                capture.check(),
                Err(CaptureError::Loopback(range.to_owned()))
            );
        }

        let groups = (0..65)
            .map(|group| group.to_string())
            .collect::<Vec<_>>()
            .join(",");
        let capture = Capture {
            owner_groups: groups,
            ..Capture::default()
        };
        assert_eq!(capture.check(), Err(CaptureError::TooManyGroups(65)));
    }
}

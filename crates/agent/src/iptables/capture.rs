//! What is to be captured and where it goes: all that the rules depend on.

use std::net::IpAddr;

use super::families::Family;
use super::ranges::{Range, Ranges, list};

/// The most groups whose traffic alone is captured: they all stand in one rule, and kernels limit a rule's matches.
const MAX_INCLUDED_GROUPS: usize = 64;

/// How inbound connections come to Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By rewriting their destination.
    #[default]
    Redirect,
    /// By marking and routing them, which keeps source and destination.
    Tproxy,
}

/// Settings of the capture. Lists are as written, with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Envoy's port for outbound connections.
    pub proxy_port: String,
    /// Envoy's port for inbound connections.
    pub inbound_port: String,
    /// The port of HBONE tunnels, which is never captured.
    pub tunnel_port: String,
    /// Users whose traffic is Envoy's own.
    pub proxy_uids: String,
    /// Groups whose traffic is Envoy's own.
    pub proxy_gids: String,
    /// How inbound connections come to Envoy.
    pub mode: Mode,
    /// The mark of packets on their way to Envoy under TPROXY.
    pub tproxy_mark: String,
    /// The routing table for packets with that mark.
    pub tproxy_table: String,
    /// Inbound ports to capture: `*`, a list, or none.
    pub inbound_ports: String,
    /// Inbound ports to leave alone where all are captured.
    pub inbound_ports_excluded: String,
    /// Outbound ports to capture in any case.
    pub outbound_ports: String,
    /// Outbound ports to leave alone.
    pub outbound_ports_excluded: String,
    /// Outbound destinations to capture: `*` or CIDRs.
    pub outbound_ranges: String,
    /// Outbound destinations to leave alone.
    pub outbound_ranges_excluded: String,
    /// Groups whose traffic is captured: `*` or a list.
    pub owner_groups: String,
    /// Groups whose traffic is left alone where that of all groups is captured.
    pub owner_groups_excluded: String,
    /// Interfaces of virtual machines, whose inbound traffic counts as outbound.
    pub virtual_interfaces: String,
    /// Interfaces that are left alone.
    pub excluded_interfaces: String,
    /// Whether packets that belong to no connection are dropped.
    pub drop_invalid: bool,
    /// Which DNS queries go to the agent.
    pub dns: DnsCapture,
    /// Whether there are rules for IPv6 too.
    pub ipv6: bool,
    /// The addresses of IPv4 that are the application's own loopback.
    pub loopback_range: String,
}

/// Which DNS queries are sent to the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DnsCapture {
    /// None.
    #[default]
    Off,
    /// All.
    All,
    /// Those to these servers.
    Servers(Vec<IpAddr>),
}

/// What makes settings of the capture unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// Too many groups for one rule.
    #[error("{0} owner groups exceed the maximum of {MAX_INCLUDED_GROUPS} per rule")]
    TooManyGroups(usize),
    /// A range that is none.
    #[error("{name}: {value:?} is neither `*` nor a list of CIDRs")]
    Ranges {
        /// What it is for.
        name: &'static str,
        /// What was given.
        value: String,
    },
    /// Everything is left alone.
    #[error("`*` is not allowed in excluded outbound CIDRs: leave the included CIDRs empty instead")]
    AllExcluded,
    /// No range of loopback addresses.
    #[error("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR={0:?} is not a CIDR within 127.0.0.0/8")]
    Loopback(String),
    /// No such variant of the tools.
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
    /// Checks what rules could not be made of.
    ///
    /// # Errors
    /// At the first setting that is wrong.
    pub fn check(&self) -> Result<(), CaptureError> {
        let groups = list(&self.owner_groups).count();
        if self.owner_groups != "*" && groups > MAX_INCLUDED_GROUPS {
            return Err(CaptureError::TooManyGroups(groups));
        }
        let range = self.loopback_range.parse::<Range>().ok();
        if !range.is_some_and(|range| range.address.is_ipv4() && range.address.is_loopback() && range.length >= 8) {
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

    /// The outbound destinations that are left alone.
    pub(super) fn excluded(&self) -> Result<Ranges, CaptureError> {
        ranges("excluded outbound ranges", &self.outbound_ranges_excluded)
    }

    /// The families that there are rules for.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        [Family::V4, Family::V6].into_iter().filter(|family| self.ipv6 || *family == Family::V4)
    }

    /// The addresses of a family that are the application's own loopback.
    pub(super) fn loopback(&self, family: Family) -> &str {
        match family {
            Family::V4 => &self.loopback_range,
            Family::V6 => "::1/128",
        }
    }
}

/// Reads a setting that holds ranges.
fn ranges(name: &'static str, value: &str) -> Result<Ranges, CaptureError> {
    Ranges::parse(value).ok_or_else(|| CaptureError::Ranges { name, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_rules_are_refused() {
        assert_eq!(Capture::default().check(), Ok(()));
        let all_excluded = Capture { outbound_ranges_excluded: "*".to_owned(), ..Capture::default() };
        assert_eq!(all_excluded.check(), Err(CaptureError::AllExcluded));
        for range in ["10.0.0.0/8", "127.0.0.0/7", "::1/128", "127.0.0.1"] {
            let capture = Capture { loopback_range: range.to_owned(), ..Capture::default() };
            assert_eq!(capture.check(), Err(CaptureError::Loopback(range.to_owned())));
        }
        let groups = (0..65).map(|group| group.to_string()).collect::<Vec<_>>().join(",");
        let capture = Capture { owner_groups: groups, ..Capture::default() };
        assert_eq!(capture.check(), Err(CaptureError::TooManyGroups(65)));
    }
}

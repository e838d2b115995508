//! Cluster names: the keys by which clusters, endpoints and routes find each other.

use std::fmt;

use navarch_api::names::{Hostname, ResourceName};

/// Catches traffic that must go nowhere.
pub const BLACK_HOLE: &str = "BlackHoleCluster";
/// Sends traffic where the client wanted it to go.
pub const PASSTHROUGH: &str = "PassthroughCluster";
/// As [`PASSTHROUGH`], for traffic that comes in.
pub const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";
/// Sends traffic to the host that a request names, whatever it is.
pub const ALLOW_ANY_DYNAMIC_DNS: &str = "AllowAnyDynamicDNSCluster";
/// The endpoints of the proxy's own workload, which its bootstrap declares for zone-aware balancing.
pub const SELF_DISCOVERY: &str = "local_cluster";

/// What stands between the parts of a name by which gateways route, which must be good as an SNI.
const SNI_SEPARATOR: &str = "_.";

/// An outbound cluster's name, taken apart: `outbound|<port>|<subset>|<host>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboundCluster {
    /// The service port.
    pub port: u16,
    /// The subset, empty for the whole service.
    pub subset: String,
    /// The service's host.
    pub host: Hostname,
}

/// The name of any cluster, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterName {
    /// A port of a service, or of a subset of one.
    Outbound(OutboundCluster),
    /// The same for a gateway that passes mutual TLS on by SNI, which is this name.
    SniRouted(OutboundCluster),
    /// A port of the workload.
    Inbound(u16),
    /// [`BLACK_HOLE`].
    BlackHole,
    /// [`PASSTHROUGH`].
    Passthrough,
    /// [`INBOUND_PASSTHROUGH`].
    InboundPassthrough,
    /// [`ALLOW_ANY_DYNAMIC_DNS`].
    AllowAnyDynamicDns,
    /// The server of credentials on a socket of the proxy's pod.
    ExternalSds,
}

impl OutboundCluster {
    /// From its parts.
    #[must_use]
    pub fn new(port: u16, subset: &str, host: &Hostname) -> Self {
        Self { port, subset: subset.to_owned(), host: host.clone() }
    }

    /// Takes `outbound|<port>|<subset>|<host>` apart.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::parse_rest(name.strip_prefix("outbound|")?, "|")
    }

    /// Takes `<port>|<subset>|<host>` apart.
    fn parse_rest(rest: &str, separator: &str) -> Option<Self> {
        let (port, rest) = rest.split_once(separator)?;
        let (subset, host) = rest.split_once(separator)?;
        Some(Self { port: port.parse().ok()?, subset: subset.to_owned(), host: Hostname::new(host) })
    }

    /// As a resource name.
    #[must_use]
    pub fn resource_name(&self) -> ResourceName {
        ResourceName::new(self.to_string())
    }

    /// The form that gateways route by, which is also the SNI that clients send: `outbound_.<port>_.<subset>_.<host>`.
    #[must_use]
    pub fn sni(&self) -> String {
        let Self { port, subset, host } = self;
        format!("outbound{SNI_SEPARATOR}{port}{SNI_SEPARATOR}{subset}{SNI_SEPARATOR}{host}")
    }
}

impl ClusterName {
    /// Takes a cluster's name apart; `None` for names that nothing here gives.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            BLACK_HOLE => return Some(Self::BlackHole),
            PASSTHROUGH => return Some(Self::Passthrough),
            INBOUND_PASSTHROUGH => return Some(Self::InboundPassthrough),
            ALLOW_ANY_DYNAMIC_DNS => return Some(Self::AllowAnyDynamicDns),
            super::sds::EXTERNAL_CLUSTER => return Some(Self::ExternalSds),
            _ => {}
        }
        if let Some(rest) = name.strip_prefix("inbound|") {
            return rest.strip_suffix("||")?.parse().ok().map(Self::Inbound);
        }
        if let Some(rest) = name.strip_prefix("outbound_.") {
            return OutboundCluster::parse_rest(rest, SNI_SEPARATOR).map(Self::SniRouted);
        }
        OutboundCluster::parse(name).map(Self::Outbound)
    }
}

impl fmt::Display for OutboundCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outbound|{}|{}|{}", self.port, self.subset, self.host)
    }
}

/// The name of an inbound cluster: `inbound|<port>||`.
#[must_use]
pub fn inbound_cluster(target_port: u16) -> ResourceName {
    ResourceName::new(format!("inbound|{target_port}||"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_as_they_were_put_together() {
        let cluster = OutboundCluster::new(80, "v1", &Hostname::new("reviews.shop.svc.cluster.local"));
        assert_eq!(cluster.to_string(), "outbound|80|v1|reviews.shop.svc.cluster.local");
        assert_eq!(cluster.sni(), "outbound_.80_.v1_.reviews.shop.svc.cluster.local");
        assert_eq!(ClusterName::parse(&cluster.to_string()), Some(ClusterName::Outbound(cluster.clone())));
        assert_eq!(ClusterName::parse(&cluster.sni()), Some(ClusterName::SniRouted(cluster)));
        assert_eq!(ClusterName::parse("inbound|8080||"), Some(ClusterName::Inbound(8080)));
        assert_eq!(ClusterName::parse("outbound|80|v1"), None);
    }
}

//! Cluster names: the keys of clusters, endpoints and routes.

use std::fmt;

use navarch_api::names::{Hostname, ResourceName};

use crate::hbone;

/// The cluster that drops traffic.
pub const BLACK_HOLE: &str = "BlackHoleCluster";
/// The cluster to the original destination.
pub const PASSTHROUGH: &str = "PassthroughCluster";
/// As [`PASSTHROUGH`], for inbound traffic.
pub const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";
/// The cluster to the host that a request names, whatever it is.
pub const ALLOW_ANY_DYNAMIC_DNS: &str = "AllowAnyDynamicDNSCluster";
/// The endpoints of the proxy's own workload, which its bootstrap declares for zone-aware
/// balancing.
pub const SELF_DISCOVERY: &str = "local_cluster";

/// The separator in names of SNI routing, which must be valid as an SNI.
const SNI_SEPARATOR: &str = "_.";

/// A parsed name of an outbound cluster: `outbound|<port>|<subset>|<host>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboundCluster {
    /// The service port.
    pub port: u16,
    /// The subset, empty for the whole service.
    pub subset: String,
    /// The service's host.
    pub host: Hostname,
}

/// A parsed name of a service's cluster at its waypoint:
/// `inbound-vip|<port>|<transport>[/<subset>]|<host>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VipCluster {
    /// The service port.
    pub port: u16,
    /// The transport of the port.
    pub transport: VipTransport,
    /// The subset, empty for the whole service.
    pub subset: String,
    /// The service's host.
    pub host: Hostname,
}

/// The transport of a service port at a waypoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VipTransport {
    /// `http` in names: the waypoint parses requests, so that HTTP routes and policies apply.
    Http,
    /// `tcp` in names: the waypoint forwards bytes.
    Tcp,
}

/// A parsed name of any cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterName {
    /// A port of a service, or of a subset of one.
    Outbound(OutboundCluster),
    /// The same for a gateway that passes mutual TLS through by SNI, which is this name.
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
    /// The SDS server on a socket of the proxy's pod.
    ExternalSds,
    /// A port of a service at its waypoint.
    InboundVip(VipCluster),
    /// One of the clusters with a fixed name that carry HBONE, or lead to an internal listener.
    Tunnel(TunnelCluster),
}

/// The clusters by which a proxy terminates, opens and forwards HBONE tunnels. Their names are
/// Istio's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelCluster {
    /// For traffic from a terminated tunnel.
    Main,
    /// To the listener that originates tunnels.
    Encap,
    /// Opens tunnels to the waypoint in the endpoint's metadata, else to the address of the
    /// endpoint.
    Originate,
    /// To the inner of two tunnels.
    Inner,
    /// To the outer of two tunnels.
    Outer,
    /// Forwards the inner of two tunnels.
    Forward,
}

impl TunnelCluster {
    const ALL: [Self; 6] = [
        Self::Main,
        Self::Encap,
        Self::Originate,
        Self::Inner,
        Self::Outer,
        Self::Forward,
    ];

    /// As in Istio, such as `connect_originate`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => hbone::MAIN,
            Self::Encap => hbone::ENCAP,
            Self::Originate => hbone::ORIGINATE,
            Self::Inner => hbone::INNER,
            Self::Outer => hbone::OUTER,
            Self::Forward => hbone::FORWARD,
        }
    }
}

impl VipTransport {
    /// The text in names.
    fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}

impl VipCluster {
    /// The cluster of a whole service.
    #[must_use]
    pub fn new(port: u16, transport: VipTransport, host: &Hostname) -> Self {
        Self {
            port,
            transport,
            subset: String::new(),
            host: host.clone(),
        }
    }

    /// The same port, transport and host with this subset; an empty text means the whole service.
    #[must_use]
    pub fn with_subset(self, subset: &str) -> Self {
        Self {
            subset: subset.to_owned(),
            ..self
        }
    }

    /// The value in the subset part of the name: `http`, or `http/v1`.
    #[must_use]
    pub fn subset_key(&self) -> String {
        let transport = self.transport.as_str();
        if self.subset.is_empty() {
            transport.to_owned()
        } else {
            format!("{transport}/{}", self.subset)
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (port, rest) = name.strip_prefix("inbound-vip|")?.split_once('|')?;
        let (key, host) = rest.split_once('|')?;
        let (transport, subset) = key.split_once('/').unwrap_or((key, ""));
        let transport = match transport {
            "http" => VipTransport::Http,
            "tcp" => VipTransport::Tcp,
            _ => return None,
        };
        Some(Self {
            port: port.parse().ok()?,
            transport,
            subset: subset.to_owned(),
            host: Hostname::new(host),
        })
    }

    /// The text form, by which Envoy requests the cluster:
    /// `inbound-vip|80|http|web.shop.svc.cluster.local`.
    #[must_use]
    pub fn resource_name(&self) -> ResourceName {
        ResourceName::new(self.to_string())
    }
}

impl fmt::Display for VipCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inbound-vip|{}|{}|{}",
            self.port,
            self.subset_key(),
            self.host
        )
    }
}

impl OutboundCluster {
    /// A name from its parts.
    #[must_use]
    pub fn new(port: u16, subset: &str, host: &Hostname) -> Self {
        Self {
            port,
            subset: subset.to_owned(),
            host: host.clone(),
        }
    }

    /// Parses `outbound|<port>|<subset>|<host>`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::parse_rest(name.strip_prefix("outbound|")?, "|")
    }

    /// Parses `<port>|<subset>|<host>`.
    fn parse_rest(rest: &str, separator: &str) -> Option<Self> {
        let (port, rest) = rest.split_once(separator)?;
        let (subset, host) = rest.split_once(separator)?;
        Some(Self {
            port: port.parse().ok()?,
            subset: subset.to_owned(),
            host: Hostname::new(host),
        })
    }

    /// The text form, by which Envoy requests cluster and endpoints:
    /// `outbound|80|v1|web.shop.svc.cluster.local`.
    #[must_use]
    pub fn resource_name(&self) -> ResourceName {
        ResourceName::new(self.to_string())
    }

    /// The form for SNI routing of gateways, which clients send as SNI:
    /// `outbound_.<port>_.<subset>_.<host>`.
    #[must_use]
    pub fn sni(&self) -> String {
        let Self { port, subset, host } = self;
        format!("outbound{SNI_SEPARATOR}{port}{SNI_SEPARATOR}{subset}{SNI_SEPARATOR}{host}")
    }
}

impl ClusterName {
    /// Parses a cluster name; `None` for names that are not generated here.
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

        if let Some(tunnel) = TunnelCluster::ALL
            .into_iter()
            .find(|tunnel| tunnel.name() == name)
        {
            return Some(Self::Tunnel(tunnel));
        }
        VipCluster::parse(name)
            .map(Self::InboundVip)
            .or_else(|| OutboundCluster::parse(name).map(Self::Outbound))
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
    fn cluster_names_round_trip() {
        let cluster =
            OutboundCluster::new(80, "v1", &Hostname::new("reviews.shop.svc.cluster.local"));
        assert_eq!(
            cluster.to_string(),
            "outbound|80|v1|reviews.shop.svc.cluster.local"
        );
        assert_eq!(
            cluster.sni(),
            "outbound_.80_.v1_.reviews.shop.svc.cluster.local"
        );

        assert_eq!(
            ClusterName::parse(&cluster.to_string()),
            Some(ClusterName::Outbound(cluster.clone()))
        );
        assert_eq!(
            ClusterName::parse(&cluster.sni()),
            Some(ClusterName::SniRouted(cluster))
        );

        assert_eq!(
            ClusterName::parse("inbound|8080||"),
            Some(ClusterName::Inbound(8080))
        );
        assert_eq!(ClusterName::parse("outbound|80|v1"), None);
        let vip = VipCluster::new(80, VipTransport::Tcp, &Hostname::new("reviews.example"))
            .with_subset("v1");
        assert_eq!(vip.to_string(), "inbound-vip|80|tcp/v1|reviews.example");

        assert_eq!(
            ClusterName::parse(&vip.to_string()),
            Some(ClusterName::InboundVip(vip))
        );
        assert_eq!(
            ClusterName::parse("encap"),
            Some(ClusterName::Tunnel(TunnelCluster::Encap))
        );
    }
}

//! Cluster names: the keys by which clusters, endpoints and routes find each other.

use std::fmt;

use crate::api::names::{Hostname, ResourceName};

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

impl OutboundCluster {
    /// From its parts.
    #[must_use]
    pub fn new(port: u16, subset: &str, host: &Hostname) -> Self {
        Self { port, subset: subset.to_owned(), host: host.clone() }
    }

    /// Takes `outbound|<port>|<subset>|<host>` apart.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(4, '|');
        let ("outbound", port, subset, host) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?) else {
            return None;
        };
        Some(Self { port: port.parse().ok()?, subset: subset.to_owned(), host: Hostname::new(host) })
    }

    /// As a resource name.
    #[must_use]
    pub fn resource_name(&self) -> ResourceName {
        ResourceName::new(self.to_string())
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

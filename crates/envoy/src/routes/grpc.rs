//! The route configurations of gRPC applications: `outbound|<port>||<host>`, with the virtual hosts
//! of one host.
//!
//! gRPC requests a configuration for each listener, and uses the virtual host for the dialed name.
//! Agrees with `buildHTTPRoute` of Istio's `pilot/pkg/networking/grpcgen`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use prost::Message;

use super::context::RouteClient;
use super::domains::with_port;
use super::duplicate_domains::{DomainsOf, lost_domains};
use super::port_services::OutboundPort;
use super::sidecar::outbound_port;
use super::virtual_host::{DomainChoice, VirtualHostBytes};
use super::virtual_host_set::{PlannedVirtualHost, VirtualHostSet};
use crate::names::OutboundCluster;
use navarch_api::hostname;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The route configuration of this name; `None` if no listener references it.
pub(crate) fn for_grpc(view: &View<'_>, name: &str) -> Option<Bytes> {
    let OutboundCluster { port, host, .. } = OutboundCluster::parse(name)?;
    if port == 0 || host.is_empty() || host.as_str().contains('|') {
        return None;
    }

    let head = RouteConfiguration {
        name: name.to_owned(),
        ..RouteConfiguration::default()
    };
    let mut bytes = BytesMut::from(&*head.encode_to_vec());

    // An empty route configuration ends the client's wait for a host without routes.
    if let Some(at) = outbound_port(view, port, name, RouteClient::Grpc) {
        let host = host.as_str().to_ascii_lowercase();
        for (virtual_host, lost) in view.get(&HostsFor { at, host, port }).iter() {
            let virtual_host = virtual_host.clone();
            let domains = DomainChoice::Without(lost.clone());
            bytes.extend_from_slice(&view.get(&VirtualHostBytes {
                at,
                virtual_host,
                domains,
            }));
        }
    }

    Some(bytes.freeze())
}

/// The virtual hosts of a port that accept requests for a host, each with its lost domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HostsFor {
    /// The port and listener.
    at: OutboundPort,
    /// The host, in lower case.
    host: String,
    port: u16,
}

/// The indexes of the virtual hosts of a port, by their wanted domains. One table for all hosts, so
/// that a client of many hosts does not search all virtual hosts for each of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DomainTable {
    /// The port and listener.
    at: OutboundPort,
}

/// The value of [`DomainTable`]: indexes of virtual hosts.
#[derive(Debug, Default, PartialEq)]
struct Places {
    /// By domain in lower case, without wildcards.
    exact: BTreeMap<String, Vec<usize>>,
    /// Virtual hosts with a wildcard among their domains.
    wildcards: Vec<usize>,
}

impl Query for DomainTable {
    type Value = Arc<Places>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut table = Places::default();

        for (place, virtual_host) in view
            .get(&VirtualHostSet { at: self.at })
            .virtual_hosts
            .iter()
            .enumerate()
        {
            let wanted = view.get(&DomainsOf {
                at: self.at,
                virtual_host: virtual_host.clone(),
            });
            for domain in wanted.iter() {
                let places = match hostname::is_wildcard(&domain.text) {
                    true => &mut table.wildcards,
                    false => table
                        .exact
                        .entry(domain.text.to_ascii_lowercase())
                        .or_default(),
                };

                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        }

        Arc::new(table)
    }
}

impl Query for HostsFor {
    type Value = Vec<(PlannedVirtualHost, Vec<String>)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let table = view.get(&DomainTable { at: self.at });
        let virtual_hosts = view.get(&VirtualHostSet { at: self.at });
        let named = self
            .names()
            .into_iter()
            .filter_map(|name| table.exact.get(&name))
            .flatten();
        let mut places: Vec<usize> = named.chain(&table.wildcards).copied().collect();
        places.sort_unstable();

        places.dedup();
        let found = places
            .into_iter()
            .filter_map(|place| virtual_hosts.virtual_hosts.get(place))
            .filter_map(|virtual_host| {
                let lost = lost_domains(view, self.at, &virtual_host.name);
                let wanted = view.get(&DomainsOf {
                    at: self.at,
                    virtual_host: virtual_host.clone(),
                });
                let mut kept = wanted
                    .iter()
                    .filter(|domain| lost.binary_search(&domain.text).is_err());
                let takes =
                    kept.any(|domain| domain.is_known(view) && self.matches_domain(&domain.text));
                takes.then(|| (virtual_host.clone(), lost))
            });

        found.collect()
    }
}

impl HostsFor {
    /// The domains that equal the host, with and without its port.
    fn names(&self) -> [String; 2] {
        let with_port = with_port(&self.host, self.port);
        let bare = with_port
            .rsplit_once(':')
            .map_or("", |(host, _)| host)
            .to_owned();
        [bare, with_port]
    }

    /// Whether a domain matches the host: the same host, or a wildcard that covers it, with its
    /// port or without a port.
    fn matches_domain(&self, domain: &str) -> bool {
        let domain = domain.to_ascii_lowercase();
        if self.names().contains(&domain) {
            return true;
        }
        let (host, port) = match domain.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            Some(_) | None => (&*domain, None),
        };
        let is_on_port = port.is_none_or(|port| port == self.port.to_string());
        hostname::is_wildcard(host) && is_on_port && hostname::matches(host, &self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_the_host_or_a_wildcard_over_it() {
        let at = OutboundPort {
            listener: 0,
            port: 80,
            client: RouteClient::Grpc,
        };

        let host = |host: &str| HostsFor {
            at,
            host: host.to_owned(),
            port: 80,
        };

        for (domain, expected) in [
            ("a.example", true),
            ("A.example:80", true),
            ("a.example:81", false),
            ("b.example", false),
            ("*.example", true),
            ("*.example:80", true),
            ("*.example:81", false),
            ("*.a.example", false),
            ("*", true),
        ] {
            assert_eq!(
                host("a.example").matches_domain(domain),
                expected,
                "{domain}"
            );
        }

        assert!(
            host("fd00::1").matches_domain("[fd00::1]")
                && host("fd00::1").matches_domain("[fd00::1]:80")
        );
        assert!(host("*.example").matches_domain("*.example"));
    }
}

//! The route configurations of a sidecar's outbound listeners, concatenated from the bytes of their
//! virtual hosts.

use bytes::{Bytes, BytesMut};
use navarch_proto::envoy::config::route::v3::{RouteConfiguration, Vhds};
use prost::Message;

use super::context::RouteClient;
use super::default_route;
use super::domains::with_port;
use super::duplicate_domains::{DomainsOf, lost_domains};
use super::groups::sorted_hosts;
use super::port_services::OutboundPort;
use super::settings::RouteHeaders;
use super::virtual_host::{DomainChoice, VirtualHostBytes, as_field};
use super::virtual_host_set::{PlannedVirtualHost, VirtualHostSet};
use crate::sidecar_scope;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// Maximum body size of a direct response: the limit of validation, instead of Envoy's default of 4
/// KiB.
const MAX_DIRECT_RESPONSE: u32 = 1024 * 1024;

/// The parsed name of an outbound route configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RouteName {
    /// `<port>`: all hosts on a port.
    Port(u16),
    /// `<host>:<port>`: one host, on a listener of its own.
    HostPort(String, u16),
    /// `http_proxy` or a Unix socket: all hosts on all ports.
    Proxy,
}

impl RouteName {
    /// Parses a name; `None` for names that no outbound listener has.
    fn parse(name: &str) -> Option<Self> {
        if name == "http_proxy" || name.starts_with("unix://") {
            return Some(Self::Proxy);
        }
        match name.rsplit_once(':') {
            None => name.parse().ok().map(Self::Port),
            Some((host, port)) => {
                let host = host
                    .strip_prefix('[')
                    .and_then(|host| host.strip_suffix(']'))
                    .unwrap_or(host);
                port.parse()
                    .ok()
                    .map(|port| Self::HostPort(host.to_owned(), port))
            }
        }
    }
}

/// Whether an outbound listener can reference a route configuration of this name.
pub(super) fn is_name(name: &str) -> bool {
    RouteName::parse(name).is_some()
}

/// The bytes of the route configuration of this name. Empty if no listener can reference it, as
/// Envoy waits for a response.
pub(super) fn configuration(view: &View<'_>, name: &str) -> Bytes {
    let unknown = || RouteConfiguration {
        name: name.to_owned(),
        validate_clusters: Some(false),
        ..RouteConfiguration::default()
    };
    let Some(parsed) = RouteName::parse(name) else {
        return unknown().encode_to_vec().into();
    };

    let port = match &parsed {
        RouteName::Port(port) | RouteName::HostPort(_, port) => *port,
        RouteName::Proxy => 0,
    };
    let Some(at) = outbound_port(view, port, name, RouteClient::Envoy) else {
        return unknown().encode_to_vec().into();
    };

    let mut hosts = match &parsed {
        RouteName::HostPort(host, _) => sniffed_hosts(view, at, host),
        RouteName::Port(_) | RouteName::Proxy => sorted_hosts(view, at),
    };

    if !matches!(parsed, RouteName::HostPort(..)) {
        let catch_all = default_route::catch_all(
            &sidecar_scope::outbound_policy(view),
            *view.derived(&RouteHeaders),
        );
        hosts.push(as_field(&catch_all));
    }

    assemble(name, &hosts, None)
}

/// The port whose virtual hosts a route configuration contains; `None` for one with a single host
/// or none.
pub(super) fn port_of_table(view: &View<'_>, name: &str) -> Option<OutboundPort> {
    match RouteName::parse(name)? {
        RouteName::Port(port) => outbound_port(view, port, name, RouteClient::Envoy),
        RouteName::Proxy => outbound_port(view, 0, name, RouteClient::Envoy),
        RouteName::HostPort(..) => None,
    }
}

/// The port of the listener with the route configuration `http_proxy`: that of the proxy's metadata,
/// else the mesh's (`proxyHttpPort`). `None` if it is 0, which disables it.
pub(crate) fn http_proxy_port(view: &View<'_>) -> Option<u16> {
    let own = view
        .proxy()
        .meta("HTTP_PROXY_PORT")
        .and_then(|port| port.parse::<i32>().ok());
    let port = own.unwrap_or(view.mesh().config.proxy_http_port);
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// The egress listener of a route configuration, and the port of its services.
pub(super) fn outbound_port(
    view: &View<'_>,
    port: u16,
    name: &str,
    client: RouteClient,
) -> Option<OutboundPort> {
    let listener = sidecar_scope::egress_listener_for(view, port, name)?;
    let listeners = sidecar_scope::egress_listeners(view);
    let declared = listeners.get(listener)?.port.as_ref();
    let is_proxy =
        declared.is_some_and(|port| Protocol::parse(&port.protocol) == Protocol::HttpProxy);
    Some(OutboundPort {
        listener,
        port: if is_proxy { 0 } else { port },
        client,
    })
}

/// Encodes the fields of a route configuration in the order of their numbers, with virtual hosts
/// that are already encoded; `vhds` is the source of others.
pub(super) fn assemble(name: &str, hosts: &[Bytes], vhds: Option<Vhds>) -> Bytes {
    let head = RouteConfiguration {
        name: name.to_owned(),
        ..RouteConfiguration::default()
    };
    let tail = RouteConfiguration {
        validate_clusters: Some(false),
        vhds,
        max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE),
        ignore_port_in_host_matching: true,
        ..RouteConfiguration::default()
    };

    let length =
        head.encoded_len() + tail.encoded_len() + hosts.iter().map(Bytes::len).sum::<usize>();
    let mut bytes = BytesMut::with_capacity(length);
    head.encode_raw(&mut bytes);
    hosts.iter().for_each(|host| bytes.extend_from_slice(host));
    tail.encode_raw(&mut bytes);

    bytes.freeze()
}

/// The virtual hosts with this host among their domains, each with its choice of domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SniffedHosts {
    /// The port and listener.
    at: OutboundPort,
    host: String,
}

impl Query for SniffedHosts {
    type Value = Vec<(PlannedVirtualHost, DomainChoice)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let table = view.get(&VirtualHostSet { at: self.at });
        let lost_by =
            |virtual_host: &PlannedVirtualHost| lost_domains(view, self.at, &virtual_host.name);

        // A virtual host always wants its own name. Others are searched only if it lost that to
        // another one.
        let named = table.find(&with_port(&self.host, self.at.port));
        if let Some(virtual_host) =
            named.filter(|virtual_host| !lost_by(virtual_host).contains(&self.host))
        {
            return vec![(virtual_host.clone(), DomainChoice::Any)];
        }

        let has = |virtual_host: &&PlannedVirtualHost| {
            let wanted = view.get(&DomainsOf {
                at: self.at,
                virtual_host: (*virtual_host).clone(),
            });
            let mut known = wanted
                .iter()
                .filter(|domain| domain.text == self.host && domain.is_known(view));
            known.next().is_some() && !lost_by(virtual_host).contains(&self.host)
        };

        let mut found: Vec<&PlannedVirtualHost> = table.virtual_hosts.iter().filter(has).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));

        match found.as_slice() {
            [only] => vec![((*only).clone(), DomainChoice::Any)],
            several => several
                .iter()
                .map(|virtual_host| {
                    (
                        (*virtual_host).clone(),
                        DomainChoice::Without(lost_by(virtual_host)),
                    )
                })
                .collect(),
        }
    }
}

/// The virtual host of one host, or those that have its name as a domain.
fn sniffed_hosts(view: &View<'_>, at: OutboundPort, host: &str) -> Vec<Bytes> {
    let found = view.get(&SniffedHosts {
        at,
        host: host.to_owned(),
    });
    let bytes = |(virtual_host, domains): &(PlannedVirtualHost, DomainChoice)| {
        (*view.get(&VirtualHostBytes {
            at,
            virtual_host: virtual_host.clone(),
            domains: domains.clone(),
        }))
        .clone()
    };
    found.iter().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::route::v3::VirtualHost;

    use super::*;

    #[test]
    fn names_are_ports_hosts_with_ports_or_proxies() {
        assert_eq!(RouteName::parse("9080"), Some(RouteName::Port(9080)));
        assert_eq!(
            RouteName::parse("a.example:9080"),
            Some(RouteName::HostPort("a.example".into(), 9080))
        );
        assert_eq!(
            RouteName::parse("[fd00::1]:80"),
            Some(RouteName::HostPort("fd00::1".into(), 80))
        );
        assert_eq!(RouteName::parse("http_proxy"), Some(RouteName::Proxy));
        assert_eq!(
            RouteName::parse("unix:///run/socket"),
            Some(RouteName::Proxy)
        );
        assert_eq!(RouteName::parse("http.9080"), None);
    }

    #[test]
    fn encoded_pieces_equal_the_encoded_message() {
        let host = |name: &str| VirtualHost {
            name: name.to_owned(),
            ..VirtualHost::default()
        };
        let whole = RouteConfiguration {
            name: "9080".to_owned(),
            virtual_hosts: vec![host("a"), host("b")],
            validate_clusters: Some(false),
            max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE),
            ignore_port_in_host_matching: true,
            ..RouteConfiguration::default()
        };
        let pieces = [as_field(&host("a")), as_field(&host("b"))];
        assert_eq!(
            assemble("9080", &pieces, None),
            Bytes::from(whole.encode_to_vec())
        );
    }
}

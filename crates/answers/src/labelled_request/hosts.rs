//! The hosts that a change affects, for sidecars.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use navarch_push::resource::ResourceType;
use prost::Message;

use super::super::difference::{Pair, distinct};
use super::super::wording::service_of;
use super::ProxyInput;

impl ProxyInput<'_> {
    /// Affected hosts and ports.
    pub(super) fn touched_hosts(&self) -> BTreeSet<(String, u16)> {
        let mut hosts = BTreeSet::new();

        for (resource_type, step) in self.steps {
            for (name, pair) in &step.resources {
                match resource_type {
                    ResourceType::Cluster | ResourceType::Endpoint => {
                        let service = service_of(name.as_str());
                        hosts.extend(service.map(|(port, _, host)| (host.to_owned(), port)));
                    }
                    ResourceType::Route => {
                        for host in differing_hosts(pair) {
                            let port = name
                                .as_str()
                                .rsplit(':')
                                .next()
                                .and_then(|port| port.parse().ok());
                            hosts.extend(host_and_port(&host, port));
                        }
                    }
                    ResourceType::VirtualHost => {
                        let (routes, host) = name.as_str().split_once('/').unwrap_or_default();
                        let port = routes.rsplit(':').next().and_then(|port| port.parse().ok());
                        let host = VirtualHost {
                            name: host.to_owned(),
                            ..VirtualHost::default()
                        };
                        hosts.extend(host_and_port(&host, port));
                    }
                    ResourceType::Listener => hosts.extend(self.service_at(name.as_str())),
                    ResourceType::Secret
                    | ResourceType::ExtensionConfig
                    | ResourceType::NameTable
                    | ResourceType::ProxyConfig
                    | ResourceType::Bootstrap
                    | ResourceType::Locality
                    | ResourceType::ObjectStatus
                    | ResourceType::Address
                    | ResourceType::Workload
                    | ResourceType::Authorization
                    | ResourceType::Object(_) => {}
                }
            }
        }

        hosts
    }

    /// The service whose address and port are the name of a listener.
    fn service_at(&self, listener: &str) -> Option<(String, u16)> {
        let (address, port) = listener.rsplit_once('_')?;
        let ip: IpAddr = address
            .parse()
            .ok()
            .filter(|ip: &IpAddr| !ip.is_unspecified())?;
        let text = ip.to_string();
        let services = self
            .contexts
            .iter()
            .flat_map(|context| context.directory.services.values());
        let mut services = services.flat_map(|all| all.iter());
        let found = services.find(|service| *service.default_address == *text)?;
        Some((found.key.hostname.to_string(), port.parse().ok()?))
    }
}

/// The virtual hosts that differ between two route configurations.
pub(super) fn differing_hosts(pair: &Pair) -> Vec<VirtualHost> {
    let bodies = distinct(ResourceType::Route, pair);
    let [before, after] = bodies.map(|body| {
        RouteConfiguration::decode(body)
            .unwrap_or_default()
            .virtual_hosts
    });
    let by_name: BTreeMap<String, VirtualHost> = before
        .into_iter()
        .map(|host| (host.name.clone(), host))
        .collect();
    let mut gone = by_name.clone();
    let mut differing = Vec::new();

    for host in after {
        gone.remove(&host.name);
        if by_name.get(&host.name) != Some(&host) {
            differing.push(host);
        }
    }

    differing.extend(gone.into_values());
    differing
}

/// Host and port from the name of a sidecar's virtual host, such as
/// `reviews.shop.svc.cluster.local:9080`.
fn host_and_port(host: &VirtualHost, port: Option<u16>) -> Option<(String, u16)> {
    let (name, own) = match host.name.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (host.name.as_str(), None),
    };
    let port = own.or(port)?;
    // `allow_any` and `block_all` are for unknown hosts.
    (name.contains('.') && !name.contains('*')).then(|| (name.to_owned(), port))
}

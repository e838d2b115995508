//! Requests at a waypoint, for its affected services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use navarch_proto::envoy::config::listener::v3::FilterChain;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use navarch_push::context::PushContext;
use navarch_push::resource::ResourceType;
use navarch_walk::{Connection, Entry, Resources};

use super::super::client::Client;
use super::super::plan::workload_of;
use super::super::received::{chains, manager_of};
use super::super::route_example::{Example, examples};
use super::super::wording::service_of;
use super::{LabelledRequest, MAX_HOSTS, ProxyInput};

impl ProxyInput<'_> {
    /// Requests at a waypoint for its services.
    pub(super) fn of_waypoint(&self) -> Vec<LabelledRequest> {
        let mut requests = Vec::new();

        for (host, port) in self.served_hosts().into_iter().take(MAX_HOSTS) {
            let service = self.service(&host);
            let declared = service.and_then(|service| service.port(port));
            let destination = SocketAddr::new(self.address(service), port);
            let at = |request: LabelledRequest| LabelledRequest {
                label: format!(
                    "{} at waypoint {}",
                    request.label,
                    workload_name(self.client, self.contexts)
                ),
                connection: Connection {
                    entry: Entry::Tunnel,
                    ..request.connection
                },
                is_own: false,
                ..request
            };

            if declared.is_some_and(|declared| !declared.protocol.is_http_or_sniffed()) {
                requests.push(at(self.bytes(&host, declared, destination)));
                continue;
            }

            let mut tried: BTreeSet<Example> = BTreeSet::from([Example::default()]);

            for resources in self.resources {
                let routes =
                    served_chains(resources).filter(|(served, _)| *served == (host.as_str(), port));
                let routes = routes.filter_map(|(_, chain)| inline_routes(&manager_of(chain)?));
                tried.extend(
                    routes
                        .flat_map(|routes| routes.virtual_hosts)
                        .flat_map(|host| examples(&host).collect::<Vec<_>>()),
                );
            }

            requests.extend(tried.into_iter().map(|example| {
                let connection = Connection {
                    entry: Entry::Tunnel,
                    destination,
                    source: None,
                    tls: None,
                    http: None,
                };
                at(self.request(&host, port, example, connection))
            }));
        }

        requests
    }

    /// Affected hosts and ports behind a waypoint.
    fn served_hosts(&self) -> BTreeSet<(String, u16)> {
        let mut hosts = BTreeSet::new();

        for resource_type in [ResourceType::Cluster, ResourceType::Endpoint] {
            let names = self
                .steps
                .get(&resource_type)
                .into_iter()
                .flat_map(|step| step.resources.keys());
            let served = names.filter_map(|name| service_of(name.as_str()));
            hosts.extend(served.map(|(port, _, host)| (host.to_owned(), port)));
        }

        if self.steps.contains_key(&ResourceType::Listener) {
            // One listener has the chains of all services: only those that differ are affected.
            let [before, after] = self
                .resources
                .map(|resources| served_chains(resources).collect::<BTreeMap<_, _>>());
            let all: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
            let differing = all
                .into_iter()
                .filter(|served| before.get(served) != after.get(served));
            hosts.extend(differing.map(|(host, port)| (host.to_owned(), port)));
        }

        hosts
    }
}

/// The chains of a waypoint for services, by host and port.
fn served_chains(resources: &Resources) -> impl Iterator<Item = ((&str, u16), &FilterChain)> {
    let chains = resources
        .listeners
        .iter()
        .flat_map(|listener| chains(listener));
    chains.filter_map(|chain| {
        let (port, _, host) = service_of(&chain.name)?;
        Some(((host, port), chain))
    })
}

/// The routes that are part of a connection manager.
fn inline_routes(manager: &HttpConnectionManager) -> Option<RouteConfiguration> {
    match &manager.route_specifier {
        Some(RouteSpecifier::RouteConfig(routes)) => Some(routes.clone()),
        Some(RouteSpecifier::Rds(_) | RouteSpecifier::ScopedRoutes(_)) | None => None,
    }
}

/// The name of a proxy's workload.
fn workload_name(client: &Client, contexts: [&PushContext; 2]) -> String {
    let workload = workload_of(client, contexts[1]);
    workload.rsplit('/').next().unwrap_or_default().to_owned()
}

//! Requests for the affected hosts of a gateway.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use navarch_proto::envoy::config::listener::v3::FilterChain;
use navarch_push::resource::ResourceType;
use navarch_walk::{Connection, Entry, Tls};

use super::super::ingress::is_tls;
use super::super::received::{chains, manager_of, routes_of};
use super::super::route_example::{Example, examples};
use super::hosts::differing_hosts;
use super::{LabelledRequest, MAX_HOSTS, ProxyInput, port_of};

impl ProxyInput<'_> {
    pub(super) fn of_gateway(&self) -> Vec<LabelledRequest> {
        let mut requests = Vec::new();
        let mut hosts: BTreeSet<(String, String)> = BTreeSet::new();

        for (resource_type, step) in self.steps {
            for (name, pair) in &step.resources {
                if *resource_type == ResourceType::Route {
                    let domains = differing_hosts(pair)
                        .into_iter()
                        .flat_map(|host| host.domains);
                    hosts.extend(domains.map(|domain| (name.to_string(), domain)));
                } else if *resource_type == ResourceType::VirtualHost
                    && let Some((routes, host)) = name.as_str().split_once('/')
                {
                    let domain = host.rsplit_once(':').map_or(host, |(domain, _)| domain);
                    hosts.insert((routes.to_owned(), domain.to_owned()));
                }
            }
        }

        let has_clusters = [ResourceType::Cluster, ResourceType::Endpoint]
            .iter()
            .any(|resource_type| self.steps.contains_key(resource_type));

        for resources in self.resources {
            for (listener, chain) in resources
                .listeners
                .iter()
                .flat_map(|one| chains(one).map(move |chain| (one, chain)))
            {
                let Some(port) = port_of(listener) else {
                    continue;
                };
                let Some(manager) = manager_of(chain) else {
                    continue;
                };
                let Some(routes) = routes_of(&manager) else {
                    continue;
                };

                let of_routes: Vec<String> = hosts
                    .iter()
                    .filter(|(of, _)| of == routes)
                    .map(|(_, domain)| domain.clone())
                    .collect();

                // If only clusters or policies change, every host of the gateway may be affected.
                let listeners = self.steps.get(&ResourceType::Listener);
                let is_touched = listeners.is_some_and(|step| {
                    step.resources
                        .keys()
                        .any(|name| name.as_str() == listener.name)
                });

                let all = || {
                    let hosts = resources
                        .routes
                        .get(routes)
                        .into_iter()
                        .flat_map(|routes| routes.domains());
                    hosts
                        .filter_map(|domains| domains.first().cloned())
                        .collect()
                };
                let domains = if of_routes.is_empty() && (has_clusters || is_touched) {
                    all()
                } else {
                    of_routes
                };

                for domain in domains.iter().take(MAX_HOSTS) {
                    requests.extend(self.at_gateway(chain, routes, domain, port));
                }
            }
        }

        let mut seen = BTreeSet::new();
        requests.retain(|request| seen.insert(request.label.clone()));
        requests
    }

    fn at_gateway(
        &self,
        chain: &FilterChain,
        routes: &str,
        domain: &str,
        port: u16,
    ) -> Vec<LabelledRequest> {
        let domain = domain.rsplit_once(':').map_or(domain, |(domain, _)| domain);
        let host = domain.replacen('*', if domain == "*" { "any.example" } else { "any" }, 1);
        let alpn = || vec!["h2".to_owned(), "http/1.1".to_owned()];
        let tls = is_tls(chain).then(|| Tls {
            sni: host.clone(),
            alpn: alpn(),
        });
        let ip = self.client.address();

        let mut tried: BTreeSet<Example> = BTreeSet::from([Example::default()]);

        for resources in self.resources {
            let found = resources
                .routes
                .get(routes)
                .and_then(|routes| routes.with_domain(domain));
            tried.extend(found.into_iter().flat_map(examples));
        }

        let ask = |example| {
            let destination = SocketAddr::new(ip, port);
            let connection = Connection {
                entry: Entry::Direct,
                destination,
                source: None,
                tls: tls.clone(),
                http: None,
            };
            self.request(&host, port, example, connection)
        };

        tried.into_iter().map(ask).collect()
    }
}

//! The virtual hosts of a gateway's route configuration: the hosts of its servers with
//! VirtualServices.
//!
//! Names only: the routes of each host are encoded separately
//! ([`HostBytes`](super::virtual_host::HostBytes)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::domains::with_port;
use super::sources::{RouteSource, Routed};
use crate::gateway::{NamedHosts, PlannedServer, advertises_http3, hosts_of, servers_of_routes};
use navarch_api::hostname::{HostIndex, compare_specificity};
use navarch_api::object::NamespacedName;
use navarch_push::chunked_list::{Chunk, ChunkedList, cut};
use navarch_push::name_parts::{PARTS, part_of};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_tables::hash::KeyedMap;

/// The virtual hosts of a route configuration, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostsOfRoutes {
    /// The route configuration.
    pub(super) name: String,
}

/// The value of [`HostsOfRoutes`].
#[derive(Clone, Debug)]
pub(super) struct HostTable {
    /// By name, cut into chunks.
    pub(super) chunks: ChunkedList<Arc<GatewayHost>>,
    /// The same by parts of names.
    parts: Vec<Arc<Vec<Arc<GatewayHost>>>>,
}

/// The virtual hosts of one part of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HostsIn {
    /// The route configuration.
    routes: String,
    part: u8,
}

/// One virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewayHost {
    /// Its name: the first of its hosts, with the declared port of the server.
    pub(super) name: String,
    pub(super) domains: Vec<String>,
    /// The sources of its routes, in order.
    pub(super) sources: Vec<RouteSource>,
    /// Whether plain HTTP is redirected to HTTPS.
    pub(super) requires_tls: bool,
    /// The first VirtualService with this host; `None` if it only redirects.
    pub(super) owner: Option<NamespacedName>,
}

/// One virtual host of a route configuration, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostNamed {
    /// The route configuration.
    pub(super) routes: String,
    pub(super) name: String,
}

/// Virtual hosts under construction, by host.
struct Hosts<'a> {
    view: &'a View<'a>,
    /// Whether HTTP/3 is advertised.
    advertises_http3: bool,
    /// The virtual hosts so far.
    found: BTreeMap<String, GatewayHost>,
    /// The source of a VirtualService's routes on a gateway: the first server on which it has
    /// routes is used for the others.
    sources: KeyedMap<(Arc<str>, NamespacedName), RouteSource>,
}

/// The VirtualServices of a gateway, found by their hosts: there may be as many servers as
/// VirtualServices.
struct Bound<'a> {
    /// In order of precedence.
    virtual_services: &'a [NamedHosts],
    /// Their hosts, with the index of the VirtualService.
    hosts: HostIndex<'a, usize>,
}

impl Query for HostsOfRoutes {
    type Value = HostTable;

    fn compute(&self, view: &View<'_>) -> HostTable {
        let advertises_http3 = advertises_http3(view, &self.name);
        let mut hosts = Hosts {
            view,
            advertises_http3,
            found: BTreeMap::new(),
            sources: KeyedMap::default(),
        };

        let servers = servers_of_routes(view, &self.name);
        let gateways: BTreeSet<&Arc<str>> =
            servers.iter().map(|server| &server.gateway_name).collect();
        let bound: BTreeMap<&Arc<str>, Arc<Vec<NamedHosts>>> = gateways
            .into_iter()
            .map(|gateway| (gateway, hosts_of(view, gateway)))
            .collect();
        let bound: BTreeMap<&Arc<str>, Bound<'_>> = bound
            .iter()
            .map(|(gateway, virtual_services)| (*gateway, Bound::new(virtual_services)))
            .collect();

        for server in servers.iter() {
            if let Some(bound) = bound.get(&server.gateway_name) {
                hosts.add_server(server, bound);
            }
        }

        let mut hosts: Vec<GatewayHost> = if view.mesh().settings.route_collapse {
            collapse(hosts.found)
        } else {
            hosts.found.into_values().collect()
        };

        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        HostTable::new(hosts)
    }
}

impl HostTable {
    /// A table of these, sorted by name.
    fn new(hosts: Vec<GatewayHost>) -> Self {
        let hosts: Vec<Arc<GatewayHost>> = hosts.into_iter().map(Arc::new).collect();
        let mut parts = vec![Vec::new(); usize::from(PARTS)];
        for host in &hosts {
            if let Some(part) = parts.get_mut(usize::from(part_of(&host.name))) {
                part.push(host.clone());
            }
        }
        Self {
            chunks: cut(hosts),
            parts: parts.into_iter().map(Arc::new).collect(),
        }
    }

    /// All virtual hosts, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<GatewayHost>> {
        self.chunks.iter().flat_map(Chunk::items)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of virtual hosts.
    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.items().len()).sum()
    }
}

impl PartialEq for HostTable {
    fn eq(&self, other: &Self) -> bool {
        // The parts depend only on the chunks.
        self.chunks == other.chunks
    }
}

impl Query for HostsIn {
    type Value = Arc<Vec<Arc<GatewayHost>>>;
    const IS_GATE: bool = true;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let hosts = view.get(&HostsOfRoutes {
            name: self.routes.clone(),
        });
        hosts
            .parts
            .get(usize::from(self.part))
            .cloned()
            .unwrap_or_default()
    }
}

impl Query for HostNamed {
    type Value = Option<Arc<GatewayHost>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let hosts = view.get(&HostsIn {
            routes: self.routes.clone(),
            part: part_of(&self.name),
        });
        let at = hosts
            .binary_search_by(|host| host.name.cmp(&self.name))
            .ok()?;
        hosts.get(at).cloned()
    }
}

impl<'a> Bound<'a> {
    /// The VirtualServices of a gateway.
    fn new(virtual_services: &'a [NamedHosts]) -> Self {
        let places = virtual_services.iter().enumerate();
        let hosts = places
            .flat_map(|(place, (_, hosts))| hosts.iter().map(move |host| (host.as_str(), place)));
        Self {
            hosts: HostIndex::new(hosts),
            virtual_services,
        }
    }

    /// The VirtualServices with hosts of a server, in order, with the narrower one of each pair of
    /// hosts.
    fn claims_on<'b>(
        &self,
        server: &'b PlannedServer,
    ) -> Vec<(&'a NamespacedName, BTreeSet<&'b str>)>
    where
        'a: 'b,
    {
        let mut claims: BTreeMap<usize, BTreeSet<&'b str>> = BTreeMap::new();
        for own in server.hosts() {
            for (host, place) in self.hosts.common(own.host) {
                let name = self.virtual_services.get(place).map(|(name, _)| name);
                if name.is_some_and(|name| own.is_open_to(&name.namespace)) {
                    claims.entry(place).or_default().insert(host);
                }
            }
        }
        let named = claims.into_iter();
        named
            .filter_map(|(place, hosts)| Some((&self.virtual_services.get(place)?.0, hosts)))
            .collect()
    }
}

impl Hosts<'_> {
    fn add_server(&mut self, server: &PlannedServer, bound: &Bound<'_>) {
        let claims = bound.claims_on(server);
        self.find_sources(server, claims.iter().map(|(name, _)| *name));
        for (name, common) in claims {
            let Some(source) = self
                .sources
                .get(&(server.gateway_name.clone(), name.clone()))
                .cloned()
            else {
                continue;
            };
            for host in common {
                self.claim(server, host, source.clone());
            }
        }
        if server.redirects_to_https() {
            self.redirect(server);
        }
    }

    /// Determines which VirtualServices have routes on a server's gateway.
    fn find_sources<'b>(
        &mut self,
        server: &PlannedServer,
        names: impl Iterator<Item = &'b NamespacedName>,
    ) {
        let gateway = &server.gateway_name;
        let unknown = names.filter(|name| {
            !self
                .sources
                .contains_key(&(gateway.clone(), (*name).clone()))
        });

        for chunk in cut(unknown.cloned()) {
            let on = RouteSource {
                virtual_service: NamespacedName::default(),
                gateway: gateway.clone(),
                port: server.port,
                is_tls: server.server.tls.is_some(),
                advertises_http3: self.advertises_http3,
            };

            for name in self
                .view
                .get(&Routed {
                    chunk,
                    on: on.clone(),
                })
                .iter()
            {
                let source = RouteSource {
                    virtual_service: name.clone(),
                    ..on.clone()
                };
                self.sources.insert((gateway.clone(), name.clone()), source);
            }
        }
    }

    /// Adds the routes of a VirtualService to a host.
    fn claim(&mut self, server: &PlannedServer, host: &str, source: RouteSource) {
        let host = host.to_lowercase();
        let owner = source.virtual_service.clone();
        let entry = self.found.entry(host.clone());
        let known = entry.or_insert_with(|| GatewayHost::new(host, server.port, Some(owner)));
        known.sources.push(source);
        known.requires_tls |= server.redirects_to_https();
    }

    /// Makes all hosts of a server redirect to HTTPS, including those without a VirtualService.
    fn redirect(&mut self, server: &PlannedServer) {
        for host in &server.server.hosts {
            let host = host.to_lowercase();
            let entry = self.found.entry(host.clone());
            entry
                .or_insert_with(|| GatewayHost::new(host, server.port, None))
                .requires_tls = true;
        }
    }
}

impl GatewayHost {
    pub(super) fn matches_any_host(&self) -> bool {
        self.domains.iter().any(|domain| domain == "*")
    }

    /// A virtual host without routes.
    fn new(host: String, port: u16, owner: Option<NamespacedName>) -> Self {
        Self {
            name: with_port(&host, port),
            domains: vec![host],
            sources: Vec::new(),
            requires_tls: false,
            owner,
        }
    }
}

/// Merges hosts with the same routes into one virtual host, that of the most specific: each
/// separate one would be sent.
fn collapse(hosts: BTreeMap<String, GatewayHost>) -> Vec<GatewayHost> {
    let mut sorted: Vec<(String, GatewayHost)> = hosts.into_iter().collect();
    sorted.sort_by(|a, b| compare_specificity(&a.0, &b.0));
    let mut merged: Vec<GatewayHost> = Vec::with_capacity(sorted.len());

    // The last virtual host of each list of routes.
    let mut known: BTreeMap<Vec<(Arc<str>, NamespacedName)>, usize> = BTreeMap::new();

    for (_, host) in sorted {
        let sources = host
            .sources
            .iter()
            .map(|source| (source.gateway.clone(), source.virtual_service.clone()));
        let sources: Vec<_> = sources.collect();
        let same = known.get(&sources).and_then(|place| merged.get_mut(*place));
        match same.filter(|same| same.requires_tls == host.requires_tls) {
            Some(same) => same.domains.extend(host.domains),
            None => {
                known.insert(sources, merged.len());
                merged.push(host);
            }
        }
    }

    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with the routes of some VirtualServices.
    fn host(name: &str, sources: &[&str], requires_tls: bool) -> (String, GatewayHost) {
        let sources = sources.iter().map(|source| RouteSource {
            virtual_service: NamespacedName::new("shop", source),
            gateway: Arc::from("edge/front"),
            port: 80,
            is_tls: false,
            advertises_http3: false,
        });
        let host = GatewayHost {
            sources: sources.collect(),
            requires_tls,
            ..GatewayHost::new(name.to_owned(), 80, None)
        };
        (name.to_owned(), host)
    }

    #[test]
    fn hosts_with_the_same_routes_share_a_virtual_host() {
        let hosts = [
            host("b.example", &["one"], false),
            host("*.example", &["one"], false),
            host("a.example", &["one"], false),
            host("c.example", &["one", "two"], false),
            host("d.example", &["one"], true),
        ];

        let collapsed = collapse(hosts.into());
        let shape: Vec<(&str, Vec<&str>)> = collapsed
            .iter()
            .map(|host| {
                (
                    host.name.as_str(),
                    host.domains.iter().map(String::as_str).collect(),
                )
            })
            .collect();

        // The one that redirects comes between: what follows it does not go back to the first.
        assert_eq!(
            shape,
            [
                ("a.example:80", vec!["a.example", "b.example"]),
                ("c.example:80", vec!["c.example"]),
                ("d.example:80", vec!["d.example"]),
                ("*.example:80", vec!["*.example"]),
            ]
        );
    }
}

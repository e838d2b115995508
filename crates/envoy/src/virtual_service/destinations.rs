//! The destination services of a VirtualService.

use std::collections::{BTreeMap, BTreeSet};

use super::merged;
use navarch_api::istio::{Destination, HttpRoute};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The destinations of one VirtualService.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DestinationsOf {
    pub(super) name: NamespacedName,
}

/// The destination hosts of a VirtualService, with their ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    routes: Vec<RouteDestinations>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RouteDestinations {
    /// The client namespaces that it is limited to; empty means all.
    sources: BTreeSet<Namespace>,
    /// Hosts and ports, 0 without a port.
    targets: Vec<(Hostname, u16)>,
}

impl Destinations {
    /// The client namespaces that routes match.
    pub fn source_namespaces(&self) -> impl Iterator<Item = Namespace> {
        self.routes
            .iter()
            .flat_map(|route| route.sources.iter().cloned())
    }

    /// The destinations for clients of a namespace: ports by host, where 0 means all ports. `None`
    /// is a namespace that no route matches.
    #[must_use]
    pub fn from_namespace(
        &self,
        namespace: Option<&Namespace>,
    ) -> BTreeMap<Hostname, BTreeSet<u16>> {
        let serves = |route: &&RouteDestinations| {
            route.sources.is_empty()
                || namespace.is_some_and(|namespace| route.sources.contains(namespace))
        };
        collect(self.routes.iter().filter(serves))
    }

    /// The destinations for any client: ports by host, where 0 means all ports.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Hostname, BTreeSet<u16>> {
        collect(self.routes.iter())
    }
}

/// Groups ports by host.
fn collect<'a>(
    routes: impl Iterator<Item = &'a RouteDestinations>,
) -> BTreeMap<Hostname, BTreeSet<u16>> {
    let mut found: BTreeMap<Hostname, BTreeSet<u16>> = BTreeMap::new();
    for (host, port) in routes.flat_map(|route| &route.targets) {
        found.entry(host.clone()).or_default().insert(*port);
    }
    found
}

impl Query for DestinationsOf {
    type Value = Destinations;

    fn compute(&self, view: &View<'_>) -> Destinations {
        let Some(spec) = merged(view, &self.name) else {
            return Destinations::default();
        };

        let http = spec.http.iter().map(http_destinations);
        let tcp = spec.tcp.iter().map(|route| &route.route);
        let l4 = tcp
            .chain(spec.tls.iter().map(|route| &route.route))
            .map(|targets| RouteDestinations {
                sources: BTreeSet::new(),
                targets: targets
                    .iter()
                    .filter_map(|target| target.destination.as_ref())
                    .map(target)
                    .collect(),
            });

        Destinations {
            routes: http
                .chain(l4)
                .filter(|route| !route.targets.is_empty())
                .collect(),
        }
    }
}

/// The destinations of an HTTP route, including mirrors.
///
/// If any match has a source namespace, the route is limited to the listed namespaces, even if an
/// earlier match has none, as in Istio.
fn http_destinations(route: &HttpRoute) -> RouteDestinations {
    let named = route
        .matches
        .iter()
        .filter(|matches| !matches.source_namespace.is_empty());
    let targets = route
        .route
        .iter()
        .filter_map(|target| target.destination.as_ref());

    let mirrors = route
        .mirrors
        .iter()
        .filter_map(|mirror| mirror.destination.as_ref());
    RouteDestinations {
        sources: named
            .map(|matches| Namespace::new(&matches.source_namespace))
            .collect(),
        targets: targets
            .chain(&route.mirror)
            .chain(mirrors)
            .map(target)
            .collect(),
    }
}

/// Host and port of a destination.
fn target(destination: &Destination) -> (Hostname, u16) {
    let port = destination
        .port
        .as_ref()
        .map_or(0, |port| u16::try_from(port.number).unwrap_or_default());
    (Hostname::new(&destination.host), port)
}

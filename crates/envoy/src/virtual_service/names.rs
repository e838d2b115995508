//! Completes the short names in a VirtualService.

use navarch_api::hostname::resolve_short_name;
use navarch_api::istio::{Destination, MESH_GATEWAY, RouteDestination, VirtualService};
use navarch_api::names::Namespace;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The DNS suffix of Kubernetes services.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Domain;

impl Query for Domain {
    type Value = String;

    fn compute(&self, view: &View<'_>) -> String {
        view.mesh().settings.domain_suffix.clone()
    }
}

/// The context of short names: the object's namespace and the mesh's DNS domain.
pub(super) struct NameContext<'a> {
    /// The object's namespace.
    pub(super) namespace: &'a Namespace,
    /// The DNS suffix of Kubernetes services.
    pub(super) domain: &'a str,
}

impl NameContext<'_> {
    /// Completes every host and gateway name.
    pub(super) fn complete(&self, spec: &mut VirtualService) {
        spec.hosts.iter_mut().for_each(|host| self.host(host));
        self.gateways(&mut spec.gateways);

        for route in &mut spec.http {
            route
                .matches
                .iter_mut()
                .for_each(|matches| self.gateways(&mut matches.gateways));
            let targets = route.route.iter_mut().map(|target| &mut target.destination);
            let mirrors = route
                .mirrors
                .iter_mut()
                .map(|mirror| &mut mirror.destination);
            targets
                .chain(mirrors)
                .chain([&mut route.mirror])
                .for_each(|target| self.destination(target));
        }

        for route in &mut spec.tcp {
            for matches in &mut route.matches {
                self.gateways(&mut matches.gateways);
            }
            self.destinations(&mut route.route);
        }

        for route in &mut spec.tls {
            for matches in &mut route.matches {
                self.gateways(&mut matches.gateways);
            }
            self.destinations(&mut route.route);
        }
    }

    /// Completes the hosts of destinations.
    fn destinations(&self, targets: &mut [RouteDestination]) {
        for target in targets {
            self.destination(&mut target.destination);
        }
    }

    /// Completes a destination's host.
    fn destination(&self, destination: &mut Option<Destination>) {
        if let Some(destination) = destination {
            self.host(&mut destination.host);
        }
    }

    /// Completes one host.
    fn host(&self, host: &mut String) {
        *host = resolve_short_name(host, self.namespace.as_str(), self.domain).into_owned();
    }

    /// Completes the names of gateways to `namespace/name`, except `mesh`.
    fn gateways(&self, gateways: &mut [String]) {
        for gateway in gateways
            .iter_mut()
            .filter(|gateway| *gateway != MESH_GATEWAY)
        {
            *gateway = self.gateway(gateway);
        }
    }

    /// The full name of a gateway: short, `./name`, or the old form `name.namespace.svc.domain`.
    fn gateway(&self, name: &str) -> String {
        match (name.split_once('/'), name.split_once('.')) {
            (Some((".", rest)), _) => format!("{}/{rest}", self.namespace),
            (Some(_), _) => name.to_owned(),
            (None, None) => format!("{}/{name}", self.namespace),
            (None, Some((gateway, rest))) => {
                let namespace = rest
                    .split_once('.')
                    .map_or(rest, |(namespace, _)| namespace);
                format!("{namespace}/{gateway}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_named_by_namespace_and_name() {
        let namespace = Namespace::new("shop");
        let names = NameContext {
            namespace: &namespace,
            domain: "cluster.local",
        };
        for (given, full) in [
            ("front", "shop/front"),
            ("./front", "shop/front"),
            ("edge/front", "edge/front"),
            ("front.edge", "edge/front"),
            ("front.edge.svc.cluster.local", "edge/front"),
        ] {
            assert_eq!(names.gateway(given), full);
        }
        let mut gateways = vec!["mesh".to_owned(), "front".to_owned()];
        names.gateways(&mut gateways);
        assert_eq!(gateways, ["mesh", "shop/front"]);
    }
}

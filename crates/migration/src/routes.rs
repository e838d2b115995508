//! The routes to services, as far as they tell requests apart or need a waypoint.

use std::collections::BTreeSet;

use serde_json::Value;

use super::objects::{
    DESTINATION_RULE, GRPC_ROUTE, HTTP_ROUTE, ObjectName, Objects, VIRTUAL_SERVICE, items, text,
    texts,
};

/// The gateway name for sidecars and waypoints.
pub(crate) const MESH: &str = "mesh";

/// A host of a service, in the forms in which configuration names it.
#[derive(Clone, Debug)]
pub(crate) struct ServiceHost<'a> {
    /// The fully qualified name.
    pub(crate) host: String,
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
}

impl<'a> ServiceHost<'a> {
    /// That of a Service.
    pub(crate) fn of(service: &'a Value, domain: &str) -> Self {
        let name = super::objects::name(service);
        let namespace = super::objects::namespace(service);
        Self {
            host: format!("{name}.{namespace}.svc.{domain}"),
            name,
            namespace,
        }
    }

    /// Whether a host in configuration of a namespace is this one, or a wildcard of it.
    pub(crate) fn is(&self, host: &str, namespace: &str) -> bool {
        let relative = host == self.name && namespace == self.namespace
            || host == format!("{}.{}", self.name, self.namespace)
            || host == format!("{}.{}.svc", self.name, self.namespace);
        let wildcard = host
            .strip_prefix('*')
            .is_some_and(|suffix| self.host.ends_with(suffix));
        relative || wildcard || host == self.host
    }
}

/// Whether a VirtualService is for sidecars and waypoints.
pub(crate) fn is_for_mesh(virtual_service: &Value) -> bool {
    let mut gateways = texts(virtual_service, "/spec/gateways").peekable();
    gateways.peek().is_none() || gateways.any(|gateway| gateway == MESH)
}

/// The VirtualServices for a host of the mesh.
pub(crate) fn virtual_services<'a>(
    objects: &'a Objects,
    host: &'a ServiceHost<'a>,
) -> impl Iterator<Item = (&'a ObjectName, &'a Value)> {
    objects.of(VIRTUAL_SERVICE).filter(move |(name, object)| {
        is_for_mesh(object)
            && texts(object, "/spec/hosts").any(|known| host.is(known, &name.namespace))
    })
}

/// The routes of the Gateway API whose parent is a service.
pub(crate) fn routes_of_parent<'a>(
    objects: &'a Objects,
    host: &'a ServiceHost<'a>,
) -> impl Iterator<Item = (&'a ObjectName, &'a Value)> {
    let is_parent = move |name: &ObjectName, object: &Value| {
        items(object, "/spec/parentRefs").any(|parent| {
            let namespace = match text(parent, "/namespace") {
                "" => name.namespace.as_str(),
                namespace => namespace,
            };
            text(parent, "/kind") == "Service"
                && text(parent, "/name") == host.name
                && namespace == host.namespace
        })
    };
    [HTTP_ROUTE, GRPC_ROUTE]
        .into_iter()
        .flat_map(move |kind| objects.of(kind))
        .filter(move |(name, object)| is_parent(name, object))
}

/// The namespaces of the destinations of routes, as far as their hosts are those of Services.
pub(crate) fn destination_namespaces<'a>(
    routes: impl Iterator<Item = (&'a ObjectName, &'a Value)>,
) -> BTreeSet<String> {
    let mut namespaces = BTreeSet::new();
    for (name, route) in routes {
        let own = name.namespace.as_str();
        for protocol in ["/spec/http", "/spec/tcp", "/spec/tls"] {
            let destinations = items(route, protocol).flat_map(|rule| items(rule, "/route"));
            for destination in destinations {
                let host = text(destination, "/destination/host");
                let namespace = host.split('.').nth(1).unwrap_or(own);
                namespaces.insert(namespace.to_owned());
            }
        }

        let backends = items(route, "/spec/rules").flat_map(|rule| items(rule, "/backendRefs"));
        for backend in backends {
            let namespace = match text(backend, "/namespace") {
                "" => own,
                namespace => namespace,
            };
            namespaces.insert(namespace.to_owned());
        }
    }
    namespaces
}

/// The objects that a service of the mesh needs a waypoint for, since sidecars apply them to
/// requests.
pub(crate) fn needing_waypoint<'a>(
    objects: &'a Objects,
    host: &'a ServiceHost<'a>,
) -> impl Iterator<Item = &'a ObjectName> {
    let rules = objects
        .of(DESTINATION_RULE)
        .filter(move |(name, rule)| host.is(text(rule, "/spec/host"), &name.namespace));
    virtual_services(objects, host)
        .chain(routes_of_parent(objects, host))
        .chain(rules)
        .map(|(name, _)| name)
}

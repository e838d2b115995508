//! Compares an object with existing ones. Mismatches are only warnings, because objects are created
//! in any order.
//!
//! Each check is limited: above the limit it adds no warning.

use std::collections::{BTreeMap, BTreeSet};

use navarch_api::any_object::AnyObject;
use navarch_api::hostname;
use navarch_api::istio::{Destination, DestinationRule, Gateway, VirtualService};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_api::text_map::TextMap;
use navarch_api::validation::Problem;
use navarch_store::Objects;

/// Maximum number of compared objects of a kind.
const OBJECTS: usize = 10_000;
/// Maximum number of names that are looked up for one object.
const NAMES: usize = 64;
/// The reserved gateway name of all sidecars.
const MESH: &str = "mesh";

/// Warnings about an object that does not match the existing objects.
pub(super) fn look(object: &AnyObject, objects: &Objects) -> Vec<Problem> {
    let mut found = Vec::new();
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other kinds refer to no other objects"
    )]
    match object {
        AnyObject::VirtualService(service) => {
            claimed_hosts(service, objects, &mut found);
            missing_gateways(service, objects, &mut found);
            missing_subsets(service, objects, &mut found);
        }
        AnyObject::DestinationRule(rule) => empty_subsets(rule, objects, &mut found),
        AnyObject::Gateway(gateway) => unselected(gateway, objects, &mut found),
        _ => {}
    }
    found
}

/// Adds a warning.
fn warn(found: &mut Vec<Problem>, field: String, message: String) {
    found.push(Problem { field, message });
}

/// A host in the form for comparison: short names get the namespace, and cluster services lose the
/// cluster domain.
fn full(host: &str, namespace: &Namespace) -> String {
    let mut labels = host.split('.');
    match (labels.next(), labels.next(), labels.next()) {
        (Some(name), None, None) if !hostname::is_wildcard(name) => {
            format!("{name}.{namespace}.svc")
        }
        (Some(name), Some(of), Some("svc")) if !hostname::is_wildcard(name) => {
            format!("{name}.{of}.svc")
        }
        _ => host.to_owned(),
    }
}

/// The cluster service of a full host.
fn service_key(full: &str) -> Option<NamespacedName> {
    let mut labels = full.strip_suffix(".svc")?.split('.');
    match (labels.next(), labels.next(), labels.next()) {
        (Some(name), Some(namespace), None) => Some(NamespacedName::new(namespace, name)),
        _ => None,
    }
}

/// Whether a VirtualService applies to sidecars.
fn is_for_mesh(service: &VirtualService) -> bool {
    service.gateways.is_empty() || service.gateways.iter().any(|gateway| gateway == MESH)
}

/// Whether the same sidecars use both objects. Only simple values of `exportTo` are compared.
fn share_sidecars(a: (&ObjectMeta, &[String]), b: (&ObjectMeta, &[String])) -> bool {
    let public = |export: &[String]| export.is_empty() || export.iter().any(|to| to == "*");
    a.0.key.namespace == b.0.key.namespace || (public(a.1) && public(b.1))
}

/// Warns about hosts that another VirtualService for sidecars also has: only one of them takes
/// effect.
fn claimed_hosts(service: &Object<VirtualService>, objects: &Objects, found: &mut Vec<Problem>) {
    if !is_for_mesh(&service.spec) {
        return;
    }

    let hosts = service.spec.hosts.iter().take(NAMES).enumerate();
    let mut mine: BTreeMap<String, usize> = hosts
        .map(|(index, host)| (full(host, &service.meta.key.namespace), index))
        .collect();

    for other in objects.virtual_services.iter().take(OBJECTS) {
        let is_other = other.meta.key.name != service.meta.key.name
            || other.meta.key.namespace != service.meta.key.namespace;
        let meets = share_sidecars(
            (&service.meta, &service.spec.export_to),
            (&other.meta, &other.spec.export_to),
        );
        if mine.is_empty() || !is_other || !meets || !is_for_mesh(&other.spec) {
            continue;
        }

        for host in &other.spec.hosts {
            if let Some(index) = mine.remove(&full(host, &other.meta.key.namespace)) {
                let message = format!(
                    "VirtualService {} has host {host:?}, too: sidecars use only one of them; merge them or narrow exportTo",
                    other.meta.key()
                );
                warn(found, format!("spec.hosts[{index}]"), message);
            }
        }
    }
}

/// Warns about gateways that do not exist.
fn missing_gateways(service: &Object<VirtualService>, objects: &Objects, found: &mut Vec<Problem>) {
    for (index, gateway) in service.spec.gateways.iter().take(NAMES).enumerate() {
        // A name with dots is a host in a legacy form; Gateways derived from the Gateway API have
        // their own names.
        if gateway == MESH || gateway.contains(['.', '~']) {
            continue;
        }

        let (namespace, name) = gateway
            .split_once('/')
            .unwrap_or((service.meta.key.namespace.as_str(), gateway));

        if objects
            .gateways
            .get(&NamespacedName::new(namespace, name))
            .is_none()
        {
            let message = format!(
                "Gateway {namespace}/{name} does not exist: this VirtualService has no effect there"
            );
            warn(found, format!("spec.gateways[{index}]"), message);
        }
    }
}

/// The destinations of a VirtualService, each with its field.
fn destinations(service: &VirtualService) -> impl Iterator<Item = (String, &Destination)> {
    let http = service.http.iter().enumerate().flat_map(|(at, route)| {
        let routes = route.route.iter().enumerate();
        routes.map(move |(to, one)| {
            (
                format!("spec.http[{at}].route[{to}]"),
                one.destination.as_ref(),
            )
        })
    });

    let tls = service.tls.iter().enumerate().flat_map(|(at, route)| {
        let routes = route.route.iter().enumerate();
        routes.map(move |(to, one)| {
            (
                format!("spec.tls[{at}].route[{to}]"),
                one.destination.as_ref(),
            )
        })
    });

    let tcp = service.tcp.iter().enumerate().flat_map(|(at, route)| {
        let routes = route.route.iter().enumerate();
        routes.map(move |(to, one)| {
            (
                format!("spec.tcp[{at}].route[{to}]"),
                one.destination.as_ref(),
            )
        })
    });

    let all = http.chain(tls).chain(tcp);
    all.filter_map(|(field, destination)| {
        Some((format!("{field}.destination.subset"), destination?))
    })
}

/// Warns about subsets that no DestinationRule defines: requests to them fail.
fn missing_subsets(service: &Object<VirtualService>, objects: &Objects, found: &mut Vec<Problem>) {
    if objects.destination_rules.len() > OBJECTS {
        return;
    }

    let mut wanted: BTreeMap<(String, &str), String> = BTreeMap::new();
    for (field, destination) in destinations(&service.spec)
        .filter(|(_, to)| !to.subset.is_empty())
        .take(NAMES)
    {
        wanted
            .entry((
                full(&destination.host, &service.meta.key.namespace),
                &destination.subset,
            ))
            .or_insert(field);
    }

    if wanted.is_empty() {
        return;
    }

    for rule in objects.destination_rules.iter() {
        let host = full(&rule.spec.host, &rule.meta.key.namespace);
        let names: BTreeSet<&str> = rule
            .spec
            .subsets
            .iter()
            .map(|subset| subset.name.as_str())
            .collect();
        wanted.retain(|(of, subset), _| {
            !(names.contains(subset) && hostname::is_subset_of(of, &host))
        });
    }

    for ((host, subset), field) in wanted {
        let message = format!(
            "no DestinationRule of {host} has subset {subset:?}: requests to it fail until there is one"
        );
        warn(found, field, message);
    }
}

/// Warns about subsets that match no pod of the service.
fn empty_subsets(rule: &Object<DestinationRule>, objects: &Objects, found: &mut Vec<Problem>) {
    let host = full(&rule.spec.host, &rule.meta.key.namespace);
    let Some(key) = service_key(&host) else {
        return;
    };

    let Some(service) = objects
        .services
        .get(&key)
        .filter(|service| !service.spec.selector.is_empty())
    else {
        return;
    };

    let pods: Vec<_> = objects
        .pods
        .in_namespace(&key.namespace)
        .take(OBJECTS)
        .collect();
    if pods.len() == OBJECTS {
        return;
    }

    let selector = service
        .spec
        .selector
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect::<Vec<_>>();

    let of_service: Vec<_> = pods
        .into_iter()
        .filter(|pod| has_all(&pod.meta.labels, selector.iter().copied()))
        .collect();

    for (index, subset) in rule.spec.subsets.iter().take(NAMES).enumerate() {
        let labels = || {
            subset
                .labels
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
        };

        if !subset.labels.is_empty()
            && !of_service
                .iter()
                .any(|pod| has_all(&pod.meta.labels, labels()))
        {
            let message = format!(
                "no pod of Service {key} has the labels of subset {:?}",
                subset.name
            );
            warn(found, format!("spec.subsets[{index}].labels"), message);
        }
    }
}

/// Warns about a Gateway whose selector matches no pod.
fn unselected(gateway: &Object<Gateway>, objects: &Objects, found: &mut Vec<Problem>) {
    if gateway.spec.selector.is_empty() || objects.pods.len() > OBJECTS {
        return;
    }

    let labels = || {
        gateway
            .spec
            .selector
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    };

    if !objects
        .pods
        .iter()
        .any(|pod| has_all(&pod.meta.labels, labels()))
    {
        let message = "no pod has these labels: no proxy serves this Gateway yet".to_owned();
        warn(found, "spec.selector".to_owned(), message);
    }
}

/// Whether labels contain all of some others.
fn has_all<'a>(labels: &TextMap, mut others: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    others.all(|(key, value)| labels.get(key).is_some_and(|has| **has == *value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::verdict::validate;

    /// An object of Istio's networking group, or of the core group.
    fn object(kind: &str, name: &str, spec: Value) -> AnyObject {
        let version = if kind == "Pod" || kind == "Service" {
            "v1"
        } else {
            "networking.istio.io/v1"
        };
        let labels = json!({ "app": "reviews", "version": "v1" });
        let metadata = json!({ "name": name, "namespace": "shop", "labels": labels });
        let value =
            json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
        validate(&value).object.unwrap_or_else(|| panic!("{value}"))
    }

    /// The fields that are warned of.
    fn fields(object: &AnyObject, world: &[AnyObject]) -> Vec<String> {
        let mut objects = Objects::default();
        for one in world {
            objects.put_any(one.clone());
        }
        look(object, &objects)
            .into_iter()
            .map(|problem| problem.field)
            .collect()
    }

    #[test]
    fn hosts_gateways_and_subsets_are_looked_up() {
        let route =
            json!([{ "route": [{ "destination": { "host": "reviews", "subset": "v1" } }] }]);
        let spec =
            json!({ "hosts": ["x.com", "reviews"], "gateways": ["mesh", "front"], "http": route });
        let service = object("VirtualService", "a", spec);
        let wanting = [
            "spec.gateways[1]",
            "spec.http[0].route[0].destination.subset",
        ];
        assert_eq!(fields(&service, &[]), wanting);

        let other = json!({ "hosts": ["reviews.shop.svc.cluster.local"], "http": [{ "route": [{ "destination": { "host": "b" } }] }] });
        let other = object("VirtualService", "b", other);
        let rule = json!({ "host": "reviews.shop.svc.cluster.local", "subsets": [{ "name": "v1", "labels": { "version": "v1" } }] });
        let rule = object("DestinationRule", "r", rule);
        let server =
            json!({ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["*"] });
        let gateway = object(
            "Gateway",
            "front",
            json!({ "selector": { "app": "reviews" }, "servers": [server] }),
        );

        assert_eq!(
            fields(&service, &[other, rule.clone(), gateway.clone()]),
            ["spec.hosts[1]"]
        );
        assert_eq!(
            fields(&service, &[service.clone(), rule.clone(), gateway.clone()]),
            Vec::<String>::new()
        );

        let pod = object("Pod", "p", json!({ "containers": [] }));
        assert_eq!(fields(&gateway, &[]), ["spec.selector"]);
        assert_eq!(
            fields(&gateway, std::slice::from_ref(&pod)),
            Vec::<String>::new()
        );
        let kubernetes = json!({ "selector": { "app": "reviews" }, "ports": [{ "port": 80 }] });
        let kubernetes = object("Service", "reviews", kubernetes);

        assert_eq!(fields(&rule, &[]), Vec::<String>::new());
        assert_eq!(
            fields(&rule, std::slice::from_ref(&kubernetes)),
            ["spec.subsets[0].labels"]
        );
        assert_eq!(fields(&rule, &[kubernetes, pod]), Vec::<String>::new());
    }
}

//! The addresses of Ingresses, from the objects of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::kubernetes::{
    Ingress, IngressClass, Node, NodeAddressType, Pod, PodPhase, Service, ServiceType,
};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::context::PushContext;
use navarch_status::{IngressAddress, IngressAddresses};
use navarch_store::Stored;

/// The label of the gateways that serve Ingresses.
const GATEWAY_LABEL: &str = "istio";

/// The addresses of all Ingresses that are served.
pub(super) fn addresses(context: &PushContext) -> IngressAddresses {
    let config = &context.mesh.config;
    let rule = config.ingress_rule();
    let is_served = |ingress: &&Arc<Object<Ingress>>| {
        let class = ingress
            .spec
            .class_name
            .as_deref()
            .map(|name| NamespacedName::new("", name));
        let class = class.and_then(|class| context.objects.get::<IngressClass>(&class));
        rule.serves(ingress, class.map(|class| &class.spec))
    };

    let mut served = Ingress::table(&context.objects)
        .iter()
        .filter(is_served)
        .peekable();
    if served.peek().is_none() {
        return IngressAddresses::default();
    }

    let addresses = gateway_addresses(context, &context.mesh.settings.ingress_namespace);
    Arc::new(
        served
            .map(|ingress| (ingress.meta.key(), addresses.clone()))
            .collect::<BTreeMap<_, _>>(),
    )
}

/// The address of the gateway: of its Service (`ingressService`); else of the node of its first
/// running pod.
fn gateway_addresses(context: &PushContext, namespace: &Namespace) -> Vec<IngressAddress> {
    let service = context.mesh.config.ingress_service.as_str();
    let mut addresses = if service.is_empty() {
        node_addresses(context, namespace)
    } else {
        let service = context
            .objects
            .get::<Service>(&NamespacedName::new(namespace.as_str(), service));
        service
            .map(|service| service_addresses(&service.spec))
            .unwrap_or_default()
    };
    // Addresses precede host names; both are sorted.
    addresses.sort();
    addresses
}

/// The external addresses of a Service.
fn service_addresses(service: &Service) -> Vec<IngressAddress> {
    if let ServiceType::ExternalName(name) = &service.service_type {
        return vec![IngressAddress::Hostname(name.to_string())];
    }

    let balancers =
        service
            .load_balancer
            .iter()
            .filter_map(|ingress| match (&ingress.ip, &ingress.hostname) {
                (Some(ip), _) => Some(IngressAddress::Ip(ip.to_string())),
                (None, Some(name)) => Some(IngressAddress::Hostname(name.to_string())),
                (None, None) => None,
            });

    balancers
        .chain(
            service
                .external_ips
                .iter()
                .map(|ip| IngressAddress::Ip(ip.to_string())),
        )
        .collect()
}

/// The external address of the node of the gateway's first running pod.
fn node_addresses(context: &PushContext, namespace: &Namespace) -> Vec<IngressAddress> {
    let rule = context.mesh.config.ingress_rule();
    let is_gateway = |pod: &&Arc<Object<Pod>>| {
        pod.spec.phase == PodPhase::Running
            && pod
                .meta
                .labels
                .get(GATEWAY_LABEL)
                .is_some_and(|label| **label == *rule.gateway())
    };

    let mut pods = Pod::table(&context.objects)
        .in_namespace(namespace)
        .filter(is_gateway);
    let node = pods.find_map(|pod| {
        let node = NamespacedName::new("", pod.spec.node.as_deref()?);
        context.objects.get::<Node>(&node)
    });
    let mut addresses = Vec::new();

    for address in node.into_iter().flat_map(|node| &node.spec.addresses) {
        let address = (address.kind == NodeAddressType::ExternalIp)
            .then(|| IngressAddress::new(&address.address));
        addresses.extend(address.filter(|address| !addresses.contains(address)));
    }

    addresses
}

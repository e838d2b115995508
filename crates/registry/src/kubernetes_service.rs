//! A Kubernetes Service as a service of the model (Istio's `serviceregistry/kube/conversion.go`).

use std::sync::Arc;

use super::identity::spiffe_id;
use super::mesh_inputs::MeshInputs;
use super::model::{
    ExportTo, KubernetesAttributes, Labels, Registry, Resolution, Service, ServiceKey, ServicePort,
    TrafficDistribution,
};
use super::port_protocol::protocol_of_port;
use super::traffic_distribution::traffic_distribution;
use navarch_api::kubernetes::{
    LoadBalancerIngress, Service as Declared, ServiceType, TrafficPolicy,
};
use navarch_api::object::{Kind, Object, ObjectMeta, ObjectRef};
use navarch_api::settings::Settings;
use navarch_base::small_map::SmallMap;

/// The address of a service that has none.
pub(super) const UNSPECIFIED: &str = "0.0.0.0";
/// The annotation that lists SPIFFE ids allowed to run the service.
const CANONICAL_ACCOUNTS_ANNOTATION: &str = "alpha.istio.io/canonical-serviceaccounts";
/// The annotation that lists ServiceAccounts of the namespace allowed to run the service.
const KUBERNETES_ACCOUNTS_ANNOTATION: &str = "alpha.istio.io/kubernetes-serviceaccounts";
/// The annotation for the visibility of the service (`exportTo`).
const EXPORT_TO_ANNOTATION: &str = "networking.istio.io/exportTo";
/// The annotation of gateway services that are reached through node ports. It selects the nodes.
pub(super) const NODE_SELECTOR_ANNOTATION: &str = "traffic.istio.io/nodeSelector";

/// A Kubernetes Service in the model; `namespace` is that of its namespace, if known.
#[must_use]
pub(super) fn convert_service(
    object: &Object<Declared>,
    namespace: Option<&ObjectMeta>,
    mesh_inputs: &MeshInputs,
) -> Service {
    let meta = &object.meta;
    let spec = &object.spec;
    let cluster = &mesh_inputs.settings.cluster_id;
    let name = meta.key();
    let vips = virtual_addresses(spec);
    let external = external_addresses(spec);
    let external_name = match &spec.service_type {
        ServiceType::ExternalName(name) => Some(name),
        ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer => None,
    };

    Service {
        key: ServiceKey {
            namespace: meta.key.namespace.clone(),
            hostname: mesh_inputs.host_of(&name),
        },
        origin: ObjectRef {
            kind: Kind::Service,
            name,
        },
        name: meta.key.name.clone(),
        registry: Registry::Kubernetes,
        created: meta.created,
        labels: meta.labels.clone(),
        ports: spec.ports.iter().map(convert_port).collect(),
        resolution: resolution(spec),
        mesh_external: external_name.is_some(),
        export_to: export_to(meta),
        default_address: vips
            .first()
            .cloned()
            .unwrap_or_else(|| Arc::from(UNSPECIFIED)),
        cluster_vips: [(cluster.clone(), vips)].into_iter().collect(),
        auto_ipv4: None,
        auto_ipv6: None,
        selector: spec.selector.clone(),
        service_accounts: service_accounts(meta, &mesh_inputs.trust_domain),
        aliases: Vec::new(),
        external_addresses: Some((cluster.clone(), external))
            .filter(|(_, found)| !found.is_empty())
            .into_iter()
            .collect(),
        external_ports: node_ports(object)
            .map(|ports| (cluster.clone(), ports))
            .into_iter()
            .collect(),
        passthrough_target_ports: SmallMap::default(),
        races_connections: false,
        kubernetes: KubernetesAttributes {
            service_type: spec.service_type.as_str(),
            external_name: external_name
                .map(|name| Arc::from(name.as_str()))
                .unwrap_or_default(),
            node_local: spec.internal_traffic_policy == TrafficPolicy::Local,
            traffic_distribution: traffic_distribution(spec.traffic_distribution, meta, namespace),
            publish_not_ready: spec.publish_not_ready_addresses,
        },
    }
}

fn convert_port(port: &navarch_api::kubernetes::ServicePort) -> ServicePort {
    ServicePort {
        name: port.name.clone(),
        port: port.port,
        protocol: protocol_of_port(port),
    }
}

/// How endpoints are found. A headless service is never load-balanced, whatever its type.
fn resolution(spec: &Declared) -> Resolution {
    match spec.service_type {
        _ if spec.is_headless() => Resolution::Passthrough,
        ServiceType::ExternalName(_) => Resolution::Alias,
        ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer => {
            Resolution::ClientSideLb
        }
    }
}

/// The cluster's own addresses of the service; only `0.0.0.0` if there are none.
fn virtual_addresses(spec: &Declared) -> Vec<Arc<str>> {
    match spec.cluster_ips.addresses() {
        [] => vec![Arc::from(UNSPECIFIED)],
        addresses => addresses
            .iter()
            .map(|address| Arc::from(address.to_string()))
            .collect(),
    }
}

/// Addresses by which the service is reached from outside: those of load balancers, then external
/// IPs.
fn external_addresses(spec: &Declared) -> Vec<Arc<str>> {
    let balancer = |ingress: &LoadBalancerIngress| match (&ingress.ip, &ingress.hostname) {
        (Some(ip), _) => Some(Arc::from(ip.to_string())),
        (None, Some(hostname)) => Some(Arc::from(hostname.as_str())),
        (None, None) => None,
    };
    let balancers: &[LoadBalancerIngress] = match spec.service_type {
        ServiceType::LoadBalancer => &spec.load_balancer,
        ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::ExternalName(_) => &[],
    };
    let external = spec.external_ips.iter().map(|ip| Arc::from(ip.to_string()));
    balancers
        .iter()
        .filter_map(balancer)
        .chain(external)
        .collect()
}

/// Node ports by service port, of gateway services that are reached through nodes.
fn node_ports(object: &Object<Declared>) -> Option<SmallMap<u16, u16>> {
    let is_gateway = object
        .meta
        .annotations
        .contains_key(NODE_SELECTOR_ANNOTATION);
    (object.spec.service_type == ServiceType::NodePort && is_gateway).then(|| {
        let ports = object.spec.ports.iter();
        ports
            .map(|port| (port.port, port.node_port.unwrap_or(0)))
            .collect()
    })
}

/// The visibility of the service, from its annotation.
fn export_to(meta: &ObjectMeta) -> ExportTo {
    match meta.annotations.get(EXPORT_TO_ANNOTATION) {
        Some(list) if !list.is_empty() => {
            ExportTo::parse(list.split(',').map(str::trim), &meta.key.namespace)
        }
        Some(_) | None => ExportTo::Unset,
    }
}

/// The SPIFFE ids that annotations allow to run the service.
fn service_accounts(meta: &ObjectMeta, trust_domain: &str) -> Vec<Arc<str>> {
    let items = |annotation: &str| {
        let list = meta
            .annotations
            .get(annotation)
            .filter(|list| !list.is_empty());
        list.into_iter().flat_map(|list| list.split(','))
    };
    let ids = items(CANONICAL_ACCOUNTS_ANNOTATION).map(Arc::from);
    let accounts = items(KUBERNETES_ACCOUNTS_ANNOTATION);
    let mut ids: Vec<Arc<str>> = ids
        .chain(
            accounts.map(|account| spiffe_id(trust_domain, meta.key.namespace.as_str(), account)),
        )
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

impl Service {
    /// Whether endpoints that shut down keep their sessions: the service has one of the
    /// persistent-session labels.
    #[must_use]
    pub(super) fn drains(&self, settings: &Settings) -> bool {
        let has_label = |label: &str| !label.is_empty() && has_text(&self.labels, label);
        has_label(&settings.persistent_session_label)
            || has_label(&settings.persistent_session_header_label)
    }

    /// Whether its unhealthy endpoints are sent, because locality preferences depend on them.
    #[must_use]
    pub(super) fn sends_unhealthy(&self, settings: &Settings) -> bool {
        let always = settings.send_unhealthy_endpoints || settings.auto_send_unhealthy_endpoints;
        always || self.kubernetes.traffic_distribution != TrafficDistribution::Any
    }
}

/// Whether a label is set and not empty.
fn has_text(labels: &Labels, label: &str) -> bool {
    labels.get(label).is_some_and(|value| !value.is_empty())
}

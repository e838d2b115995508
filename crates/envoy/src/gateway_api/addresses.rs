//! The addresses of a Gateway's proxies (istiod's `ResolveGatewayInstances`).

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::kubernetes::{Service, ServiceType};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::Kind;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{self, ServiceKey};

/// The label of objects that the control plane deploys for Gateways.
const MANAGED: &str = "gateway.istio.io/managed";

/// The addresses of some ports of Services.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InstancesOf {
    /// The namespace of the Services.
    pub(super) namespace: Namespace,
    pub(super) services: Vec<String>,
    pub(super) ports: BTreeSet<u32>,
}

/// The value of [`InstancesOf`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Instances {
    /// In-cluster addresses, as `host:port`, sorted.
    pub(super) internal: Vec<String>,
    /// Their IP addresses.
    pub(super) internal_ips: BTreeSet<String>,
    /// External addresses.
    pub(super) external: BTreeSet<String>,
    /// Hosts that do not have an external address yet.
    pub(super) pending: BTreeSet<String>,
    /// Descriptions of unreachable ports or Services, sorted.
    pub(super) warnings: Vec<String>,
    /// Whether some of these are permanent.
    pub(super) is_unusable: bool,
}

impl Query for InstancesOf {
    type Value = Instances;

    fn compute(&self, view: &View<'_>) -> Instances {
        let mut found = Instances::default();

        for host in &self.services {
            let key = ServiceKey {
                namespace: self.namespace.clone(),
                hostname: Hostname::new(host),
            };
            match view.service(&key) {
                Some(service) => self
                    .ports
                    .iter()
                    .for_each(|port| found.add(view, service, host, *port)),
                None => {
                    found.is_unusable = true;
                    found.warnings.push(not_found(view, host, &self.namespace));
                }
            }
        }

        found.internal.sort();
        found.internal.dedup();
        found.warnings.sort();
        found
    }
}

/// The message for a missing Service.
fn not_found(view: &View<'_>, host: &str, namespace: &Namespace) -> String {
    let elsewhere = view
        .namespaces_of_host(&Hostname::new(host))
        .unwrap_or_default();
    let elsewhere: Vec<String> = elsewhere
        .iter()
        .map(|namespace| format!("{:?}", namespace.as_str()))
        .collect();
    match elsewhere.as_slice() {
        [] => format!("hostname {host:?} not found"),
        some => format!(
            "hostname {host:?} not found in namespace {:?}, but it was found in namespace(s) {}",
            namespace.as_str(),
            some.join(", ")
        ),
    }
}

impl Instances {
    fn add(&mut self, view: &View<'_>, service: &model::Service, host: &str, port: u32) {
        let endpoints = view.endpoints(&service.key);
        let endpoints = endpoints
            .map(|endpoints| endpoints.endpoints.as_slice())
            .unwrap_or_default();
        let declared = u16::try_from(port).ok().and_then(|port| service.port(port));
        let serves = |endpoint: &&Arc<model::Endpoint>| {
            declared.is_some_and(|declared| declared.name == endpoint.port_name)
        };

        if endpoints.iter().any(|endpoint| serves(&endpoint)) {
            self.internal.push(format!("{host}:{port}"));
            self.internal_ips.extend(addresses(view, service));
            let external: Vec<String> = service
                .external_addresses
                .iter()
                .flat_map(|(_, addresses)| addresses)
                .map(ToString::to_string)
                .collect();

            let has_none = external.is_empty();
            self.external.extend(external);

            if has_none && is_load_balancer(view, service) && self.pending.insert(host.to_owned()) {
                self.warnings
                    .push(format!("address pending for hostname {host:?}"));
            }
        } else if endpoints.is_empty() {
            self.warnings
                .push(format!("no instances found for hostname {host:?}"));
        } else {
            self.warn_of_port(service, endpoints, host, port, declared.is_some());
        }
    }

    /// Adds a warning for a port without endpoints of a Service that has endpoints for others.
    fn warn_of_port(
        &mut self,
        service: &model::Service,
        endpoints: &[Arc<model::Endpoint>],
        host: &str,
        port: u32,
        is_declared: bool,
    ) {
        let selected = endpoints
            .iter()
            .filter(|endpoint| u32::from(endpoint.port) == port);
        let selected: BTreeSet<String> = selected
            .filter_map(|endpoint| service.port_named(endpoint.port_name.as_str()))
            .map(|declared| declared.port.to_string())
            .collect();

        if !selected.is_empty() {
            let selected: Vec<String> = selected.into_iter().collect();
            self.warnings.push(format!(
                "port {port} not found for hostname {host:?} (hint: the service port should be specified, not the workload \
                 port. Did you mean one of these ports: [{}]?)",
                selected.join(" ")
            ));
            self.is_unusable = true;
        } else if !(is_declared && service.labels.contains_key(MANAGED)) {
            // Services that the control plane deploys will have them soon.
            self.warnings
                .push(format!("port {port} not found for hostname {host:?}"));
            self.is_unusable = true;
        }
    }
}

/// The in-cluster addresses of a Service.
fn addresses(view: &View<'_>, service: &model::Service) -> Vec<String> {
    let own = &view.mesh().settings.cluster_id;
    let vips = service
        .cluster_vips
        .get(own)
        .filter(|vips| !vips.is_empty());
    match vips {
        Some(vips) => vips.iter().map(ToString::to_string).collect(),
        None if service.default_address.is_empty() => Vec::new(),
        None => vec![service.default_address.to_string()],
    }
}

/// Whether the external addresses of a Service are still pending.
fn is_load_balancer(view: &View<'_>, service: &model::Service) -> bool {
    service.origin.kind == Kind::Service
        && view
            .object::<Service>(&service.origin.name)
            .is_some_and(|object| object.spec.service_type == ServiceType::LoadBalancer)
}

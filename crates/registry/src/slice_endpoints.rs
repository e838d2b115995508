//! The endpoints of one EndpointSlice (Istio's `serviceregistry/kube/controller/endpointslice.go`).

use std::net::IpAddr;
use std::sync::Arc;

use super::mesh_inputs::MeshInputs;
use super::model::{Discoverability, Endpoint, Health, Labels, Service, Workload};
use super::pod_index::PodIndex;
use super::pod_workload::PodState;
use super::workload_labels::WorkloadLocation;
use navarch_api::kubernetes::{
    AddressType, EndpointConditions, EndpointSlice, Service as Declared,
};
use navarch_api::object::Object;

/// The properties of a Service that affect how its slices are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SliceRules {
    /// Endpoints that shut down keep their sessions.
    pub drains: bool,
    /// Unhealthy endpoints are sent.
    pub sends_unhealthy: bool,
    /// It has a virtual address of each family.
    pub dual_stack: bool,
}

impl SliceRules {
    #[must_use]
    pub(super) fn new(service: &Service, declared: &Declared, mesh_inputs: &MeshInputs) -> Self {
        Self {
            drains: service.drains(&mesh_inputs.settings),
            sends_unhealthy: service.sends_unhealthy(&mesh_inputs.settings),
            dual_stack: mesh_inputs.settings.dual_stack
                && declared.cluster_ips.addresses().len() > 1,
        }
    }
}

/// The health of an endpoint. A missing condition counts as true. Without a Service no endpoint is
/// shutting down.
fn health_of(conditions: EndpointConditions, rules: Option<SliceRules>) -> Health {
    let is_true = |condition: Option<bool>| condition.unwrap_or(true);
    let terminating = is_true(conditions.terminating);
    match rules {
        _ if is_true(conditions.ready) => Health::Healthy,
        Some(rules) if rules.drains && terminating && is_true(conditions.serving) => {
            Health::Draining
        }
        Some(_) if terminating => Health::Terminating,
        Some(_) | None => Health::Unhealthy,
    }
}

/// What a slice lists, one per endpoint, address and port. An endpoint whose pod is missing is
/// omitted, because its metadata would be wrong.
#[derive(Debug, Default)]
pub(super) struct SliceEndpoints {
    pub endpoints: Vec<Arc<Endpoint>>,
    /// Number of listed endpoints that are omitted because their pods are missing.
    pub pending: usize,
}

/// The endpoints of a slice.
#[must_use]
pub(super) fn endpoints_of_slice(
    slice: &Object<EndpointSlice>,
    rules: Option<SliceRules>,
    discoverability: Discoverability,
    pods: &PodIndex,
    mesh_inputs: &MeshInputs,
) -> SliceEndpoints {
    // Endpoints of a missing Service are not read.
    let sends_unhealthy = rules.is_some_and(|rules| rules.sends_unhealthy);
    let dual_stack = rules.is_some_and(|rules| rules.dual_stack);
    let mut found = SliceEndpoints::default();

    for endpoint in &slice.spec.endpoints {
        let pod = endpoint.pod.as_ref().map(|name| pods.named(name));
        if matches!(pod, Some(None)) {
            found.pending += 1;
            continue;
        }

        let health = health_of(endpoint.conditions, rules);

        for address in &endpoint.addresses {
            let Some((addresses, workload)) = resolve(
                slice,
                pod.flatten(),
                *address,
                dual_stack,
                pods,
                mesh_inputs,
            ) else {
                continue;
            };

            for port in &slice.spec.ports {
                found.endpoints.push(Arc::new(Endpoint {
                    addresses: addresses.clone(),
                    port_name: port.name.clone(),
                    legacy_port_key: 0,
                    port: port.port.unwrap_or(0),
                    workload: workload.clone(),
                    health,
                    send_unhealthy: sends_unhealthy,
                    weight: 0,
                    discoverability,
                }));
            }
        }
    }

    found
}

/// The addresses and the workload of an endpoint, with its pod if it has one, at one of its
/// addresses; `None` if it is omitted.
fn resolve(
    slice: &Object<EndpointSlice>,
    pod: Option<&PodState>,
    address: IpAddr,
    dual_stack: bool,
    pods: &PodIndex,
    mesh_inputs: &MeshInputs,
) -> Option<(Vec<Arc<str>>, Arc<Workload>)> {
    let one = vec![Arc::from(address.to_string())];
    let Some(pod) = pod else {
        // The slice refers to no pod, so another controller writes it. A pod at that address is the
        // best guess.
        let workload = match pods.ready_at(&slice.meta.key.namespace, address) {
            Some(pod) => located(pod, address, mesh_inputs),
            None => Arc::new(workload_at(address, mesh_inputs)),
        };
        return Some((one, workload));
    };

    let ips = &pod.object.spec.pod_ips;
    if !dual_stack || ips.len() < 2 {
        return Some((one, located(pod, address, mesh_inputs)));
    }

    // The pod's slice of the other family already contains this endpoint.
    if slice.spec.address_type == AddressType::Ipv6 {
        return None;
    }

    Some((
        ips.iter().map(|ip| Arc::from(ip.to_string())).collect(),
        located(pod, address, mesh_inputs),
    ))
}

/// The workload of a pod. If its network is unknown, the network is found by the endpoint's
/// address.
fn located(pod: &PodState, address: IpAddr, mesh_inputs: &MeshInputs) -> Arc<Workload> {
    if !pod.workload.location.network.is_empty() {
        return pod.workload.clone();
    }

    let network = mesh_inputs
        .finder
        .find(&pod.workload.own_labels, Some(address));
    if network.is_empty() {
        return pod.workload.clone();
    }

    let known = &pod.workload.location;
    let place = WorkloadLocation {
        cluster: &known.cluster,
        locality: &known.locality,
        node: &known.node,
        network: &network,
    };

    let location = mesh_inputs.locations.of(&place, &pod.workload.own_labels);
    Arc::new(Workload {
        location,
        ..(*pod.workload).clone()
    })
}

/// A workload of which only the address is known.
fn workload_at(address: IpAddr, mesh_inputs: &MeshInputs) -> Workload {
    let network = mesh_inputs.finder.find(&Labels::new(), Some(address));
    let place = WorkloadLocation {
        cluster: &mesh_inputs.settings.cluster_id,
        locality: "",
        node: "",
        network: &network,
    };
    Workload {
        location: mesh_inputs.locations.of(&place, &Labels::new()),
        ..Workload::default()
    }
}

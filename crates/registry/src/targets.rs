//! The service ports of a workload (Istio's `GetProxyServiceTargets`).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::instance::Instance;
use super::model::{Resolution, Service, ServicePort, ServiceTarget};
use super::pod_workload::PodState;
use super::protocol::Protocol;
use navarch_api::kubernetes::{
    ContainerPort, Service as Declared, ServicePort as DeclaredPort, TargetPort,
};

/// Orders targets as Istio does: by age of the service, then by host. Stable for equals.
#[must_use]
pub fn target_order(a: &ServiceTarget, b: &ServiceTarget) -> Ordering {
    (a.service.created, &a.service.key.hostname).cmp(&(b.service.created, &b.service.key.hostname))
}

/// The targets of a pod by a Kubernetes Service that selects it, in the order of the Service's
/// ports. Of ports with the same target port and protocol, the first is used.
#[must_use]
pub(super) fn targets_of_pod(
    service: &Arc<Service>,
    declared: &Declared,
    pod: &PodState,
) -> Vec<ServiceTarget> {
    let number = |declared: &DeclaredPort| match &declared.target {
        TargetPort::Number(number) => Some(*number),
        TargetPort::Name(name) => pod.object.spec.port_named(name, declared.protocol),
    };
    let numbered = declared
        .ports
        .iter()
        .filter_map(|declared| Some((declared, number(declared)?)));
    distinct_targets(service, numbered)
}

/// The targets of a missing pod by a Kubernetes Service that selects it, from its declared
/// container ports. If `ports` is `None`, named ports are 0. Returns `None` if a named port of the
/// Service is not among the declared ports.
#[must_use]
pub fn targets_by_ports(
    service: &Arc<Service>,
    declared: &Declared,
    ports: Option<&[ContainerPort]>,
) -> Option<Vec<ServiceTarget>> {
    let number = |declared: &DeclaredPort| match (&declared.target, ports) {
        (TargetPort::Number(number), _) => Some(*number),
        (TargetPort::Name(name), Some(ports)) => {
            let port = ports
                .iter()
                .find(|port| port.name == *name && port.protocol == declared.protocol);
            port.map(|port| port.port)
        }
        (TargetPort::Name(name), None) => Some(name.as_str().parse().unwrap_or(0)),
    };
    let numbered: Option<Vec<(&DeclaredPort, u16)>> = declared
        .ports
        .iter()
        .map(|declared| Some((declared, number(declared)?)))
        .collect();
    Some(distinct_targets(service, numbered?))
}

/// Targets of these ports and target ports, without those that repeat target port and protocol.
fn distinct_targets<'a>(
    service: &Arc<Service>,
    ports: impl IntoIterator<Item = (&'a DeclaredPort, u16)>,
) -> Vec<ServiceTarget> {
    let by_name = service.ports_by_name();
    let mut seen = BTreeSet::new();
    let mut targets = Vec::new();
    for (declared, target_port) in ports {
        let Some(port) = by_name.get(declared.name.as_str()).copied() else {
            continue;
        };
        if seen.insert((target_port, port.protocol)) {
            targets.push(ServiceTarget {
                service: service.clone(),
                port: port.clone(),
                target_port,
            });
        }
    }
    targets
}

/// The targets of a WorkloadEntry by a Kubernetes Service that selects it.
#[must_use]
pub(super) fn targets_of_entry(
    service: &Arc<Service>,
    declared: &Declared,
    entry: &Instance,
) -> Vec<ServiceTarget> {
    if service.resolution != Resolution::ClientSideLb {
        return Vec::new();
    }
    let ports = service
        .ports
        .iter()
        .filter(|port| port.protocol != Protocol::Udp);
    let target = |port: &ServicePort| {
        let target_port = port_on_entry(port, declared, entry)?;
        Some(ServiceTarget {
            service: service.clone(),
            port: port.clone(),
            target_port,
        })
    };
    ports.filter_map(target).collect()
}

/// The port of a WorkloadEntry for a port of a Kubernetes Service: its port with the name of the
/// target port (or, if the target port is a number, of the service port), else the number.
#[must_use]
pub(super) fn port_on_entry(
    port: &ServicePort,
    declared: &Declared,
    entry: &Instance,
) -> Option<u16> {
    let named = |name: &str| entry.ports.get(name).copied().filter(|number| *number != 0);
    let declared = declared
        .ports
        .iter()
        .find(|other| other.name == port.name || other.port == port.port);
    match declared.map(|declared| (&declared.target, &declared.name)) {
        Some((TargetPort::Number(number), name)) => Some(named(name.as_str()).unwrap_or(*number)),
        Some((TargetPort::Name(name), _)) => named(name.as_str()),
        None => Some(port.port),
    }
}

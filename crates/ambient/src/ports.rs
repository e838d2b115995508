//! The ports of services on a workload (Istio's `constructServices` and
//! `constructServicesFromWorkloadEntry`).

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_proto::istio::workload::{Port, PortList};

use super::service_facts::{Origin, PortFacts, ServiceFacts};
use navarch_api::kubernetes::{Pod, Protocol};

/// The services of a pod with their ports, by `namespace/host`.
pub(super) fn on_pod(pod: &Pod, services: &[Arc<ServiceFacts>]) -> BTreeMap<String, PortList> {
    on_workload(services, |service, port| {
        let number = |name| pod.port_named(name, Protocol::Tcp).map(u32::from);
        match &service.origin {
            // A pod without a port of that name does not serve it.
            Origin::Service(_) if !port.target_name.is_empty() => number(&port.target_name),
            Origin::Service(_) => Some(port.target),
            Origin::ServiceEntry(_) => Some(named(port, number(&port.name))),
        }
    })
}

/// The services of a WorkloadEntry, or of an endpoint of a ServiceEntry, with their ports, by
/// `namespace/host`. `ports` are its own by name.
pub(super) fn on_entry(
    ports: &BTreeMap<String, u32>,
    services: &[Arc<ServiceFacts>],
) -> BTreeMap<String, PortList> {
    on_workload(services, |service, port| {
        let number = |name: &str| ports.get(name).copied();
        match &service.origin {
            Origin::Service(_) if !port.target_name.is_empty() => number(port.target_name.as_str()),
            Origin::Service(_) => Some(number(port.name.as_str()).unwrap_or(port.target)),
            Origin::ServiceEntry(_) => Some(named(port, number(port.name.as_str()))),
        }
    })
}

/// The port of a workload that names its ports as in a ServiceEntry.
fn named(port: &PortFacts, own: Option<u32>) -> u32 {
    match own.filter(|_| !port.name.is_empty()) {
        Some(own) => own,
        None if port.target == 0 => port.number,
        None => port.target,
    }
}

/// Services with those of their ports that the workload has.
fn on_workload(
    services: &[Arc<ServiceFacts>],
    target: impl Fn(&ServiceFacts, &PortFacts) -> Option<u32>,
) -> BTreeMap<String, PortList> {
    let ports = |service: &ServiceFacts| {
        let port = |port: &PortFacts| {
            let target_port = target(service, port)?;
            Some(Port {
                service_port: port.number,
                target_port,
                ..Port::default()
            })
        };
        PortList {
            ports: service.ports.iter().filter_map(port).collect(),
        }
    };
    services
        .iter()
        .map(|service| (service.name(), ports(service)))
        .collect()
}

impl ServiceFacts {
    /// `namespace/host`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.key.namespace, self.key.hostname)
    }
}

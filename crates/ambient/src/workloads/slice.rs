//! Endpoints of EndpointSlices that are not pods: written by users for a Service without a
//! selector.

use std::net::IpAddr;

use navarch_api::kubernetes::{AddressType, EndpointSlice};
use navarch_api::object::NamespacedName;
use navarch_proto::istio::workload::{NetworkMode, Port, PortList, Workload, WorkloadStatus};
use navarch_push::view::View;

use super::pod::service_of_slice;
use crate::service_facts::facts_of_service;
use crate::site::Site;
use crate::wire::ip_bytes;

/// The workload of the first endpoint that has this first address and is not a pod.
pub(super) fn workload(
    name: &NamespacedName,
    address: IpAddr,
    site: &Site,
    view: &View<'_>,
) -> Option<Workload> {
    let slice = view.object_in::<EndpointSlice>(&site.cluster_ref, name)?;
    let meta = &slice.meta;
    let spec = &slice.spec;
    if spec.address_type == AddressType::Fqdn {
        return None;
    }

    let service = facts_of_service(&site.cluster_ref, &service_of_slice(slice)?, view)?;
    let mut endpoints = spec
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.pod.is_none());
    let endpoint = endpoints.find(|endpoint| endpoint.addresses.first() == Some(&address))?;
    let port = |port: &navarch_api::kubernetes::EndpointPort| {
        let target_port = u32::from(port.port?);
        let of_service = service
            .ports
            .iter()
            .find(|other| other.name == port.name)
            .filter(|other| other.is_tcp)?;
        Some(Port {
            service_port: of_service.number,
            target_port,
            ..Port::default()
        })
    };

    let ports = PortList {
        ports: spec.ports.iter().filter_map(port).collect(),
    };
    let is_healthy = endpoint.conditions.ready.unwrap_or(true);

    Some(Workload {
        name: meta.key.name.to_string(),
        namespace: meta.key.namespace.to_string(),
        addresses: endpoint.addresses.iter().copied().map(ip_bytes).collect(),
        network: site.network.to_string(),
        services: [(service.name(), ports)].into(),
        status: if is_healthy {
            WorkloadStatus::Healthy
        } else {
            WorkloadStatus::Unhealthy
        }
        .into(),
        cluster_id: site.cluster.to_string(),
        // The endpoint is unknown: others may have the same address.
        network_mode: NetworkMode::HostNetwork.into(),
        ..Workload::default()
    })
}

//! Network gateways: workloads refer to them, so each is a workload itself.

use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::names::NetworkId;
use navarch_proto::istio::workload::Workload;
use navarch_push::view::View;
use navarch_registry::address_name::AddressName;
use navarch_registry::remote_gateway::{RemoteGateway, remote_gateways};

use crate::mesh::MeshFacts;
use crate::network_gateways;
use crate::wire::ip_bytes;

/// The workload of a gateway; if several Gateways declare it the first is used.
pub(super) fn workload(
    network: &NetworkId,
    address: &str,
    port: u16,
    view: &View<'_>,
) -> Option<Workload> {
    let is_it = |one: &RemoteGateway| {
        one.network == *network && *one.address == *address && one.port == port
    };
    let own = view.list_all::<KubernetesGateway>().find_map(|object| {
        remote_gateways(object)
            .into_iter()
            .find(is_it)
            .map(|gateway| (object.meta.key(), gateway))
    });

    let (key, gateway) = own.or_else(|| {
        let mut known = network_gateways::of_remotes(view)
            .into_iter()
            .map(|known| (known.source, known.gateway));
        known.find(|(_, one)| is_it(one))
    })?;

    let mesh = view.get(&MeshFacts);
    let name = AddressName::NetworkGateway {
        network: network.clone(),
        address: address.into(),
        port,
    };
    let ip = address.parse().ok();

    Some(Workload {
        name: name.to_resource_name(&mesh.cluster).to_string(),
        namespace: key.namespace.to_string(),
        service_account: gateway.service_account.to_string(),
        network: network.to_string(),
        addresses: ip.map(ip_bytes).into_iter().collect(),
        hostname: if ip.is_none() {
            address.to_owned()
        } else {
            String::new()
        },
        ..Workload::default()
    })
}

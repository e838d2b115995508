//! Workloads for ztunnel (Istio's `serviceregistry/ambient/workloads.go`): pods, WorkloadEntries,
//! endpoints of ServiceEntries and of EndpointSlices, and network gateways. Those of remote
//! clusters are built from the objects there.

mod entry;
mod gateway;
mod pod;
mod slice;

use navarch_api::names::{NetworkId, ResourceName};
use navarch_api::object::ObjectMeta;
use navarch_api::text_map::TextMap;
use navarch_proto::istio::workload::{GatewayAddress, TunnelProtocol, Workload};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::address_name::AddressName;
use navarch_registry::canonical_service::{canonical_name, canonical_revision};
use navarch_registry::model::Labels;

use crate::mesh::{Mesh, MeshFacts, gateway_of};
use crate::networks::are_joined;
use crate::site::{Site, SiteOf};
use crate::split_horizon;
pub(crate) use entry::{labels_of_entry, meta_of_entry};
pub(crate) use pod::own_fields_of_pod;

/// The annotation of pods whose connections are redirected to ztunnel.
const REDIRECTION_ANNOTATION: &str = "ambient.istio.io/redirection";
/// The label of workloads with the tunnels that they support.
const TUNNEL_LABEL: &str = "networking.istio.io/tunnel";

/// The properties of a workload that lookups depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) network: NetworkId,
    /// The services that it belongs to, as `namespace/host`, sorted.
    pub(crate) services: Vec<String>,
}

/// The summary of a workload; `None` if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SummaryOf(pub(crate) AddressName);

impl Query for SummaryOf {
    type Value = Option<Summary>;

    fn compute(&self, view: &View<'_>) -> Option<Summary> {
        let workload = workload(&self.0, view)?;
        Some(Summary {
            network: NetworkId::new(workload.network),
            services: workload.services.into_keys().collect(),
        })
    }
}

/// The workload of this name, if it exists.
pub(crate) fn workload(name: &AddressName, view: &View<'_>) -> Option<Workload> {
    let mesh = view.get(&MeshFacts);
    let (site, there) = if let AddressName::Remote { cluster, workload } = name {
        ((*view.get(&SiteOf(cluster.clone()))).clone()?, &**workload)
    } else {
        (mesh.site.clone(), name)
    };

    let workload = match there {
        AddressName::Pod(pod) => pod::workload(pod, &site, view)?,
        AddressName::WorkloadEntry(entry) => entry::of_workload_entry(entry, &site, &mesh, view)?,
        AddressName::Endpoint { entry, address } => {
            entry::of_service_entry(entry, address, &mesh, view)?
        }
        AddressName::SliceEndpoint { slice, address } => {
            slice::workload(slice, *address, &site, view)?
        }
        AddressName::NetworkGateway {
            network,
            address,
            port,
        } => gateway::workload(network, address, *port, view)?,
        AddressName::SplitHorizon {
            network,
            gateway,
            service,
        } => split_horizon::workload(network, gateway, service, view)?,
        AddressName::Service(_) | AddressName::Remote { .. } => return None,
    };

    if is_in_other_network(name, &workload, &mesh, view) {
        return None;
    }

    let uid: ResourceName = name.to_resource_name(&mesh.cluster);
    Some(Workload {
        uid: uid.to_string(),
        trust_domain: mesh.workload_trust_domain(),
        ..workload
    })
}

/// Whether a workload is in another network, of which ztunnel gets no individual workloads in
/// multi-network mode.
fn is_in_other_network(
    name: &AddressName,
    workload: &Workload,
    mesh: &Mesh,
    view: &View<'_>,
) -> bool {
    let stands_alone = !matches!(
        name,
        AddressName::NetworkGateway { .. } | AddressName::SplitHorizon { .. }
    );
    are_joined(view) && stands_alone && workload.network != mesh.network.as_str()
}

/// Whether a workload accepts HBONE.
pub(crate) fn accepts_hbone(name: &AddressName, view: &View<'_>) -> bool {
    workload(name, view).is_some_and(|workload| workload.tunnel_protocol() == TunnelProtocol::Hbone)
}

/// Whether the pod with this metadata is in ambient mode: ztunnel captures its connections.
#[must_use]
pub fn is_redirected(meta: &ObjectMeta) -> bool {
    has_redirection(&meta.annotations)
}

/// Whether the pod with this metadata accepts HBONE: it is in ambient mode, or its sidecar does.
#[must_use]
pub fn declares_hbone(meta: &ObjectMeta) -> bool {
    let mut probe = Workload::default();
    set_tunnel(&mut probe, &meta.labels, &meta.annotations);
    probe.tunnel_protocol() == TunnelProtocol::Hbone
}

/// Whether istio-cni has redirected a pod to ztunnel.
fn has_redirection(annotations: &TextMap) -> bool {
    let value = annotations.get(REDIRECTION_ANNOTATION);
    value.is_some_and(|value| **value == *"enabled")
}

/// Sets the tunnel fields of a workload from its labels and annotations.
fn set_tunnel(workload: &mut Workload, labels: &Labels, annotations: &TextMap) {
    if has_redirection(annotations) {
        workload.tunnel_protocol = TunnelProtocol::Hbone.into();
    }
    if labels
        .get(TUNNEL_LABEL)
        .is_some_and(|tunnels| tunnels.split(',').any(|tunnel| tunnel == "http"))
    {
        workload.tunnel_protocol = TunnelProtocol::Hbone.into();
        workload.native_tunnel = true;
    }
}

/// Sets the names of a workload for telemetry.
pub(crate) fn set_names(workload: &mut Workload, labels: &Labels, name: &str) {
    workload.workload_name = name.to_owned();
    workload.canonical_name =
        canonical_name(labels).map_or_else(|| name.to_owned(), ToString::to_string);
    workload.canonical_revision =
        canonical_revision(labels).map_or_else(|| "latest".to_owned(), ToString::to_string);
}

/// The gateway into a workload's network.
fn network_gateway(network: &NetworkId, site: &Site, view: &View<'_>) -> Option<GatewayAddress> {
    if *network == site.network {
        site.gateway.clone()
    } else {
        gateway_of(network, view)
    }
}

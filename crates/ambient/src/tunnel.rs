//! Which workloads accept HBONE, for clients other than ztunnel (Istio's `SupportsTunnel`).

use std::net::IpAddr;

use navarch_api::kubernetes::Pod;
use navarch_api::names::NetworkId;
use navarch_api::object::Kind;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::address_name::NetworkAddress;

use crate::members::{has_address, workloads_in};
use crate::mesh::MeshFacts;
use crate::site::site_clusters;
use crate::workloads::{accepts_hbone, is_redirected};

/// Whether a workload at an address accepts HBONE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AcceptsHbone(NetworkId, IpAddr);

/// Whether a workload at this address of a network accepts HBONE, itself or through ztunnel.
#[must_use]
pub fn takes_hbone(view: &View<'_>, network: &NetworkId, address: IpAddr) -> bool {
    view.mesh().settings.ambient && *view.get(&AcceptsHbone(network.clone(), address))
}

impl Query for AcceptsHbone {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let at = NetworkAddress {
            network: self.0.clone(),
            address: self.1,
        };

        site_clusters(view).iter().any(|cluster_ref| {
            view.objects_at_in(cluster_ref, self.1).any(|object| {
                if object.kind == Kind::Pod {
                    // Of pods, which change most often, only the relevant fields are read.
                    let pod = view
                        .object_in::<Pod>(cluster_ref, &object.name)
                        .filter(|pod| !pod.spec.is_terminal());
                    return self.0 == view.get(&MeshFacts).network
                        && pod.is_some_and(|pod| is_redirected(&pod.meta));
                }
                let workloads = workloads_in(cluster_ref, &object, view);
                workloads
                    .iter()
                    .any(|name| has_address(name, &at, view) && accepts_hbone(name, view))
            })
        })
    }
}

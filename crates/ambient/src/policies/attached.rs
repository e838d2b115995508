//! The policies that a workload lists: those with a selector that selects it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::peer::{NamespacePeers, PeersOf};
use super::{authorization, name_of_waypoint_policy, peer, selected_labels};
use crate::mesh::MeshFacts;
use crate::service_facts::ServiceFacts;
use crate::waypoint::{Waypoint, WaypointOf};
use navarch_api::istio::AuthorizationPolicy;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Labels;
use navarch_registry::selects;

/// The policies with selectors of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SelectingPolicies(Namespace);

/// Names of policies by the first label of their selectors.
type Selecting = BTreeMap<(Arc<str>, Arc<str>), Vec<(Labels, Arc<str>)>>;

impl Query for SelectingPolicies {
    type Value = Selecting;

    fn compute(&self, view: &View<'_>) -> Selecting {
        let mesh = view.get(&MeshFacts);
        let mut selecting = Selecting::new();

        for policy in view.list::<AuthorizationPolicy>(&self.0) {
            let selector = selected_labels(policy.spec.selector.as_ref());
            let Some((key, value)) = selector.iter().next() else {
                continue;
            };

            if authorization::convert(policy, &mesh).is_some() {
                let key = (key.clone(), value.clone());
                selecting
                    .entry(key)
                    .or_default()
                    .push((selector, policy.meta.key.name.clone()));
            }
        }

        selecting
    }
}

/// The policies of the mesh and of a namespace that may apply to its workloads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PoliciesIn(Namespace);

/// The value of [`PoliciesIn`].
#[derive(Debug, PartialEq)]
struct NamespacePolicies {
    /// AuthorizationPolicies with selectors, with their namespaces: those of the mesh, and of the
    /// namespace unless it is the root namespace.
    selecting: Vec<(Namespace, Arc<Selecting>)>,
    /// The PeerAuthentications of the mesh.
    mesh: Arc<NamespacePeers>,
    /// Those of the namespace, unless it is the root namespace.
    own: Option<Arc<NamespacePeers>>,
}

impl Query for PoliciesIn {
    type Value = NamespacePolicies;

    fn compute(&self, view: &View<'_>) -> NamespacePolicies {
        let mesh = view.get(&MeshFacts);
        let root = &mesh.root_namespace;
        let own = (self.0 != *root).then_some(&self.0);
        let selecting = [root].into_iter().chain(own);
        NamespacePolicies {
            selecting: selecting
                .map(|namespace| {
                    (
                        namespace.clone(),
                        view.get(&SelectingPolicies(namespace.clone())),
                    )
                })
                .collect(),
            mesh: view.get(&PeersOf(root.clone())),
            own: own.map(|own| view.get(&PeersOf(own.clone()))),
        }
    }
}

/// The names of the policies that a workload of a cluster lists: AuthorizationPolicies in order,
/// then converted PeerAuthentications, then those that allow its waypoints.
pub(crate) fn policies_of(
    cluster_ref: &ClusterRef,
    labels: &Labels,
    namespace: &Namespace,
    waypoint: Option<&Arc<Waypoint>>,
    services: &[Arc<ServiceFacts>],
    view: &View<'_>,
) -> Vec<String> {
    let mesh = view.get(&MeshFacts);
    let policies = view.get(&PoliciesIn(namespace.clone()));
    let mut names = Vec::new();

    for (of, selecting) in &policies.selecting {
        let candidates = labels
            .iter()
            .filter_map(|(key, value)| selecting.get(&(key.clone(), value.clone())));
        let chosen = candidates
            .flatten()
            .filter(|(selector, _)| selects(selector, labels));
        names.extend(chosen.map(|(_, name)| format!("{of}/{name}")));
    }

    names.sort_unstable();
    let own = policies.own.as_deref();
    names.extend(peer::policies_of(
        labels,
        namespace,
        &mesh.root_namespace,
        &policies.mesh,
        own,
    ));

    if mesh.auto_allow_waypoints {
        names.extend(waypoints_let_in(cluster_ref, waypoint, services, view));
    }

    names
}

/// The policies that allow the waypoints of services and of the workload itself.
fn waypoints_let_in(
    cluster_ref: &ClusterRef,
    own: Option<&Arc<Waypoint>>,
    services: &[Arc<ServiceFacts>],
    view: &View<'_>,
) -> Vec<String> {
    let own_name = own.map(|waypoint| &waypoint.name);
    let mut names: Vec<&NamespacedName> = services
        .iter()
        .filter_map(|service| service.waypoint.as_ref())
        .collect();
    names.retain(|name| Some(*name) != own_name);
    names.sort_unstable();
    names.dedup();

    let found =
        |name: &NamespacedName| (*view.get(&WaypointOf(cluster_ref.clone(), name.clone()))).clone();
    let of_services = names.into_iter().filter_map(found);
    let all = of_services
        .chain(own.cloned())
        .filter(|waypoint| !waypoint.accounts.is_empty());
    all.map(|waypoint| {
        format!(
            "{}/{}",
            waypoint.name.namespace,
            name_of_waypoint_policy(&waypoint.name)
        )
    })
    .collect()
}

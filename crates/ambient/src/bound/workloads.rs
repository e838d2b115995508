//! The workloads of a waypoint, by their addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::istio::{ServiceEntry, WorkloadEntry};
use navarch_api::kubernetes::{Namespace as NamespaceObject, Pod};
use navarch_api::names::Namespace;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::address_name::AddressName;

use super::WaypointAddress;
use super::own::OwnAddresses;
use crate::members::{endpoints_of, name_in_cluster};
use crate::site::{remote_sites, site_clusters};
use crate::waypoint::{Waypoint, WaypointOf};
use crate::wire::ip_of;
use crate::workloads::workload;

/// A workload of a waypoint. Ordered by age, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundWorkload {
    /// Creation time of its object.
    created: Option<Timestamp>,
    /// Its `uid` in ztunnel's messages.
    uid: String,
    /// Its addresses; empty if it has a host name.
    pub addresses: Vec<IpAddr>,
}

/// The waypoints for workloads at one of these addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WaypointsAt(BTreeSet<WaypointAddress>);

/// The workloads of a namespace of a cluster with a waypoint, by waypoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BoundIn(ClusterRef, Namespace);

/// One workload with its waypoint, if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Bound(AddressName, Option<Timestamp>);

/// The workloads of the view's proxy, which is a waypoint, in Istio's order; empty for an east-west
/// gateway.
#[must_use]
pub fn workloads_of_proxy(view: &View<'_>) -> Vec<Arc<BoundWorkload>> {
    if !view.mesh().settings.ambient || super::joins_networks(view) {
        return Vec::new();
    }

    let own = view.derived(&OwnAddresses);

    // Most waypoints are for services only, and do not depend on workloads.
    let waypoints = view.get(&WaypointsAt((*own).clone()));
    if waypoints.is_empty() {
        return Vec::new();
    }

    let mut namespaces: BTreeSet<Namespace> = view
        .names::<NamespaceObject>()
        .map(|name| Namespace::new(&name.name))
        .collect();

    for cluster in remote_sites(view).iter() {
        let there = view.list_all_in::<NamespaceObject>(cluster).into_iter();
        namespaces.extend(there.map(|namespace| Namespace::new(&namespace.meta.key.name)));
    }

    namespaces.retain(|namespace| {
        waypoints
            .iter()
            .any(|waypoint| waypoint.admits(namespace, view))
    });

    namespaces.extend(
        waypoints
            .iter()
            .map(|waypoint| waypoint.name.namespace.clone()),
    );
    let mut found = Vec::new();
    for (cluster_ref, namespace) in site_clusters(view)
        .iter()
        .flat_map(|cluster_ref| namespaces.iter().map(move |one| (cluster_ref, one)))
    {
        let bound = view.get(&BoundIn(cluster_ref.clone(), namespace.clone()));
        found.extend(
            bound
                .iter()
                .filter(|(waypoint, _)| own.contains(waypoint))
                .map(|(_, one)| one.clone()),
        );
    }

    found.sort_unstable();
    found
}

impl Query for WaypointsAt {
    type Value = Vec<Arc<Waypoint>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut all: Vec<WaypointOf> = view
            .names::<KubernetesGateway>()
            .map(|name| WaypointOf(ClusterRef::Config, name.clone()))
            .collect();

        for cluster in remote_sites(view).iter() {
            let there = view.list_all_in::<KubernetesGateway>(cluster).into_iter();
            all.extend(there.map(|gateway| {
                WaypointOf(ClusterRef::Remote(cluster.clone()), gateway.meta.key())
            }));
        }

        let waypoints = all
            .iter()
            .filter_map(|waypoint| (*view.get(waypoint)).clone());
        let is_addressed = |waypoint: &Arc<Waypoint>| {
            let address = waypoint.address.as_ref().and_then(WaypointAddress::of);
            waypoint.is_for_workloads() && address.is_some_and(|address| self.0.contains(&address))
        };

        waypoints.filter(is_addressed).collect()
    }
}

impl Query for BoundIn {
    type Value = Vec<(WaypointAddress, Arc<BoundWorkload>)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Self(cluster_ref, namespace) = self;
        let mut names: Vec<(AddressName, Option<Timestamp>)> = Vec::new();
        let pods = view.list_in::<Pod>(cluster_ref, namespace).into_iter();
        names.extend(pods.map(|pod| (AddressName::Pod(pod.meta.key()), pod.meta.created)));
        let entries = view
            .list_in::<WorkloadEntry>(cluster_ref, namespace)
            .into_iter();
        names.extend(entries.map(|entry| {
            (
                AddressName::WorkloadEntry(entry.meta.key()),
                entry.meta.created,
            )
        }));

        for entry in view.list_in::<ServiceEntry>(cluster_ref, namespace) {
            let endpoints = endpoints_of(&entry.spec, &entry.meta.key());
            names.extend(endpoints.into_iter().map(|name| (name, entry.meta.created)));
        }

        let names = names
            .into_iter()
            .map(|(name, created)| Bound(name_in_cluster(cluster_ref, name), created));
        names
            .filter_map(|name| (*view.get(&name)).clone())
            .collect()
    }
}

impl Query for Bound {
    type Value = Option<(WaypointAddress, Arc<BoundWorkload>)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let workload = workload(&self.0, view)?;
        let waypoint = WaypointAddress::of(workload.waypoint.as_ref()?)?;
        let addresses = workload
            .addresses
            .iter()
            .filter_map(|bytes| ip_of(bytes))
            .collect();
        Some((
            waypoint,
            Arc::new(BoundWorkload {
                created: self.1,
                uid: workload.uid,
                addresses,
            }),
        ))
    }
}

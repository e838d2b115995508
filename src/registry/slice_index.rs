//! All EndpointSlices with the endpoints made of them, found by service, pod and address.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::model::Endpoint;
use super::multimap::Multimap;
use super::slice_endpoints::pod_of_target;
use crate::api::kubernetes::EndpointSlice;
use crate::api::object::{NamespacedName, Object};

/// The label of slices that mirror another cluster's; they belong to no Service of ours.
const MIRROR_LABEL: &str = "multicluster.kubernetes.io/service-name";

/// A slice and what was made of it.
#[derive(Clone, Debug)]
pub(super) struct SliceState {
    /// The Service that it belongs to.
    pub service: NamespacedName,
    /// The pods that it names, known or not; in order, each once.
    pub pods: Box<[NamespacedName]>,
    /// All addresses in it; in order, each once.
    pub addresses: Box<[IpAddr]>,
    /// The endpoints made of it.
    pub endpoints: Vec<Arc<Endpoint>>,
}

/// All slices that belong to a Service.
#[derive(Clone, Debug, Default)]
pub(super) struct SliceIndex {
    /// By name.
    slices: FxHashMap<NamespacedName, SliceState>,
    /// Names by service.
    by_service: Multimap<NamespacedName, NamespacedName>,
    /// Names by the pods in them.
    by_pod: Multimap<NamespacedName, NamespacedName>,
    /// Names by the addresses in them.
    by_address: Multimap<IpAddr, NamespacedName>,
}

/// The Service that a slice belongs to.
#[must_use]
pub(super) fn service_of_slice(slice: &Object<EndpointSlice>) -> Option<NamespacedName> {
    if slice.meta.labels.contains_key(MIRROR_LABEL) {
        return None;
    }
    let name = slice.spec.service.clone()?;
    Some(NamespacedName { namespace: slice.meta.namespace.clone(), name })
}

/// Each of these once, in order, with no room for more.
fn in_order<T: Ord>(items: impl Iterator<Item = T>) -> Box<[T]> {
    items.collect::<BTreeSet<T>>().into_iter().collect()
}

impl SliceState {
    /// Of a slice of this Service.
    #[must_use]
    pub(super) fn new(service: NamespacedName, slice: &EndpointSlice, endpoints: Vec<Arc<Endpoint>>) -> Self {
        Self {
            service,
            pods: in_order(slice.endpoints.iter().filter_map(|endpoint| pod_of_target(endpoint.target.as_ref()))),
            addresses: in_order(slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter().copied())),
            endpoints,
        }
    }
}

impl SliceIndex {
    /// Puts a slice, or takes it away. Gives the former state.
    pub(super) fn put(&mut self, name: &NamespacedName, state: Option<SliceState>) -> Option<SliceState> {
        let old = self.slices.remove(name);
        if let Some(old) = &old {
            let kept = state.as_ref();
            if kept.is_none_or(|state| state.service != old.service) {
                self.by_service.remove(&old.service, name);
            }
            for pod in old.pods.iter().filter(|pod| kept.is_none_or(|state| state.pods.binary_search(pod).is_err())) {
                self.by_pod.remove(pod, name);
            }
            for ip in
                old.addresses.iter().filter(|ip| kept.is_none_or(|state| state.addresses.binary_search(ip).is_err()))
            {
                self.by_address.remove(ip, name);
            }
        }
        if let Some(state) = state {
            self.by_service.insert(state.service.clone(), name.clone());
            for pod in &state.pods {
                self.by_pod.insert(pod.clone(), name.clone());
            }
            for ip in &state.addresses {
                self.by_address.insert(*ip, name.clone());
            }
            self.slices.insert(name.clone(), state);
        }
        old
    }

    /// The slice of this name.
    #[must_use]
    pub(super) fn get(&self, name: &NamespacedName) -> Option<&SliceState> {
        self.slices.get(name)
    }

    /// The slices of a Service, by name.
    pub(super) fn of_service(&self, service: &NamespacedName) -> impl Iterator<Item = (&NamespacedName, &SliceState)> {
        self.by_service.get(service).filter_map(|name| Some((name, self.slices.get(name)?)))
    }

    /// The slices that name a pod or hold an address.
    pub(super) fn touching(
        &self,
        pod: &NamespacedName,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> BTreeSet<NamespacedName> {
        let mut found: BTreeSet<NamespacedName> = self.by_pod.get(pod).cloned().collect();
        for address in addresses {
            found.extend(self.by_address.get(&address).cloned());
        }
        found
    }

    /// The slices that hold an address.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &SliceState> {
        self.by_address.get(&address).filter_map(|name| self.slices.get(name))
    }

    /// The endpoints of a Service over all of its slices. A pod that moves from one slice to another may be in both for
    /// a while: the first counts.
    #[must_use]
    pub(super) fn endpoints(&self, service: &NamespacedName) -> Vec<Arc<Endpoint>> {
        let mut seen = BTreeSet::new();
        let mut endpoints = Vec::new();
        for (_, slice) in self.of_service(service) {
            for endpoint in &slice.endpoints {
                if seen.insert((endpoint.addresses.first(), &endpoint.port_name)) {
                    endpoints.push(endpoint.clone());
                }
            }
        }
        endpoints
    }
}

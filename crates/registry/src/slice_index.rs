//! All EndpointSlices with their endpoints, found by service, pod and address.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::model::Endpoint;
use super::slice_endpoints::SliceEndpoints;
use navarch_api::kubernetes::EndpointSlice;
use navarch_api::named_table::{HasName, NamedTable};
use navarch_api::object::{NamespacedName, Object};
use navarch_tables::hash_index::HashIndex;

/// The label of slices that mirror those of another cluster. They belong to no Service of this
/// cluster.
const MIRROR_LABEL: &str = "multicluster.kubernetes.io/service-name";

/// A slice of a Service, with its endpoints.
#[derive(Clone, Debug)]
pub(super) struct SliceState {
    object: Arc<Object<EndpointSlice>>,
    /// The endpoints built from the slice.
    pub endpoints: Box<[Arc<Endpoint>]>,
    /// Number of listed endpoints that are omitted because their pods are missing.
    pub(super) pending: usize,
}

/// All slices that belong to a Service.
#[derive(Clone, Debug, Default)]
pub(super) struct SliceIndex {
    /// By name.
    slices: NamedTable<SliceState>,
    by_service: HashIndex,
    /// By the pods in them.
    by_pod: HashIndex,
    /// By the addresses in them.
    by_address: HashIndex,
}

/// The Service that a slice belongs to.
#[must_use]
pub(super) fn service_of_slice(slice: &Object<EndpointSlice>) -> Option<NamespacedName> {
    if slice.meta.labels.contains_key(MIRROR_LABEL) {
        return None;
    }
    let name = slice.spec.service.clone()?;
    Some(NamespacedName::of(slice.meta.key.namespace.clone(), name))
}

impl SliceState {
    /// The state of a slice that belongs to a Service.
    #[must_use]
    pub(super) fn new(object: Arc<Object<EndpointSlice>>, found: SliceEndpoints) -> Self {
        Self {
            object,
            endpoints: found.endpoints.into(),
            pending: found.pending,
        }
    }

    /// Whether the slice itself is unchanged: only its pods or its Service can have changed.
    #[must_use]
    pub(super) fn is_same_slice(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
    }

    /// The Service that it belongs to.
    #[must_use]
    pub(super) fn service(&self) -> NamespacedName {
        let name = self.object.spec.service.clone().unwrap_or_default();
        NamespacedName::of(self.object.meta.key.namespace.clone(), name)
    }

    /// Namespace and name of that Service.
    fn service_parts(&self) -> (&str, &str) {
        (
            self.object.meta.key.namespace.as_str(),
            self.object.spec.service.as_deref().unwrap_or_default(),
        )
    }

    /// All addresses in it, sorted and unique.
    #[must_use]
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let endpoints = self.object.spec.endpoints.iter();
        let mut addresses: Vec<IpAddr> = endpoints
            .flat_map(|endpoint| endpoint.addresses.iter().copied())
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// The pods that it lists, including missing ones.
    fn pods(&self) -> impl Iterator<Item = &NamespacedName> {
        self.object
            .spec
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.pod.as_ref())
    }
}

impl HasName for SliceState {
    fn name(&self) -> &NamespacedName {
        &self.object.meta.key
    }
}

impl SliceIndex {
    /// Sets or removes a slice. Returns the previous state.
    pub(super) fn put(
        &mut self,
        name: &NamespacedName,
        state: Option<SliceState>,
    ) -> Option<SliceState> {
        // Mostly a pod has changed: the slice is found as before.
        if let Some(new) = &state
            && self.get(name).is_some_and(|old| old.is_same_slice(new))
        {
            return state.and_then(|state| self.slices.put(state).1);
        }

        let old = self.slices.remove(name);
        if let Some((number, old)) = &old {
            self.by_service.remove(&old.service_parts(), *number);
            old.pods().for_each(|pod| self.by_pod.remove(pod, *number));
            old.addresses()
                .iter()
                .for_each(|address| self.by_address.remove(address, *number));
        }

        if let Some(state) = state {
            let (number, _) = self.slices.put(state);
            if let Some(state) = self.slices.at(number) {
                self.by_service.insert(&state.service_parts(), number);
                state.pods().for_each(|pod| self.by_pod.insert(pod, number));
                state
                    .addresses()
                    .iter()
                    .for_each(|address| self.by_address.insert(address, number));
            }
        }

        old.map(|(_, old)| old)
    }

    #[must_use]
    pub(super) fn get(&self, name: &NamespacedName) -> Option<&SliceState> {
        self.slices.get(name)
    }

    pub(super) fn of_service(&self, service: &NamespacedName) -> Vec<&SliceState> {
        let parts = (service.namespace.as_str(), &*service.name);
        self.slices.by_name(self.by_service.get(&parts), |slice| {
            slice.service_parts() == parts
        })
    }

    /// The slices that list a pod or contain an address, and possibly others with the same hash.
    pub(super) fn candidates(
        &self,
        pod: &NamespacedName,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> impl Iterator<Item = &NamespacedName> {
        let by_address = addresses
            .into_iter()
            .flat_map(move |address| self.by_address.get(&address));
        let numbers = self.by_pod.get(pod).iter().chain(by_address);
        numbers
            .filter_map(move |number| self.slices.at(*number))
            .map(HasName::name)
    }

    /// The slices that contain an address, by name.
    pub(super) fn at(&self, address: IpAddr) -> Vec<&SliceState> {
        let contains = |slice: &SliceState| {
            slice
                .object
                .spec
                .endpoints
                .iter()
                .any(|endpoint| endpoint.addresses.contains(&address))
        };
        self.slices.by_name(self.by_address.get(&address), contains)
    }

    /// The endpoints of a Service over all of its slices. A pod that moves from one slice to
    /// another may be in both for a while: the first is used.
    #[must_use]
    pub(super) fn endpoints(&self, service: &NamespacedName) -> Vec<Arc<Endpoint>> {
        let mut seen = BTreeSet::new();
        let mut endpoints = Vec::new();
        for slice in self.of_service(service) {
            for endpoint in &slice.endpoints {
                if seen.insert((endpoint.addresses.first(), &endpoint.port_name)) {
                    endpoints.push(endpoint.clone());
                }
            }
        }
        endpoints
    }
}

//! All pods, found by name, address, node and labels.

use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::model::Labels;
use super::multimap::Multimap;
use super::pod_workload::PodState;
use super::selector_index::{LabelIndex, selects};
use super::workload_labels::is_of_place;
use crate::api::names::Namespace;
use crate::api::object::NamespacedName;

/// All pods that have not failed.
#[derive(Clone, Debug, Default)]
pub(super) struct PodIndex {
    /// By name.
    pods: FxHashMap<NamespacedName, PodState>,
    /// Names by main address.
    by_address: Multimap<IpAddr, NamespacedName>,
    /// Names by node.
    by_node: Multimap<Arc<str>, NamespacedName>,
    /// Names by label of the pod itself.
    by_label: LabelIndex<NamespacedName>,
}

impl PodIndex {
    /// Puts the state of a pod, or takes it away. Gives the former one.
    pub(super) fn put(&mut self, name: &NamespacedName, state: Option<PodState>) -> Option<PodState> {
        if let Some(state) = &state {
            if let Some(ip) = state.ip() {
                self.by_address.insert(ip, name.clone());
            }
            if let Some(node) = &state.object.spec.node {
                self.by_node.insert(node.clone(), name.clone());
            }
        }
        let old = self.pods.get(name);
        if let Some(old) = old {
            let kept = |find: fn(&PodState) -> Option<IpAddr>| state.as_ref().and_then(find);
            if let Some(ip) = old.ip().filter(|ip| kept(PodState::ip) != Some(*ip)) {
                self.by_address.remove(&ip, name);
            }
            let node = state.as_ref().and_then(|state| state.object.spec.node.as_ref());
            if let Some(old) = old.object.spec.node.as_ref().filter(|old| node != Some(old)) {
                self.by_node.remove(old, name);
            }
        }
        let (was, is) = (old.map(PodState::labels), state.as_ref().map(PodState::labels));
        if was != is {
            if let Some(was) = was {
                self.by_label.remove(&name.namespace, was, name);
            }
            if let Some(is) = is {
                self.by_label.insert(&name.namespace, is, name);
            }
        }
        match state {
            Some(state) => self.pods.insert(name.clone(), state),
            None => self.pods.remove(name),
        }
    }

    /// The pod of this name.
    #[must_use]
    pub(super) fn named(&self, name: &NamespacedName) -> Option<&PodState> {
        self.pods.get(name)
    }

    /// A ready pod of a namespace at an address: the first by name, since pods in the host's network share theirs.
    #[must_use]
    pub(super) fn ready_at(&self, namespace: &Namespace, address: IpAddr) -> Option<&PodState> {
        let names = self.by_address.get(&address).filter(|name| name.namespace == *namespace);
        names.filter_map(|name| self.pods.get(name)).find(|pod| pod.is_ready())
    }

    /// The pods whose main address this is.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &NamespacedName> {
        self.by_address.get(&address)
    }

    /// The pods that run on a node.
    pub(super) fn on_node(&self, node: &Arc<str>) -> impl Iterator<Item = &NamespacedName> {
        self.by_node.get(node)
    }

    /// The pods of a namespace that have the labels that a selector asks for.
    pub(super) fn selected<'a>(
        &'a self,
        namespace: &Namespace,
        selector: &'a Labels,
    ) -> impl Iterator<Item = &'a NamespacedName> {
        let candidates = self.by_label.candidates(namespace, selector);
        candidates.filter(|name| self.pods.get(*name).is_some_and(|pod| selects(selector, pod.labels())))
    }

    /// The pods of a namespace whose workload has the labels that a selector asks for, those of its place included.
    #[must_use]
    pub(super) fn selected_by_workload(&self, namespace: &Namespace, selector: &Labels) -> Vec<&PodState> {
        let own = selector.iter().filter(|(label, _)| !is_of_place(label));
        let own: Labels = own.map(|(label, value)| (label.clone(), value.clone())).collect();
        let candidates = self.by_label.candidates(namespace, &own).filter_map(|name| self.pods.get(name));
        candidates.filter(|pod| selects(selector, &pod.workload.labels)).collect()
    }
}

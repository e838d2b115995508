//! All pods, found by name, address, node and labels.

use std::net::IpAddr;
use std::sync::Arc;

use super::model::Labels;
use super::pod_workload::PodState;
use super::selector_index::{LabelIndex, selects};
use super::workload_labels::is_of_place;
use navarch_api::kubernetes::Pod;
use navarch_api::named_table::{HasName, NamedTable};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_tables::hash_index::HashIndex;

/// All pods that have not failed.
#[derive(Clone, Debug, Default)]
pub(super) struct PodIndex {
    /// By name.
    pods: NamedTable<PodState>,
    /// By main address.
    by_address: HashIndex,
    by_node: HashIndex,
    /// By label of the pod itself.
    by_label: LabelIndex,
}

impl PodIndex {
    /// Sets or removes the state of a pod. Returns the previous one.
    pub(super) fn put(
        &mut self,
        name: &NamespacedName,
        state: Option<PodState>,
    ) -> Option<PodState> {
        let (number, old) = match state {
            Some(state) => self.pods.put(state),
            None => self
                .pods
                .remove(name)
                .map(|(number, old)| (number, Some(old)))?,
        };

        let new = self.pods.at(number);
        let of = |state: Option<&PodState>| {
            (
                state.and_then(PodState::ip),
                state.and_then(PodState::node).cloned(),
            )
        };

        let (old_ip, old_node) = of(old.as_ref());
        let (new_ip, new_node) = of(new);
        if old_ip != new_ip {
            old_ip.inspect(|ip| self.by_address.remove(ip, number));
            new_ip.inspect(|ip| self.by_address.insert(ip, number));
        }

        if old_node != new_node {
            old_node.inspect(|node| self.by_node.remove(&**node, number));
            new_node.inspect(|node| self.by_node.insert(&**node, number));
        }

        let was = old.as_ref().map(PodState::labels);
        let is = new.map(PodState::labels);
        if was != is {
            if let Some(was) = was {
                self.by_label.remove(&name.namespace, was, number);
            }
            if let Some(is) = is {
                self.by_label.insert(&name.namespace, is, number);
            }
        }

        old
    }

    /// Replaces the object of a pod without a relevant change, to release the memory of the
    /// previous object.
    pub(super) fn refresh(&mut self, object: Arc<Object<Pod>>) {
        if let Some(state) = self.pods.get_mut(&object.meta.key) {
            state.object = object;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PodState> {
        self.pods.iter()
    }

    #[must_use]
    pub(super) fn named(&self, name: &NamespacedName) -> Option<&PodState> {
        self.pods.get(name)
    }

    /// A ready pod of a namespace at an address: the first by name, because pods in the host
    /// network share their address.
    #[must_use]
    pub(super) fn ready_at(&self, namespace: &Namespace, address: IpAddr) -> Option<&PodState> {
        self.at(address)
            .into_iter()
            .find(|pod| pod.name().namespace == *namespace && pod.is_ready())
    }

    /// The pods whose main address this is, by name.
    pub(super) fn at(&self, address: IpAddr) -> Vec<&PodState> {
        self.pods.by_name(self.by_address.get(&address), |pod| {
            pod.ip() == Some(address)
        })
    }

    /// The pods that run on a node, by name.
    pub(super) fn on_node(&self, node: &str) -> Vec<&PodState> {
        self.pods.by_name(self.by_node.get(node), |pod| {
            pod.node().is_some_and(|other| **other == *node)
        })
    }

    /// The pods of a namespace that match a selector, by name.
    pub(super) fn selected(&self, namespace: &Namespace, selector: &Labels) -> Vec<&PodState> {
        let wanted =
            |pod: &PodState| pod.name().namespace == *namespace && selects(selector, pod.labels());
        self.pods
            .by_name(self.by_label.candidates(namespace, selector), wanted)
    }

    /// The pods of a namespace whose workload matches a selector, including the labels of its
    /// location; by name.
    #[must_use]
    pub(super) fn selected_by_workload(
        &self,
        namespace: &Namespace,
        selector: &Labels,
    ) -> Vec<&PodState> {
        let own = selector.iter().filter(|(label, _)| !is_of_place(label));
        let own: Labels = own
            .map(|(label, value)| (label.clone(), value.clone()))
            .collect();
        let wanted = |pod: &PodState| {
            pod.name().namespace == *namespace && selects(selector, pod.workload.labels())
        };
        self.pods
            .by_name(self.by_label.candidates(namespace, &own), wanted)
    }
}

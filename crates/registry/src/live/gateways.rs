//! Finds network gateways.

use super::Registry;
use super::work::Work;
use crate::directory::DirectoryChange;
use crate::network_gateways::{
    gateways_by_network, gateways_of_object, gateways_of_service, node_selector,
};
use navarch_store::Objects;

impl Registry {
    /// Updates network gateways from services. Node-port gateways are kept even without matching
    /// nodes, so that a change of nodes updates them.
    pub(super) fn update_gateways(
        &mut self,
        objects: &Objects,
        work: &Work,
        change: &mut DirectoryChange,
    ) {
        let nothing = work.gateways.is_empty() && work.gateway_objects.is_empty();
        if nothing && !self.directory.network_gateways.is_empty() {
            return;
        }

        for name in &work.gateways {
            let found = self.services.get(name).map(|state| {
                let found = gateways_of_service(
                    &state.service,
                    &state.object,
                    objects.nodes.iter(),
                    &self.mesh_inputs,
                );
                (found, node_selector(&state.object).is_some())
            });

            match found {
                Some((gateways, behind_nodes)) if behind_nodes || !gateways.is_empty() => {
                    self.gateways.insert(name.clone(), gateways)
                }
                Some(_) | None => self.gateways.remove(name),
            };
        }

        for name in &work.gateway_objects {
            let found = objects
                .kubernetes_gateways
                .get(name)
                .map(|object| gateways_of_object(object, &self.mesh_inputs));
            match found.filter(|gateways| !gateways.is_empty()) {
                Some(gateways) => self.gateway_objects.insert(name.clone(), gateways),
                None => self.gateway_objects.remove(name),
            };
        }

        let all = self.gateways.values().chain(self.gateway_objects.values());
        let new = gateways_by_network(&self.mesh_inputs.networks, all);
        if new != self.directory.network_gateways {
            self.directory.network_gateways = new;
            change.network_gateways = true;
        }
    }
}

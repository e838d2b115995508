//! The inputs of resources: to find the object to blame, and for debugging.

use super::collect::ResourceOf;
use super::{Engine, ProxyId};
use crate::fact::FactKey;
use crate::resource::ResourceType;
use navarch_api::names::ResourceName;

/// One resource whose translation panicked.
pub type Faulty = navarch_engine::Faulty<FactKey>;

impl Engine {
    /// The facts that a resource of a proxy depends on, sorted: its objects are among them.
    #[must_use]
    pub fn provenance(
        &self,
        id: ProxyId,
        resource_type: ResourceType,
        name: &ResourceName,
    ) -> Vec<FactKey> {
        let query = self.resource_query(id, resource_type, name);
        self.engine.provenance(id, &query)
    }

    /// As [`Engine::provenance`], in the order in which they were read.
    #[must_use]
    pub fn provenance_in_order(
        &self,
        id: ProxyId,
        resource_type: ResourceType,
        name: &ResourceName,
    ) -> Vec<FactKey> {
        let query = self.resource_query(id, resource_type, name);
        self.engine.provenance_in_order(id, &query)
    }

    /// Those facts of [`Engine::provenance_in_order`] that may be why a resource is not the one of a
    /// revision: what changed in the result of a table of all objects, but not in what was looked up
    /// there, is left out.
    #[must_use]
    pub fn provenance_since(
        &self,
        id: ProxyId,
        resource_type: ResourceType,
        name: &ResourceName,
        revision: u64,
    ) -> Vec<FactKey> {
        let query = self.resource_query(id, resource_type, name);
        self.engine.provenance_since(id, &query, revision)
    }

    /// The query of a resource as the proxy has subscribed to it.
    fn resource_query(
        &self,
        id: ProxyId,
        resource_type: ResourceType,
        name: &ResourceName,
    ) -> ResourceOf {
        // Resources differ only for this type, and only subscriptions by address have unknown
        // names.
        let is_on_demand = resource_type == ResourceType::Workload
            && self
                .published(id, resource_type)
                .is_some_and(|collection| collection.unknown.is_some());
        ResourceOf {
            resource_type,
            name: name.clone(),
            is_on_demand,
        }
    }

    /// Resources whose translation panicked and that are served with their last good value.
    #[must_use]
    pub fn faults(&self) -> Vec<Faulty> {
        self.engine.faults()
    }
}

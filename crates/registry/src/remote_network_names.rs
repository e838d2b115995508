//! The names of the workloads that represent other networks, maintained as endpoints and gateways
//! change.
//!
//! ztunnel gets one workload for each service and remote network, named after the gateway into the
//! network. Whether a service reaches beyond its network is only checked when the workload is
//! built, so there may be more names than workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::address_name::AddressName;
use super::directory::Directory;
use super::model::{Endpoint, ServiceKey};
use super::remote_gateway::KnownGateways;
use navarch_api::names::{ClusterId, NetworkId, ResourceName};

/// The names by service.
#[derive(Clone, Debug, Default)]
pub struct RemoteNetworkNames {
    /// The network of the configuration cluster.
    own: NetworkId,
    clusters: BTreeMap<ClusterId, NetworkId>,
    gateways: KnownGateways,
    names: BTreeMap<ServiceKey, BTreeSet<ResourceName>>,
}

/// Added and removed names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameChange {
    /// Names that ztunnel can request from now on.
    pub added: BTreeSet<ResourceName>,
    /// Names that ztunnel can no longer request.
    pub removed: BTreeSet<ResourceName>,
}

impl RemoteNetworkNames {
    /// Sets the networks of all clusters and the gateways; returns whether they changed. Then all
    /// services must be updated.
    pub fn set_networks(
        &mut self,
        own: NetworkId,
        clusters: BTreeMap<ClusterId, NetworkId>,
        gateways: KnownGateways,
    ) -> bool {
        let differ = self.own != own || self.clusters != clusters || self.gateways != gateways;
        self.own = own;
        self.clusters = clusters;
        self.gateways = gateways;
        differ
    }

    /// Services with endpoints in another network into which a gateway is known.
    pub fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.names.keys()
    }

    /// Updates the names of a service from its endpoints. The cost depends on the number of
    /// endpoints.
    pub fn update(&mut self, key: &ServiceKey, directory: &Directory, change: &mut NameChange) {
        let endpoints = directory
            .endpoints
            .get(key)
            .into_iter()
            .flat_map(|endpoints| &endpoints.endpoints);
        let networks = endpoints
            .map(|endpoint| self.network(endpoint))
            .filter(|network| **network != self.own);
        let networks: BTreeSet<&NetworkId> = networks.collect();

        let name = |network: &NetworkId| {
            let gateway = Arc::from(self.gateways.into_network(network).first()?.name());
            let name = AddressName::SplitHorizon {
                network: network.clone(),
                gateway,
                service: key.clone(),
            };
            // Such a name does not contain the cluster.
            Some(name.to_resource_name(&ClusterId::default()))
        };

        let new: BTreeSet<ResourceName> = networks.into_iter().filter_map(name).collect();
        let old = match new.is_empty() {
            true => self.names.remove(key),
            false => self.names.insert(key.clone(), new.clone()),
        };
        let old = old.unwrap_or_default();
        old.difference(&new)
            .for_each(|name| change.remove(name.clone()));

        new.difference(&old)
            .for_each(|name| change.add(name.clone()));
    }
}

impl RemoteNetworkNames {
    /// The network of an endpoint for ztunnel.
    fn network<'a>(&'a self, endpoint: &'a Endpoint) -> &'a NetworkId {
        endpoint.ambient_network(
            self.clusters
                .get(&endpoint.workload.location.cluster)
                .unwrap_or(&self.own),
        )
    }
}

impl NameChange {
    /// Adds a name. One that was removed within the same change is unchanged.
    pub fn add(&mut self, name: ResourceName) {
        if !self.removed.remove(&name) {
            self.added.insert(name);
        }
    }

    /// Removes a name. One that was added within the same change is unchanged.
    pub fn remove(&mut self, name: ResourceName) {
        if !self.added.remove(&name) {
            self.removed.insert(name);
        }
    }
}

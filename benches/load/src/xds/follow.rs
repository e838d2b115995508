//! The resources and subscriptions of a simulated proxy: clusters of CDS refer to EDS resources,
//! listeners of LDS to RDS ones, as with Envoy.
//!
//! Pure state: it takes responses and returns changes of subscriptions. [`crate::xds::delta`] and
//! [`crate::xds::state`] encode them.

use rustc_hash::FxHashSet;

use crate::xds::asking::{Asking, Asks, Difference, place};
use crate::xds::names::{Id, Names, UNASSIGNED};
use crate::xds::peek;
use crate::xds::resource_type::ResourceType;
use crate::xds::wire::ReceivedResource;

/// The state of a proxy.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// The types for which a response has arrived.
    answered: [bool; 5],
    /// Whether a route configuration has `vhds`.
    has_vhds: bool,
    /// The subscriptions to EDS, by cluster.
    endpoints: Asking,
    /// The subscriptions to RDS, by listener.
    routes: Asking,
    /// The versions of all resources by type, indexed by the number of the name.
    held: [Vec<Id>; 5],
}

/// The resources that a response removes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gone<'a> {
    /// Resources with these names.
    These(&'a [&'a [u8]]),
    /// All that it does not contain.
    Others,
}

/// The effects of a response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The type whose subscription changes; `None` if none does.
    pub(crate) resource_type: Option<ResourceType>,
    /// The change of that subscription.
    pub(crate) names: Difference,
    /// How many resources it removed.
    pub(crate) removed: usize,
}

impl Follower {
    /// Applies a response.
    pub(crate) fn take(
        &mut self,
        names: &Names,
        resource_type: ResourceType,
        received: &[ReceivedResource<'_>],
        gone: Gone<'_>,
    ) -> Turn {
        let ids = names.numbers(resource_type, received);
        let gone = match gone {
            Gone::These(gone) => names.ids(resource_type, gone),
            Gone::Others => self.others(resource_type, &ids),
        };
        if let Some(answered) = self.answered.get_mut(resource_type.index()) {
            *answered = true;
        }

        if let Some(held) = self.held.get_mut(resource_type.index()) {
            for (id, version) in &ids {
                *place(held, *id) = *version;
            }
            for id in &gone {
                held.get_mut(*id as usize)
                    .into_iter()
                    .for_each(|version| *version = UNASSIGNED);
            }
        }

        let all = ids.iter().map(|(id, _)| *id).chain(gone.iter().copied());
        let mut difference = Difference::default();

        match resource_type {
            ResourceType::Endpoints => self.endpoints.mark_received(all),
            ResourceType::Routes => {
                self.has_vhds = self.has_vhds
                    || received
                        .iter()
                        .any(|received| peek::has_vhds(received.content));
                self.routes.mark_received(all);
            }
            ResourceType::Clusters => {
                let requested = requested_by(names, ResourceType::Endpoints, received);
                all.zip(requested).for_each(|(id, requested)| {
                    self.endpoints.replace(id, requested, &mut difference)
                });
            }
            ResourceType::Listeners => {
                let requested = requested_by(names, ResourceType::Routes, received);
                all.zip(requested).for_each(|(id, requested)| {
                    self.routes.replace(id, requested, &mut difference)
                });
            }
            ResourceType::VirtualHosts => {}
        }

        let target = match resource_type {
            ResourceType::Clusters => Some(ResourceType::Endpoints),
            ResourceType::Listeners => Some(ResourceType::Routes),
            ResourceType::Endpoints | ResourceType::Routes | ResourceType::VirtualHosts => None,
        };
        let changes = !difference.more.is_empty() || !difference.less.is_empty();
        Turn {
            resource_type: target.filter(|_| changes),
            names: difference,
            removed: gone.len(),
        }
    }

    /// The resources of a type except these.
    fn others(&self, resource_type: ResourceType, these: &[(Id, Id)]) -> Vec<Id> {
        let these: FxHashSet<Id> = these.iter().map(|(id, _)| *id).collect();
        self.held(resource_type)
            .map(|(id, _)| id)
            .filter(|id| !these.contains(id))
            .collect()
    }

    /// Whether every subscription has been answered.
    pub(crate) fn is_synced(&self) -> bool {
        let hosts = !self.has_vhds || self.is_answered(ResourceType::VirtualHosts);
        let complete = self.endpoints.is_complete() && self.routes.is_complete();
        complete
            && self.is_answered(ResourceType::Clusters)
            && self.is_answered(ResourceType::Listeners)
            && hosts
    }

    /// Whether to subscribe to virtual hosts. Envoy does so once, at the first route configuration
    /// with `vhds`.
    pub(crate) fn wants_hosts(&self) -> bool {
        self.has_vhds
    }

    /// Whether to subscribe to listeners. Envoy does so when its clusters have their endpoints.
    pub(crate) fn wants_listeners(&self) -> bool {
        self.is_answered(ResourceType::Clusters) && self.endpoints.is_complete()
    }

    /// Whether a response of a type has arrived on this stream.
    fn is_answered(&self, resource_type: ResourceType) -> bool {
        self.answered
            .get(resource_type.index())
            .copied()
            .unwrap_or(false)
    }

    /// The stream ended: every subscription must be answered again.
    pub(crate) fn restart(&mut self) {
        self.answered = [false; 5];
    }

    /// Names and versions of the resources of a type.
    pub(crate) fn held(&self, resource_type: ResourceType) -> impl Iterator<Item = (Id, Id)> {
        let versions = self
            .held
            .get(resource_type.index())
            .into_iter()
            .flatten()
            .copied();
        (0..)
            .zip(versions)
            .filter(|(_, version)| *version != UNASSIGNED)
    }

    /// The names in the subscription to a type; empty for wildcard subscriptions.
    pub(crate) fn wanted(&self, resource_type: ResourceType) -> impl Iterator<Item = Id> {
        let asking = match resource_type {
            ResourceType::Endpoints => Some(&self.endpoints),
            ResourceType::Routes => Some(&self.routes),
            ResourceType::Clusters | ResourceType::Listeners | ResourceType::VirtualHosts => None,
        };
        asking.into_iter().flat_map(Asking::names)
    }
}

/// The references of each received resource to another type, followed by empty ones for removed
/// resources.
fn requested_by(
    names: &Names,
    target: ResourceType,
    received: &[ReceivedResource<'_>],
) -> impl Iterator<Item = Asks> + use<> {
    let mut texts = Vec::new();
    let mut ends = Vec::with_capacity(received.len());

    for received in received {
        match target {
            ResourceType::Endpoints => texts.extend(peek::endpoints_of(received.content)),
            ResourceType::Routes => peek::routes_of(received.content, &mut texts),
            ResourceType::Clusters | ResourceType::Listeners | ResourceType::VirtualHosts => {}
        }
        ends.push(texts.len());
    }

    let ids = names.ids(target, &texts);
    let mut start = 0;
    let asks = ends.into_iter().map(move |end| {
        let requested = Asks::of(ids.get(start..end).unwrap_or_default());
        start = end;
        requested
    });

    asks.chain(std::iter::repeat(Asks::Nothing))
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::cluster::v3::{Cluster, cluster};
    use prost::Message;

    use super::*;

    /// A cluster with the EDS service name `service`.
    fn cluster(service: &str) -> Vec<u8> {
        let config = cluster::EdsClusterConfig {
            service_name: service.to_owned(),
            eds_config: None,
        };
        let kind = cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into());
        let cluster = Cluster {
            eds_cluster_config: Some(config),
            cluster_discovery_type: Some(kind),
            ..Default::default()
        };
        cluster.encode_to_vec()
    }

    #[test]
    fn endpoint_subscriptions_follow_clusters() {
        let names = Names::default();
        let mut proxy = Follower::default();
        let x = cluster("x");
        let y = cluster("y");
        let received = |name, version, content| ReceivedResource {
            name,
            version,
            content,
        };

        let texts = |ids: &[Id]| {
            let texts = names.texts();
            ids.iter()
                .map(|id| texts.name(ResourceType::Endpoints, *id).to_vec())
                .collect::<Vec<_>>()
        };

        let none: Vec<Vec<u8>> = Vec::new();

        let all = [received(b"a", b"1", &x), received(b"b", b"1", &x)];
        let Turn {
            resource_type,
            names: difference,
            removed,
        } = proxy.take(&names, ResourceType::Clusters, &all, Gone::These(&[]));
        assert_eq!((resource_type, removed), (Some(ResourceType::Endpoints), 0));
        assert_eq!(
            (texts(&difference.more), texts(&difference.less)),
            (vec![b"x".to_vec()], none.clone())
        );

        // One of two clusters changes its reference; the other still refers to the old name.
        let turn = proxy.take(
            &names,
            ResourceType::Clusters,
            &[received(b"a", b"2", &y)],
            Gone::These(&[]),
        );

        assert_eq!(
            (texts(&turn.names.more), texts(&turn.names.less)),
            (vec![b"y".to_vec()], none.clone())
        );
        let turn = proxy.take(&names, ResourceType::Clusters, &[], Gone::These(&[b"b"]));
        assert_eq!(
            (texts(&turn.names.more), texts(&turn.names.less)),
            (none, vec![b"x".to_vec()])
        );

        assert_eq!(
            (proxy.held(ResourceType::Clusters).count(), turn.removed),
            (1, 1)
        );

        proxy.take(&names, ResourceType::Listeners, &[], Gone::Others);
        assert!(!proxy.is_synced(), "y has not arrived");
        assert_eq!(
            proxy.take(
                &names,
                ResourceType::Endpoints,
                &[received(b"y", b"1", b"")],
                Gone::These(&[])
            ),
            Turn::default()
        );

        assert!(proxy.is_synced());
        proxy.restart();
        assert!(!proxy.is_synced());
    }

    #[test]
    fn resources_missing_from_a_full_response_are_removed() {
        let names = Names::default();
        let mut proxy = Follower::default();
        let x = cluster("x");
        let received = |name| ReceivedResource {
            name,
            version: b"1",
            content: &x,
        };

        proxy.take(
            &names,
            ResourceType::Clusters,
            &[received(b"a"), received(b"b"), received(b"c")],
            Gone::Others,
        );

        let turn = proxy.take(
            &names,
            ResourceType::Clusters,
            &[received(b"b")],
            Gone::Others,
        );
        assert_eq!(
            turn,
            Turn {
                removed: 2,
                ..Turn::default()
            },
            "b still refers to x"
        );

        let turn = proxy.take(&names, ResourceType::Clusters, &[], Gone::Others);
        assert_eq!(
            (turn.resource_type, turn.names.less.len(), turn.removed),
            (Some(ResourceType::Endpoints), 1, 1)
        );
        assert_eq!(
            (
                proxy.held(ResourceType::Clusters).count(),
                proxy.wanted(ResourceType::Endpoints).count()
            ),
            (0, 0)
        );
    }
}

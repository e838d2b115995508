//! What a workload learns from the clusters that its sidecars request.
//!
//! Requested clusters are collected for a second, and at most so often the workload learns from them:
//! the client that has requested one goes on to request its endpoints, and each lesson is a change
//! for all sidecars of the workload. What is collected is learned, too, when the stream ends.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use tracing::debug;

use super::{Stream, push_ended};
use crate::session::discovery_request::Request;
use crate::session::subscription::SERVICE_CLUSTER;
use navarch_api::names::ResourceName;
use navarch_push::learned::LearnedChange;
use navarch_push::mesh_state::Change;
use navarch_push::resource::ResourceType;

/// How long requested clusters are collected.
const COLLECTED_FOR: Duration = Duration::from_secs(1);
/// Maximum number of requested clusters that a stream collects. Nothing is learned from further ones,
/// which are sent all the same.
const MAX_UNLEARNED: usize = 2_048;
/// The longest name of a cluster of a service that can exist: its host has at most 253 characters,
/// its subset 63.
const MAX_CLUSTER_BYTES: usize = 384;

/// Clusters that a client has requested, and that its workload has not learned yet.
///
/// The client is subscribed to all of them, so that their memory is charged to it. None of them was
/// subscribed to before: looking them up takes time of the push thread, which a client gets in turn
/// with all others only for subscriptions that change.
#[derive(Debug, Default)]
pub(super) struct Unlearned {
    clusters: BTreeSet<ResourceName>,
    /// When the workload learns from them.
    due: Option<Instant>,
}

impl Unlearned {
    /// Collects clusters of services that the client has not `subscribed` to before, as far as there
    /// is room.
    fn collect(
        &mut self,
        names: &BTreeSet<ResourceName>,
        subscribed: &BTreeSet<ResourceName>,
        now: Instant,
    ) {
        let is_cluster = |name: &&ResourceName| {
            name.as_str().starts_with(SERVICE_CLUSTER) && name.as_str().len() <= MAX_CLUSTER_BYTES
        };
        let room = MAX_UNLEARNED.saturating_sub(self.clusters.len());
        let new = names.difference(subscribed);
        let clusters = new.filter(is_cluster).take(room);
        self.clusters.extend(clusters.cloned());

        if !self.clusters.is_empty() {
            self.due = self.due.or(Some(now + COLLECTED_FOR));
        }
    }

    /// Leaves out clusters that the client no longer subscribes to.
    fn leave_out(&mut self, names: &BTreeSet<ResourceName>) {
        self.clusters.retain(|name| !names.contains(name));
        if self.clusters.is_empty() {
            self.due = None;
        }
    }

    /// When the workload learns from what is collected; `None` if that is nothing.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Stream {
    /// Collects the clusters that a sidecar with a learned scope requests by name: on demand, or again
    /// on a new stream.
    pub(super) fn note_clusters(&mut self, request: &Request) {
        let Request::Delta(request) = request else {
            return;
        };
        let is_cluster = request.resource_type == ResourceType::Cluster;
        if !is_cluster || !self.connection.proxy.has_learned_scope {
            return;
        }

        let names = &request.subscribe.names;
        if !names.is_empty() {
            debug!(?names, "clusters requested by name");
            self.core.metrics.requested_on_demand(names.len());
            let session = self.connection.session.lock();
            let subscribed = session.subscribed(ResourceType::Cluster);
            self.unlearned.collect(names, &subscribed, Instant::now());
        }

        let left = &request.unsubscribe.names;
        if !left.is_empty() {
            self.unlearned.leave_out(left);
        }
    }

    /// Has the workload learn from those of the collected clusters that exist for the client. The push
    /// thread has looked these up for the client's subscription; it gets no other names, which would
    /// take more of its time than this client's share.
    ///
    /// # Errors
    /// If the push thread has ended.
    pub(super) async fn learn(&mut self) -> Result<(), Status> {
        if self.unlearned.due.is_none() {
            return Ok(());
        }
        let session = &self.connection.session;
        let known = session.lock().known_clusters(&self.unlearned.clusters);
        let Some(clusters) = known else {
            self.unlearned.due = Some(Instant::now() + COLLECTED_FOR);
            return Ok(());
        };

        self.unlearned = Unlearned::default();
        if clusters.is_empty() {
            return Ok(());
        }

        let id = self.connection.proxy_id;
        let learned = self
            .core
            .push
            .inspect(move |inspect| inspect.engine.learned_by(id, clusters))
            .await
            .map_err(push_ended)?;
        let Some((workload, hosts)) = learned else {
            return Ok(());
        };

        debug!(%workload, ?hosts, "learned");
        let change = Change::Learned(workload, LearnedChange::Add(hosts));
        self.core
            .push
            .change(vec![change])
            .await
            .map_err(push_ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: impl IntoIterator<Item = String>) -> BTreeSet<ResourceName> {
        all.into_iter().map(ResourceName::new).collect()
    }

    /// Collects clusters of a client that has not subscribed to any.
    fn collect(unlearned: &mut Unlearned, wanted: &BTreeSet<ResourceName>, now: Instant) {
        unlearned.collect(wanted, &BTreeSet::new(), now);
    }

    #[test]
    fn clusters_are_collected_from_the_first_one_on() {
        let mut unlearned = Unlearned::default();
        let begun = Instant::now();
        collect(
            &mut unlearned,
            &names(["PassthroughCluster".to_owned()]),
            begun,
        );
        assert_eq!(unlearned.due(), None, "it is no service's");

        let cluster = |host: &str| format!("outbound|80||{host}.example");
        collect(&mut unlearned, &names([cluster("a")]), begun);
        let later = begun + COLLECTED_FOR / 2;
        collect(&mut unlearned, &names([cluster("a"), cluster("b")]), later);
        assert_eq!(unlearned.due(), Some(begun + COLLECTED_FOR));
        assert_eq!(unlearned.clusters, names([cluster("a"), cluster("b")]));
    }

    #[test]
    fn names_take_bounded_memory() {
        let mut unlearned = Unlearned::default();
        let now = Instant::now();
        let long = format!("outbound|80||{}", "x".repeat(MAX_CLUSTER_BYTES));
        collect(&mut unlearned, &names([long]), now);
        assert!(unlearned.clusters.is_empty());

        for round in 0..3 {
            let many = (0..MAX_UNLEARNED).map(|at| format!("outbound|{round}||h{at}.example"));
            collect(&mut unlearned, &names(many), now);
        }
        assert_eq!(unlearned.clusters.len(), MAX_UNLEARNED);
    }

    #[test]
    fn the_longest_name_of_a_cluster_is_collected() {
        let host = format!("{}.example", "x".repeat(245));
        let longest = format!("outbound|65535|{}|{host}", "v".repeat(63));
        let mut unlearned = Unlearned::default();
        collect(&mut unlearned, &names([longest]), Instant::now());
        assert_eq!(unlearned.clusters.len(), 1);
    }

    #[test]
    fn what_a_client_repeats_is_not_looked_up_again() {
        let mut unlearned = Unlearned::default();
        let both = names(["outbound|80||a.example", "outbound|80||b.example"].map(str::to_owned));
        let first = names(["outbound|80||a.example".to_owned()]);
        unlearned.collect(&first, &both, Instant::now());
        assert_eq!(unlearned.due(), None);
        unlearned.collect(&both, &first, Instant::now());
        assert_eq!(unlearned.clusters, &both - &first);
    }

    #[test]
    fn what_a_client_unsubscribes_from_is_no_longer_held() {
        let mut unlearned = Unlearned::default();
        let many = |count: usize| names((0..count).map(|at| format!("outbound|80||h{at}.example")));
        collect(&mut unlearned, &many(3), Instant::now());
        unlearned.leave_out(&many(2));
        assert_eq!(unlearned.clusters, &many(3) - &many(2));
        unlearned.leave_out(&many(3));
        assert!(unlearned.clusters.is_empty());
        assert_eq!(unlearned.due(), None);
    }
}

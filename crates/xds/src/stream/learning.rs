//! What a workload learns from the clusters that its sidecars request.

use std::collections::BTreeSet;

use tonic::Status;
use tracing::debug;

use super::{Stream, push_ended};
use crate::session::discovery_request::Request;
use navarch_api::names::ResourceName;
use navarch_push::learned::LearnedChange;
use navarch_push::mesh_state::Change;
use navarch_push::resource::ResourceType;

/// Maximum number of requested clusters that a stream remembers until the workload learns them.
/// Nothing is learned from further ones, which are sent all the same.
const MAX_UNLEARNED: usize = 4_096;

/// Clusters that a client has requested, and that its workload has not learned yet.
#[derive(Debug, Default)]
pub(super) struct Unlearned(BTreeSet<ResourceName>);

impl Stream {
    /// Notes the clusters that a sidecar with a learned scope requests by name: on demand, or again
    /// on a new stream.
    pub(super) fn note_clusters(&mut self, request: &Request) {
        let Request::Delta(request) = request else {
            return;
        };
        let names = &request.subscribe.names;
        let is_cluster = request.resource_type == ResourceType::Cluster;
        if !is_cluster || !self.connection.proxy.has_learned_scope || names.is_empty() {
            return;
        }

        debug!(?names, "clusters requested by name");
        self.core.metrics.requested_on_demand(names.len());
        let room = MAX_UNLEARNED.saturating_sub(self.unlearned.0.len());
        self.unlearned.0.extend(names.iter().take(room).cloned());
    }

    /// Has the workload learn from the noted clusters, once all services are known.
    pub(super) async fn learn(&mut self) -> Result<(), Status> {
        if self.unlearned.0.is_empty() || !self.core.push.is_synced() {
            return Ok(());
        }

        let clusters = std::mem::take(&mut self.unlearned.0);
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

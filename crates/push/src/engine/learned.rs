//! What a proxy teaches its workload: the hosts of clusters that it has requested on demand; and which
//! clusters it has for what reason.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Engine, ProxyId};
use crate::learned::ScopedClusters;
use crate::query::Query;
use crate::view::View;
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::names::ResourceName;

/// What the proxy teaches by requesting these clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LearnedBy {
    clusters: BTreeSet<ResourceName>,
}

/// How many clusters the proxy has with this subscription by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScopeOf {
    requested: Arc<BTreeSet<ResourceName>>,
}

impl Query for ScopeOf {
    type Value = Option<ScopedClusters>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.translator().scoped_clusters(&self.requested, view)
    }

    fn fallback(&self, _: Option<&Self::Value>) -> Option<Self::Value> {
        Some(None)
    }
}

impl Query for LearnedBy {
    type Value = Option<(LearnedWorkload, LearnedHosts)>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.translator().learned(&self.clusters, view)
    }

    fn fallback(&self, _: Option<&Self::Value>) -> Option<Self::Value> {
        Some(None)
    }
}

impl Engine {
    /// The workload of a connected proxy, and the hosts of those among these clusters that it had
    /// to request. `None` if there is nothing to learn.
    #[must_use]
    pub fn learned_by(
        &self,
        id: ProxyId,
        clusters: BTreeSet<ResourceName>,
    ) -> Option<(LearnedWorkload, LearnedHosts)> {
        let learned = self.engine.query_once(id, &LearnedBy { clusters })?;
        (*learned).clone()
    }

    /// How many clusters a connected proxy with a learned scope has that has requested these by name.
    /// `None` if it is served whole.
    #[must_use]
    pub fn scoped_clusters(
        &self,
        id: ProxyId,
        requested: Arc<BTreeSet<ResourceName>>,
    ) -> Option<ScopedClusters> {
        let counted = self.engine.query_once(id, &ScopeOf { requested })?;
        *counted
    }
}

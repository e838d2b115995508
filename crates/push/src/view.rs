//! The recording view: the only access of translators to the snapshot and the proxy.

mod inputs;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::attr::{Attr, AttrValue};
use super::context::PushContext;
use super::fact::FactKey;
use super::learned::ScopedClusters;
use super::name_list::NameList;
use super::notice::{Notice, Unavailable};
use super::query::{ProxyQuery, Query};
use super::resource::ResourceType;
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::names::ResourceName;

pub(crate) use self::inputs::MeshInputs;

/// Builds resources: the interface between the engine and `envoy/`.
pub trait Translator: Send + Sync {
    /// The names of all resources of a type in the wildcard subscription of the view's proxy.
    fn names(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName>;

    /// Further names in the wildcard subscription beside [`names`](Self::names): those of types
    /// with so many resources that the list is maintained incrementally.
    fn further_names(&self, resource_type: ResourceType, view: &View<'_>) -> Option<NameList> {
        let _ = (resource_type, view);
        None
    }

    /// The resource names that the requested names refer to, if they are different; `None` if names
    /// are used as they are.
    fn referenced_names(
        &self,
        resource_type: ResourceType,
        requested: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<Vec<ResourceName>> {
        let _ = (resource_type, requested, view);
        None
    }

    /// The resource names of a type that belong to another name: the virtual hosts of the route
    /// configuration `of`, the workloads and services at the address `of`, or the service `of` and
    /// its workloads.
    fn members(
        &self,
        resource_type: ResourceType,
        of: &ResourceName,
        view: &View<'_>,
    ) -> Vec<ResourceName> {
        let _ = (resource_type, of, view);
        Vec::new()
    }

    /// The names of resources of a type that the view's proxy gets in addition to those that it
    /// requests.
    fn unnamed(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        let _ = (resource_type, view);
        Vec::new()
    }

    /// Whether a route configuration of the view's proxy has at least as many virtual hosts as those
    /// that are sent one by one ([`Settings::fine_grained_routes_min_hosts`]).
    ///
    /// [`Settings::fine_grained_routes_min_hosts`]: navarch_api::settings::Settings::fine_grained_routes_min_hosts
    fn has_large_routes(&self, view: &View<'_>) -> bool {
        let _ = view;
        false
    }

    /// What the view's proxy teaches its workload by requesting these clusters: the hosts of those
    /// that it would not have otherwise. `None` if there is nothing to learn.
    fn learned(
        &self,
        clusters: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<(LearnedWorkload, LearnedHosts)> {
        let _ = (clusters, view);
        None
    }

    /// How many clusters the view's proxy has that has requested these by name, by reason. `None` if
    /// it gets all of them without a request.
    fn scoped_clusters(
        &self,
        requested: &BTreeSet<ResourceName>,
        view: &View<'_>,
    ) -> Option<ScopedClusters> {
        let _ = (requested, view);
        None
    }

    /// The encoded resource of this name for the view's proxy; `None` if it does not exist.
    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<bytes::Bytes>;

    /// As [`resource`](Self::resource), for a client that requests some workloads by address
    /// instead of all.
    fn resource_on_demand(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<bytes::Bytes> {
        self.resource(resource_type, name, view)
    }
}

/// A snapshot as seen by one proxy. Every read is recorded in the trace of the current computation.
pub struct View<'a>(pub(super) navarch_engine::View<'a, MeshInputs>);

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> View<'a> {
    /// The value of a query for this proxy, from the memo if its trace replays.
    ///
    /// # Panics
    /// If the query's computation panics and it has no fallback value.
    pub fn get<Q: Query>(&self, query: &Q) -> Arc<Q::Value> {
        self.0.get(query)
    }

    /// The value of a proxy query, recorded as an attribute: only its value, not its inputs,
    /// distinguishes proxies.
    ///
    /// # Panics
    /// As [`View::get`].
    pub fn derived<Q: ProxyQuery>(&self, query: &Q) -> Arc<Q::Value> {
        self.0.derived(query)
    }

    /// A plain attribute of the proxy.
    pub(super) fn attribute(&self, attr: &Attr) -> AttrValue {
        self.0.attribute(attr).unwrap_or(AttrValue::Absent)
    }

    /// Records the read of a fact and returns the snapshot to read it from.
    pub(super) fn read(&self, fact: FactKey) -> &'a PushContext {
        self.0.read(fact)
    }

    /// The snapshot, to find the key of a fact that is then read.
    pub(super) fn unrecorded(&self) -> &'a PushContext {
        self.0.unrecorded()
    }

    /// Records a remark for the author of a configuration object that is ignored in part: what is
    /// wrong, in which object, and the consequence. It is kept with the result, logged once and
    /// served at `/debug/push_status`.
    pub fn remark(&self, text: impl Into<Arc<str>>) {
        self.0.remark(text);
    }

    /// Records an item that is counted in a gauge as long as the computation's result is in force.
    pub fn notice(&self, notice: Notice) {
        self.0.notice(notice);
    }

    /// Records a subject of a gauge, as [`Self::notice`].
    pub fn count(&self, gauge: &'static str, subject: impl Into<Arc<str>>) {
        self.notice(Notice::Subject {
            gauge,
            subject: subject.into(),
        });
    }

    /// Records a failed lookup, as [`Self::notice`].
    pub fn fail(&self, what: Unavailable, subject: impl Into<Arc<str>>) {
        self.notice(Notice::Failed {
            what,
            subject: subject.into(),
        });
    }

    /// The translator, for the engine's own queries.
    pub(super) fn translator(&self) -> &'a dyn Translator {
        self.0.environment()
    }
}

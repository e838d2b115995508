//! The engine of the control plane: connected proxies, their subscriptions, and the collections
//! published to each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::collect::CollectionOf;
use self::prepare::Prepared;
use super::context::PushContext;
use super::delivery::Delivery;
use super::fact::FactKey;
use super::notice::{Notice, Unavailable};
use super::proxy::Proxy;
use super::query::Query;
use super::resource::{Collection, ResourceType};
use super::view::{MeshInputs, Translator, View};
use navarch_engine::NoticeChange;
use navarch_tables::hash::KeyedMap;

mod collect;
mod large_routes;
mod learned;
mod prepare;
mod provenance;

pub use super::delivery::{PublishedCollection, PushCause, Sink};
pub use super::subscription::{Interest, ProxyId};
pub(crate) use navarch_engine::Reads;
pub use navarch_engine::{EngineConfig, EngineSizes, PushStats, Remark};
pub use provenance::Faulty;

/// The engine. One thread owns it.
pub struct Engine {
    engine: navarch_engine::Engine<MeshInputs>,
    delivery: Delivery,
    /// Subscriptions that are being computed in time slices.
    prepared: KeyedMap<ProxyId, Prepared>,
}

impl Engine {
    /// An engine on a first snapshot.
    #[must_use]
    pub fn new(context: Arc<PushContext>, translator: Arc<dyn Translator>) -> Self {
        Self::with_config(EngineConfig::default(), context, translator)
    }

    /// An engine on a first snapshot, with this configuration.
    #[must_use]
    pub fn with_config(
        config: EngineConfig,
        context: Arc<PushContext>,
        translator: Arc<dyn Translator>,
    ) -> Self {
        Self {
            engine: navarch_engine::Engine::with_config(config, context, translator),
            delivery: Delivery::default(),
            prepared: KeyedMap::default(),
        }
    }

    /// An independent engine with the same proxies and results: changes of it do not affect this
    /// engine, and cost only what they affect. It has no sinks. The cost of the copy is
    /// proportional to the kept results.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            engine: self.engine.copy(),
            delivery: Delivery::default(),
            prepared: KeyedMap::default(),
        }
    }

    /// The snapshot in force.
    #[must_use]
    pub fn context(&self) -> &Arc<PushContext> {
        self.engine.snapshot()
    }

    /// The revision of the snapshot in force.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.engine.revision()
    }

    /// Adds a proxy. Nothing is computed until it subscribes.
    pub fn connect(&mut self, proxy: Arc<Proxy>, sink: Arc<dyn Sink>) -> ProxyId {
        let id = self.engine.connect(proxy);
        self.delivery.connect(id, sink);
        id
    }

    /// Removes a proxy.
    pub fn disconnect(&mut self, id: ProxyId) {
        self.delivery.disconnect(id);
        self.prepared.remove(&id);
        self.engine.disconnect(id);
        self.engine.sweep_if_due();
    }

    /// The connected proxies, and the published types of each.
    pub fn proxies(&self) -> Vec<(ProxyId, BTreeSet<ResourceType>)> {
        self.engine.subscribers()
    }

    /// Sets the subscription of a proxy to one type, and publishes the result at once.
    pub fn subscribe(&mut self, id: ProxyId, resource_type: ResourceType, interest: Interest) {
        self.answer(
            id,
            &CollectionOf {
                resource_type,
                interest,
            },
            1,
        );
    }

    /// Publishes a collection to a proxy; it answers `answers` subscriptions.
    fn answer(&mut self, id: ProxyId, collection: &CollectionOf, answers: u32) {
        let resource_type = collection.resource_type;
        let cause = Arc::new(PushCause {
            revision: self.engine.revision(),
            changed: Vec::new(),
            answers,
        });

        let delivery = &mut self.delivery;
        let mut is_answered = false;
        self.engine
            .subscribe(id, resource_type, collection, &mut |to, of, published| {
                if !is_answered && (to, of) == (id, resource_type) {
                    is_answered = true;
                    delivery.answer(to, of, published, &cause);
                } else {
                    delivery.publish(to, of, published, &cause);
                }
            });

        self.prepared.remove(&id);
        self.delivery.end_change();
        self.engine.sweep_if_due();
    }

    /// Answers subscriptions of a type from which the proxy has unsubscribed since, and removes the
    /// subscription.
    pub(super) fn answer_and_unsubscribe(
        &mut self,
        id: ProxyId,
        resource_type: ResourceType,
        answers: u32,
    ) {
        let collection = CollectionOf {
            resource_type,
            interest: Interest::default(),
        };
        self.answer(id, &collection, answers);
        self.unsubscribe(id, resource_type);
    }

    /// Removes a subscription.
    pub fn unsubscribe(&mut self, id: ProxyId, resource_type: ResourceType) {
        self.engine.unsubscribe(id, resource_type);
    }

    /// Replaces the snapshot in force. `changed` must contain every fact whose value differs from
    /// the last snapshot's; the cost is proportional to the number of their readers.
    pub fn apply(&mut self, context: Arc<PushContext>, changed: Vec<FactKey>) -> PushStats {
        let cause = Arc::new(PushCause {
            revision: self.engine.revision() + 1,
            changed,
            answers: 0,
        });

        let delivery = &mut self.delivery;
        let mut published = 0;
        let stats = self
            .engine
            .apply(context, &cause.changed, &mut |to, of, collection| {
                published += usize::from(delivery.publish(to, of, collection, &cause));
            });

        self.delivery.end_change();
        self.engine.sweep_if_due();
        PushStats { published, ..stats }
    }

    /// Recomputes all results, as if every fact had changed, and publishes those that differ: for
    /// operators who suspect a missed dependency.
    pub fn recompute(&mut self) -> PushStats {
        let facts = self.engine.facts();
        self.apply(self.context().clone(), facts)
    }

    /// The collection of a type that was last published to a proxy.
    #[must_use]
    pub fn published(&self, id: ProxyId, resource_type: ResourceType) -> Option<Arc<Collection>> {
        self.engine.published(id, resource_type)
    }

    /// The proxies with resources that depend on any of these facts, by type. Costs what depends on
    /// the facts.
    #[must_use]
    pub fn affected_proxies(&self, facts: &[FactKey]) -> BTreeMap<ProxyId, BTreeSet<ResourceType>> {
        self.engine.reach(facts)
    }

    /// Runs a query for a proxy, outside any push; `None` if the proxy is not connected.
    pub fn query<Q: Query>(&self, id: ProxyId, query: &Q) -> Option<Arc<Q::Value>> {
        self.engine.query(id, query)
    }

    /// The snapshot as seen for a proxy; `None` if the proxy is not connected.
    fn view(&self, proxy: ProxyId) -> Option<View<'_>> {
        self.engine.view(proxy).map(View)
    }

    /// Sizes for metrics and debugging.
    #[must_use]
    pub fn sizes(&self) -> EngineSizes {
        self.engine.sizes()
    }

    /// Lookups of results since the start.
    #[must_use]
    pub(crate) fn reads(&self) -> Reads {
        self.engine.reads()
    }

    /// The remarks of all results in force, by text.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        self.engine.remarks()
    }

    /// Remarks since the last call.
    pub fn take_fresh_remarks(&mut self) -> BTreeSet<Arc<str>> {
        self.engine.take_fresh_remarks()
    }

    /// The gauge items that became in force, or ceased to be, since the last call.
    pub(crate) fn take_changed_notices(&mut self) -> Vec<NoticeChange<Notice>> {
        self.engine.take_changed_notices()
    }

    /// Failed lookups since the last call.
    pub(crate) fn take_failed(&mut self) -> BTreeMap<Unavailable, u64> {
        self.engine.take_occurrences()
    }

    /// Keeps published collections from now on, until they are taken.
    pub fn keep_published(&mut self) {
        self.delivery.keep();
    }

    /// Takes the collections published since the last call; empty unless they are kept.
    pub fn take_published(&mut self) -> Vec<PublishedCollection> {
        self.delivery.take_kept()
    }

    /// Whether subscriptions have ended or changed since the last sweep, or values were read once,
    /// so that results may be unused.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        self.engine.has_orphans()
    }

    /// Begins a sweep of unused results, unless one is in progress. The cost is proportional to the
    /// results; [`Engine::continue_sweep`] does the work.
    pub fn begin_sweep(&mut self) {
        self.engine.begin_sweep();
    }

    /// Whether a sweep is in progress.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        self.engine.is_sweeping()
    }

    /// Continues the sweep while `may_go_on` returns true, checked about every tenth of a
    /// millisecond; returns true when it is complete.
    pub fn continue_sweep(&mut self, may_go_on: impl FnMut() -> bool) -> bool {
        self.engine.continue_sweep(may_go_on)
    }

    /// Zero before the first sweep. The pause before the next sweep depends on it.
    #[must_use]
    pub fn last_sweep(&self) -> Duration {
        self.engine.last_sweep()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

/// For tests, which have little data: two dependents make a gate, and a sweep can stop after each
/// step.
#[cfg(test)]
pub(crate) const SMALL: EngineConfig = EngineConfig {
    gate_min_dependents: 2,
    steps_per_time_check: 1,
};

#[cfg(test)]
mod tests;

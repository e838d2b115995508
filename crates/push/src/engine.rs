//! The engine: connected proxies, the state published to each, and its update after changes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use self::collect::CollectionOf;
use super::context::PushContext;
use super::core::{Core, Derived, ProxyState, PublishedState};
use super::fact::FactKey;
use super::ids::{NodeId, QueryId};
use super::observer;
use super::proxy::Proxy;
use super::query::Query;
use super::resource::{Collection, ResourceType};
use super::view::{Translator, View};
use navarch_api::hash::KeyedMap;
use navarch_api::names::ResourceName;

mod affected_proxies;
mod collect;
mod config;
mod copy;
mod freeing;
mod links;
mod prepare;
mod provenance;
mod published;
mod recompute;
mod remarks;
mod revalidate;

pub use config::EngineConfig;
pub use provenance::Faulty;
pub(crate) use remarks::Reads;
pub use remarks::Remark;

/// The id of a connected proxy within one engine; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyId(u64);

/// The subscription of a stream to one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interest {
    /// Wildcard: all resources of the proxy.
    pub wildcard: bool,
    /// Requested names, whether or not they exist; for [`ResourceType::VirtualHost`] the route
    /// configurations whose virtual hosts are requested.
    pub names: Arc<BTreeSet<ResourceName>>,
}

/// Why a push happened; shared by all collections that it publishes.
#[derive(Debug, Default)]
pub struct PushCause {
    /// Revision of the snapshot, counted from 1 at start.
    pub revision: u64,
    /// The facts that changed, empty for an answer to a subscription.
    pub changed: Vec<FactKey>,
    /// Number of subscriptions that this answers; 0 for a change.
    pub answers: u32,
}

/// The receiver of a proxy's collections. Must not block: it is called from the engine's thread,
/// once per change and proxy.
pub trait Sink: Send + Sync {
    /// Receives the new collection of one type.
    fn publish(&self, kind: ResourceType, collection: Arc<Collection>, cause: &Arc<PushCause>);

    /// All collections of a change were published; not called after an answer to a subscription,
    /// nor if nothing was published. Sinks that order responses across types wait for it.
    fn settled(&self) {}
}

/// Statistics of one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStats {
    /// Groups of subscriptions that the change may affect.
    pub groups: usize,
    /// Collections handed to sinks.
    pub published: usize,
    /// Recomputed results.
    pub computed: u64,
    /// Results marked and dependencies checked: the cost of finding out what changed.
    pub visited: u64,
}

/// Sizes of the engine's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSizes {
    /// Kept results.
    pub results: usize,
    /// Facts that something has read.
    pub facts: usize,
    /// Distinct attributes of proxies that were read.
    pub attributes: usize,
    /// Distinct values of attributes.
    pub attribute_values: usize,
    /// Connected proxies.
    pub proxies: usize,
}

/// The engine. One thread owns it.
pub struct Engine {
    /// Kept results, proxies, subscriptions.
    core: RefCell<Core>,
    /// The snapshot in force.
    context: Arc<PushContext>,
    translator: Arc<dyn Translator>,
    /// The sink of each proxy.
    sinks: KeyedMap<u64, Arc<dyn Sink>>,
    next_proxy: u64,
    /// Proxies to which the current change was published.
    published_to: BTreeSet<u64>,
    /// The last two collections that were compared, and whether they are equal.
    compared: Option<(Arc<Collection>, Arc<Collection>, bool)>,
    /// Collections published since this was last taken; `None` without an observer.
    published: Option<Vec<observer::PublishedCollection>>,
}

impl ProxyId {
    /// The id with this number, for a proxy that the engine has assigned it to.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(number)
    }

    /// The number that [`ProxyId::of`] takes.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
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
        let core = RefCell::new(Core::new(config));
        Self {
            core,
            context,
            translator,
            sinks: KeyedMap::default(),
            next_proxy: 0,
            published_to: BTreeSet::new(),
            compared: None,
            published: None,
        }
    }

    /// The snapshot in force.
    #[must_use]
    pub fn context(&self) -> &Arc<PushContext> {
        &self.context
    }

    /// The revision of the snapshot in force.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.core.borrow().revision
    }

    /// Adds a proxy. Nothing is computed until it subscribes.
    pub fn connect(&mut self, proxy: Arc<Proxy>, sink: Arc<dyn Sink>) -> ProxyId {
        let id = self.next_proxy;
        self.next_proxy += 1;
        let state = ProxyState {
            proxy,
            answers: KeyedMap::default(),
            derived: BTreeMap::new(),
            published: KeyedMap::default(),
            prepared: None,
        };
        self.core.get_mut().proxies.insert(id, state);
        self.sinks.insert(id, sink);
        ProxyId(id)
    }

    /// Removes a proxy.
    pub fn disconnect(&mut self, id: ProxyId) {
        self.sinks.remove(&id.0);
        let core = self.core.get_mut();
        let Some(state) = core.proxies.remove(&id.0) else {
            return;
        };

        if state.prepared.is_some() {
            core.sweeps.add_orphans();
        }
        for (kind, published) in state.published {
            Self::unlink_ended(core, id.0, kind, published.node);
        }

        for (attr, derived) in state.derived {
            if let Derived::From(node) = derived
                && let Some(node) = core.memo.get_mut(node)
            {
                node.rare_mut().watchers.remove(&(id.0, attr));
            }
        }

        core.marked.remove_failing(id.0);
        self.sweep_if_due();
    }

    /// Sets the subscription of a proxy to one type, and publishes the result at once.
    pub fn subscribe(&mut self, id: ProxyId, kind: ResourceType, interest: Interest) {
        let query = self
            .core
            .get_mut()
            .query_id(&CollectionOf { kind, interest });
        self.answer(id, kind, query, 1);
    }

    /// Publishes the result of a query to a proxy; the result answers `answers` subscriptions.
    fn answer(&mut self, id: ProxyId, kind: ResourceType, query: QueryId, answers: u32) {
        let cause = Arc::new(PushCause {
            revision: self.core.get_mut().revision,
            changed: Vec::new(),
            answers,
        });

        if let Some(old) = self
            .core
            .get_mut()
            .proxies
            .get_mut(&id.0)
            .and_then(|state| state.published.remove(&kind))
        {
            Self::unlink_ended(self.core.get_mut(), id.0, kind, old.node);
        }

        if let Some((node, collection)) = self.evaluate(id.0, query) {
            self.link_published(
                id.0,
                kind,
                PublishedState {
                    query,
                    node,
                    collection: collection.clone(),
                },
            );
            if let Some(sink) = self.sinks.get(&id.0) {
                sink.publish(kind, collection.clone(), &cause);
                self.note_published(id.0, kind, collection);
            }
        }

        if let Some(state) = self.core.get_mut().proxies.get_mut(&id.0) {
            state.prepared = None;
        }

        self.revalidate_dropped(&cause, &mut PushStats::default());
        self.notify_sinks();
        self.sweep_if_due();
    }

    /// Answers subscriptions of a type from which the proxy has unsubscribed since, and removes the
    /// subscription.
    pub(super) fn answer_and_unsubscribe(&mut self, id: ProxyId, kind: ResourceType, answers: u32) {
        let query = self.core.get_mut().query_id(&CollectionOf {
            kind,
            interest: Interest::default(),
        });
        self.answer(id, kind, query, answers);
        self.unsubscribe(id, kind);
    }

    /// Removes a subscription.
    pub fn unsubscribe(&mut self, id: ProxyId, kind: ResourceType) {
        let core = self.core.get_mut();
        if let Some(old) = core
            .proxies
            .get_mut(&id.0)
            .and_then(|state| state.published.remove(&kind))
        {
            Self::unlink_ended(core, id.0, kind, old.node);
        }
    }

    /// Replaces the snapshot in force. `changed` must contain every fact whose value differs from
    /// the last snapshot's; the cost is proportional to the number of their readers.
    pub fn apply(&mut self, context: Arc<PushContext>, changed: Vec<FactKey>) -> PushStats {
        let core = self.core.get_mut();
        core.revision += 1;
        self.context = context;
        let before = core.counters;
        self.mark(&changed);
        let core = self.core.get_mut();
        let cause = Arc::new(PushCause {
            revision: core.revision,
            changed,
            answers: 0,
        });

        let mut stats = PushStats::default();
        let failing = self.core.get_mut().marked.take_failing();
        self.revalidate(failing, &cause, &mut stats);
        self.revalidate_dropped(&cause, &mut stats);
        self.notify_sinks();
        let core = self.core.get_mut();
        stats.computed = core.counters.computed() - before.computed();
        stats.visited = core.counters.visited() - before.visited();
        self.sweep_if_due();

        stats
    }

    /// The collection of a type that was last published to a proxy.
    #[must_use]
    pub fn published(&self, id: ProxyId, kind: ResourceType) -> Option<Arc<Collection>> {
        self.core
            .borrow()
            .proxies
            .get(&id.0)?
            .published
            .get(&kind)
            .map(|published| published.collection.clone())
    }

    /// Sizes for metrics and debugging.
    #[must_use]
    pub fn sizes(&self) -> EngineSizes {
        self.core.borrow().sizes()
    }

    /// Runs a query for a connected proxy, outside any push (debug endpoints, tests).
    pub fn query<Q: Query>(&self, id: ProxyId, query: &Q) -> Arc<Q::Value> {
        self.view(id.0).get(query)
    }

    /// The snapshot as seen for a proxy.
    fn view(&self, proxy: u64) -> View<'_> {
        View {
            core: &self.core,
            context: &self.context,
            translator: &*self.translator,
            proxy,
        }
    }

    /// Marks all results that these facts may affect. Dependents of a gate are marked only if the
    /// gate's value has changed.
    fn mark(&mut self, changed: &[FactKey]) {
        let core = self.core.get_mut();
        core.gates.close();
        changed.iter().for_each(|fact| core.mark(fact));
        // Gates are computed for a proxy of their own.
        self.view(u64::MAX).settle_gates(u16::MAX);
        self.core.get_mut().open_all();
    }

    /// Updates a subscription's query for a proxy.
    fn evaluate(&self, proxy: u64, query: QueryId) -> Option<(NodeId, Arc<Collection>)> {
        let node = self.view(proxy).node_of(query).ok()?;
        let value = self
            .core
            .borrow()
            .memo
            .get(node)
            .map(|node| node.value.clone())?;
        Some((node, value.downcast::<Collection>().ok()?))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("sizes", &self.sizes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

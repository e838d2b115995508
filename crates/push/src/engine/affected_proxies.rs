//! The subscriptions that facts affect: follows the same edges as marking, without changing
//! anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{Engine, ProxyId};
use crate::deps::Dep;
use crate::fact::FactKey;
use crate::ids::NodeId;
use crate::resource::ResourceType;
use navarch_api::hash::KeyedSet;

impl Engine {
    /// The proxies with resources that depend on any of these facts, by type. Costs what depends on
    /// the facts.
    #[must_use]
    pub fn affected_proxies(&self, facts: &[FactKey]) -> BTreeMap<ProxyId, BTreeSet<ResourceType>> {
        let core = self.core.borrow();
        let mut todo: Vec<NodeId> = facts.iter().flat_map(|fact| core.readers(fact)).collect();
        let mut seen = KeyedSet::default();
        let mut reached: BTreeMap<ProxyId, BTreeSet<ResourceType>> = BTreeMap::new();

        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }

            let Some(node) = core.memo.get(id) else {
                continue;
            };

            for (proxy, kind) in node.subscribers() {
                reached.entry(ProxyId(proxy)).or_default().insert(kind);
            }

            // A parent may have been recomputed since without reading this one.
            let reads = |parent: &&NodeId| core.memo.reads(**parent, Dep::Node(id));
            todo.extend(node.parents.as_slice().iter().filter(reads));
        }

        reached
    }
}

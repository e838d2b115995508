//! Whom facts reach: the same edges by which a change is marked, followed without changing anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{Engine, ProxyId};
use crate::fact::FactKey;
use crate::memo::{Dep, NodeId};
use crate::resource::ResourceType;
use navarch_api::hash::KeyedSet;

impl Engine {
    /// The proxies that are shown something made of any of these facts, and of which types. Costs what depends on the facts.
    #[must_use]
    pub fn reached(&self, facts: &[FactKey]) -> BTreeMap<ProxyId, BTreeSet<ResourceType>> {
        self.follow(facts, false)
    }

    /// What might come out different if these facts had other values: the proxies, and their types. Costs what depends on the facts.
    #[must_use]
    pub fn may_change(&self, facts: &[FactKey]) -> BTreeMap<ProxyId, BTreeSet<ResourceType>> {
        self.follow(facts, true)
    }

    /// Follows facts to what is made of them; `derived` has proxies count with all of their types where what is known of the proxy itself
    /// rests on the facts, or could not be found out.
    fn follow(&self, facts: &[FactKey], derived: bool) -> BTreeMap<ProxyId, BTreeSet<ResourceType>> {
        let core = self.core.borrow();
        let mut todo: Vec<NodeId> = facts.iter().flat_map(|fact| core.readers(fact)).collect();
        let mut seen = KeyedSet::default();
        let mut reached: BTreeMap<ProxyId, BTreeSet<ResourceType>> = BTreeMap::new();
        let mut whole: BTreeSet<u64> = if derived { core.failing.clone() } else { BTreeSet::new() };
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            let Some(node) = core.nodes.get(&id) else { continue };
            for (proxy, kind) in &node.subscribers {
                reached.entry(ProxyId(*proxy)).or_default().insert(*kind);
            }
            if derived {
                whole.extend(node.watchers.iter().map(|(proxy, _)| *proxy));
            }
            // A parent may have been computed anew since, without reading this.
            let reads =
                |parent: &&NodeId| core.nodes.get(*parent).is_some_and(|node| node.deps.contains(&Dep::Node(id)));
            todo.extend(node.parents.iter().filter(reads));
        }
        for (proxy, state) in whole.iter().filter_map(|proxy| Some((proxy, core.proxies.get(proxy)?))) {
            reached.entry(ProxyId(*proxy)).or_default().extend(state.shown.keys().copied());
        }
        reached
    }
}

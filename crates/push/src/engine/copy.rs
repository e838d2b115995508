//! A copy of the engine, on which a change can be tried.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::{Engine, ProxyId};
use crate::resource::ResourceType;
use navarch_api::hash::KeyedMap;

impl Engine {
    /// An independent engine with the same proxies and results: changes of it do not affect this
    /// engine, and cost only what they affect. It has no sinks. The cost of the copy is
    /// proportional to the kept results.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            core: RefCell::new(self.core.borrow().copy()),
            context: self.context.clone(),
            translator: self.translator.clone(),
            sinks: KeyedMap::default(),
            next_proxy: self.next_proxy,
            published_to: BTreeSet::new(),
            compared: None,
            published: None,
        }
    }

    /// The connected proxies, and the published types of each.
    pub fn proxies(&self) -> Vec<(ProxyId, BTreeSet<ResourceType>)> {
        let core = self.core.borrow();
        let of = |(id, state): (&u64, &crate::core::ProxyState)| {
            (ProxyId(*id), state.published.keys().copied().collect())
        };
        core.proxies.iter().map(of).collect()
    }
}

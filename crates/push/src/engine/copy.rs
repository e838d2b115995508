//! A copy of the engine, on which a change can be tried.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::{Engine, ProxyId};
use crate::resource::ResourceType;
use navarch_api::hash::KeyedMap;

impl Engine {
    /// An engine of its own with the same proxies and results: what is tried there changes nothing here, and costs what it reaches. Nobody
    /// is published to. Costs what is kept.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            core: RefCell::new(self.core.borrow().copy()),
            context: self.context.clone(),
            translator: self.translator.clone(),
            sinks: KeyedMap::default(),
            next_proxy: self.next_proxy,
            told: BTreeSet::new(),
            compared: None,
            published: None,
        }
    }

    /// The connected proxies, and the types that each is shown something of.
    pub fn proxies(&self) -> Vec<(ProxyId, BTreeSet<ResourceType>)> {
        let core = self.core.borrow();
        let of = |(id, state): (&u64, &crate::core::ProxyState)| (ProxyId(*id), state.shown.keys().copied().collect());
        core.proxies.iter().map(of).collect()
    }
}

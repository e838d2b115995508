//! A question about a proxy that is not connected yet: the form of its routes is settled when its
//! stream starts, and depends on their size.

use std::sync::Arc;

use super::{Engine, ProxyId};
use crate::proxy::Proxy;
use crate::query::Query;
use crate::view::View;

/// Whether the proxy has a large route configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasLargeRoutes;

impl Query for HasLargeRoutes {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.translator().has_large_routes(view)
    }

    fn fallback(&self, _: Option<&bool>) -> Option<bool> {
        Some(false)
    }
}

impl Engine {
    /// Adds a proxy that is asked about, and to which nothing is published.
    pub fn connect_to_ask(&mut self, proxy: Arc<Proxy>) -> ProxyId {
        self.engine.connect(proxy)
    }

    /// Whether a route configuration of a connected proxy is so large that its virtual hosts are
    /// better sent one by one. Costs what its largest tables cost, which its subscription needs
    /// next; proxies with the same services share it.
    pub fn has_large_routes(&mut self, id: ProxyId) -> bool {
        // What is held counts as unused once the proxy is disconnected, and is freed if it stays so.
        self.engine.hold(id, &HasLargeRoutes);
        let is_large = self.engine.query(id, &HasLargeRoutes);
        is_large.is_some_and(|is_large| *is_large)
    }
}

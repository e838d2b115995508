//! VirtualServices as translators want them: names completed, delegates merged, found by gateway, host and visibility.
//!
//! Agrees in meaning with Istio's `pilot/pkg/model/virtualservice.go`. A merged VirtualService is a query of its own
//! ([`merged`]), so that an edit of one reaches only those who read its routes; the index over all of them holds hosts,
//! gateways and visibility alone and cuts off when only routes change.

mod delegate;
mod destinations;
mod index;
mod names;

use std::sync::Arc;

pub use destinations::Destinations;
pub use index::{IndexedVirtualService, VirtualServiceIndex, VirtualServices, VirtualServicesOfGateway};

use navarch_api::istio::VirtualService;
use navarch_api::object::NamespacedName;
use navarch_push::view::View;

/// The name that stands for all sidecars in a VirtualService's `gateways`.
pub const MESH_GATEWAY: &str = "mesh";

/// A VirtualService with full names, its delegates' routes in place; `None` for one that is missing or itself a delegate.
#[must_use]
pub fn merged(view: &View<'_>, name: &NamespacedName) -> Option<Arc<VirtualService>> {
    (*view.get(&delegate::Merged { name: name.clone() })).clone()
}

/// The rules by which a VirtualService is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteSemantics {
    /// Istio's own: a user wrote it.
    Istio,
    /// The Gateway API's: made from a route of that API.
    Gateway,
    /// Those of `Ingress`: made from one.
    Ingress,
}

/// The rules by which a VirtualService is read.
#[must_use]
pub fn semantics(view: &View<'_>, name: &NamespacedName) -> RouteSemantics {
    *view.get(&delegate::SemanticsOf { name: name.clone() })
}

/// The services that a VirtualService sends traffic to.
#[must_use]
pub fn destinations(view: &View<'_>, name: &NamespacedName) -> Arc<Destinations> {
    view.get(&destinations::DestinationsOf { name: name.clone() })
}

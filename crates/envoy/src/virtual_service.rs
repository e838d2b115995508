//! VirtualServices for translators: names completed, delegates merged, found by gateway, host and
//! visibility.
//!
//! Agrees in meaning with Istio's `pilot/pkg/model/virtualservice.go`. A merged VirtualService is a
//! separate query ([`merged`]), so that an edit affects only the readers of its routes; the index
//! of all contains only hosts, gateways and visibility, and stays equal if only routes change.

mod delegate;
mod destinations;
mod index;
mod names;
mod semantics;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

pub use destinations::Destinations;
pub use index::{
    IndexedVirtualService, VirtualServiceIndex, VirtualServices, VirtualServicesOfGateway,
};

use navarch_api::istio::VirtualService;
use navarch_api::names::Hostname;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;

/// A VirtualService with full names and its delegates' routes; `None` if it is missing or itself a
/// delegate.
#[must_use]
pub fn merged(view: &View<'_>, name: &NamespacedName) -> Option<MergedSpec> {
    (*view.get(&delegate::Merged { name: name.clone() })).clone()
}

/// Whether a VirtualService has routes of TCP or TLS. Lists of all VirtualServices read it of each:
/// a change that leaves it equal must not cause a recheck of the others.
#[must_use]
pub fn has_l4_routes(view: &View<'_>, name: &NamespacedName) -> bool {
    *view.get(&HasL4Routes(name.clone()))
}

/// The hosts of a VirtualService, for lists of all as [`has_l4_routes`].
#[must_use]
pub fn hosts(view: &View<'_>, name: &NamespacedName) -> Arc<[Hostname]> {
    (*view.get(&HostsOf(name.clone()))).clone()
}

/// The hosts that a VirtualService mirrors requests to.
pub(crate) fn mirrored_hosts(view: &View<'_>, name: &NamespacedName) -> BTreeSet<Hostname> {
    let Some(spec) = merged(view, name) else {
        return BTreeSet::new();
    };
    let mirrors = spec.http.iter().flat_map(|route| {
        let listed = route.mirrors.iter();
        let listed = listed.filter_map(|mirror| mirror.destination.as_ref());
        listed.chain(&route.mirror)
    });
    mirrors
        .map(|destination| Hostname::new(&destination.host))
        .collect()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasL4Routes(NamespacedName);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HostsOf(NamespacedName);

impl Query for HasL4Routes {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        merged(view, &self.0).is_some_and(|spec| !(spec.tcp.is_empty() && spec.tls.is_empty()))
    }
}

impl Query for HostsOf {
    type Value = Arc<[Hostname]>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        merged(view, &self.0)
            .iter()
            .flat_map(|spec| &spec.hosts)
            .map(Hostname::new)
            .collect()
    }
}

/// A VirtualService after merging.
#[derive(Clone, Debug)]
pub enum MergedSpec {
    /// The object itself: those that are generated from routes of the Gateway API are complete, and
    /// many.
    Own(Arc<Object<VirtualService>>),
    /// With full names and its delegates' routes.
    Completed(Arc<VirtualService>),
}

impl Deref for MergedSpec {
    type Target = VirtualService;

    fn deref(&self) -> &VirtualService {
        match self {
            Self::Own(object) => &object.spec,
            Self::Completed(spec) => spec,
        }
    }
}

impl PartialEq for MergedSpec {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// The semantics of a VirtualService's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteSemantics {
    /// Istio: an object of a user.
    Istio,
    /// The Gateway API: generated from its routes.
    Gateway,
    /// `Ingress`: generated from one.
    Ingress,
}

/// The semantics of a VirtualService's routes.
#[must_use]
pub fn semantics(view: &View<'_>, name: &NamespacedName) -> RouteSemantics {
    *view.get(&semantics::SemanticsOf { name: name.clone() })
}

/// The services that are destinations of a VirtualService.
#[must_use]
pub fn destinations(view: &View<'_>, name: &NamespacedName) -> Arc<Destinations> {
    view.get(&destinations::DestinationsOf { name: name.clone() })
}

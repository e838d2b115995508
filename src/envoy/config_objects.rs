//! Gateways and VirtualServices: those that users wrote, and those that follow from objects of other kinds.
//!
//! What follows from others is a query, not an object of the store: it changes with what it was made from, is never out of
//! step with it, and blame falls on what a user can mend. A user's object wins over a made one of its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ingress::{IngressGateways, IngressVirtualServices};
use crate::api::istio::{Gateway, VirtualService};
use crate::api::object::{NamespacedName, Object};
use crate::push::query::Query;
use crate::push::view::View;

/// Objects by name.
pub(in crate::envoy) type ByName<T> = BTreeMap<NamespacedName, Arc<Object<T>>>;

/// One Gateway that was made from objects of other kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MadeGateway(NamespacedName);

/// One VirtualService that was made from objects of other kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MadeVirtualService(NamespacedName);

impl Query for MadeGateway {
    type Value = Option<Arc<Object<Gateway>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&IngressGateways).get(&self.0).cloned()
    }
}

impl Query for MadeVirtualService {
    type Value = Option<Arc<Object<VirtualService>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&IngressVirtualServices).get(&self.0).cloned()
    }
}

/// The Gateway of a name.
pub(in crate::envoy) fn gateway(view: &View<'_>, name: &NamespacedName) -> Option<Arc<Object<Gateway>>> {
    let written = view.object::<Gateway>(name).cloned();
    written.or_else(|| (*view.get(&MadeGateway(name.clone()))).clone())
}

/// The VirtualService of a name.
pub(in crate::envoy) fn virtual_service(view: &View<'_>, name: &NamespacedName) -> Option<Arc<Object<VirtualService>>> {
    let written = view.object::<VirtualService>(name).cloned();
    written.or_else(|| (*view.get(&MadeVirtualService(name.clone()))).clone())
}

/// All Gateways, by name.
pub(in crate::envoy) fn gateways(view: &View<'_>) -> ByName<Gateway> {
    let mut all = (*view.get(&IngressGateways)).clone();
    all.extend(view.list_all::<Gateway>().map(|object| (object.meta.key(), object.clone())));
    all
}

/// All VirtualServices, by name.
pub(in crate::envoy) fn virtual_services(view: &View<'_>) -> ByName<VirtualService> {
    let mut all = (*view.get(&IngressVirtualServices)).clone();
    all.extend(view.list_all::<VirtualService>().map(|object| (object.meta.key(), object.clone())));
    all
}

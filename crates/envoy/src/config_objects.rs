//! Gateways and VirtualServices: those of users, and those generated from objects of other kinds.
//!
//! Generated objects are queries, not objects of the store: they always match their sources, and
//! quarantine applies to objects that users can edit. An object of a user takes precedence over a
//! generated one of the same name.

use std::sync::Arc;

use super::gateway_api::{self, ApiDestinationRules, ApiGateways};
use super::ingress::{IngressGateways, IngressVirtualServices};
use navarch_api::istio::{DestinationRule, Gateway, VirtualService};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object, ObjectsByName};
use navarch_push::query::Query;
use navarch_push::view::View;

/// One Gateway that is generated from objects of other kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MadeGateway(NamespacedName);

/// One VirtualService that is generated from objects of other kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MadeVirtualService(NamespacedName);

/// One DestinationRule that is generated from objects of other kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MadeDestinationRule(NamespacedName);

/// The DestinationRules of a namespace that are generated from objects of other kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MadeDestinationRulesOf(Namespace);

impl Query for MadeDestinationRule {
    type Value = Option<Arc<Object<DestinationRule>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ApiDestinationRules).get(&self.0).cloned()
    }
}

impl Query for MadeDestinationRulesOf {
    type Value = ObjectsByName<DestinationRule>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let all = view.get(&ApiDestinationRules);
        let here = all.iter().filter(|(name, _)| name.namespace == self.0);
        here.map(|(name, object)| (name.clone(), object.clone()))
            .collect()
    }
}

impl Query for MadeGateway {
    type Value = Option<Arc<Object<Gateway>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&IngressGateways)
            .get(&self.0)
            .cloned()
            .or_else(|| gateway_api::api_gateway(view, &self.0))
    }
}

impl Query for MadeVirtualService {
    type Value = Option<Arc<Object<VirtualService>>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let of_ingress = view.get(&IngressVirtualServices).get(&self.0).cloned();
        of_ingress.or_else(|| gateway_api::virtual_service(view, &self.0))
    }
}

pub(crate) fn gateway(view: &View<'_>, name: &NamespacedName) -> Option<Arc<Object<Gateway>>> {
    let written = view.object::<Gateway>(name).cloned();
    written.or_else(|| (*view.get(&MadeGateway(name.clone()))).clone())
}

/// The VirtualService of this name.
pub(crate) fn virtual_service(
    view: &View<'_>,
    name: &NamespacedName,
) -> Option<Arc<Object<VirtualService>>> {
    let written = view.object::<VirtualService>(name).cloned();
    written.or_else(|| (*view.get(&MadeVirtualService(name.clone()))).clone())
}

pub(crate) fn gateways(view: &View<'_>) -> ObjectsByName<Gateway> {
    let mut all = (*view.get(&IngressGateways)).clone();
    all.extend(
        view.get(&ApiGateways)
            .iter()
            .map(|(name, object)| (name.clone(), object.clone())),
    );
    all.extend(
        view.list_all::<Gateway>()
            .map(|object| (object.meta.key(), object.clone())),
    );
    all
}

/// All VirtualServices, by name, except those of the Gateway API: these are many, and
/// [`gateway_api::VirtualServiceHeads`] contains them without their routes.
pub(crate) fn virtual_services(view: &View<'_>) -> ObjectsByName<VirtualService> {
    let mut all = (*view.get(&IngressVirtualServices)).clone();
    all.extend(
        view.list_all::<VirtualService>()
            .map(|object| (object.meta.key(), object.clone())),
    );
    all
}

/// The DestinationRule of this name.
pub(crate) fn destination_rule(
    view: &View<'_>,
    name: &NamespacedName,
) -> Option<Arc<Object<DestinationRule>>> {
    let written = view.object::<DestinationRule>(name).cloned();
    written.or_else(|| (*view.get(&MadeDestinationRule(name.clone()))).clone())
}

/// The DestinationRules of a namespace, by name.
pub(crate) fn destination_rules_of(
    view: &View<'_>,
    namespace: &Namespace,
) -> Vec<Arc<Object<DestinationRule>>> {
    let mut all = (*view.get(&MadeDestinationRulesOf(namespace.clone()))).clone();
    all.extend(
        view.list::<DestinationRule>(namespace)
            .map(|object| (object.meta.key(), object.clone())),
    );
    all.into_values().collect()
}

pub(crate) fn destination_rules(view: &View<'_>) -> ObjectsByName<DestinationRule> {
    let mut all = (*view.get(&ApiDestinationRules)).clone();
    all.extend(
        view.list_all::<DestinationRule>()
            .map(|object| (object.meta.key(), object.clone())),
    );
    all
}

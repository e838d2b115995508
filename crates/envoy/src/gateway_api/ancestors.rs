//! Which Gateways lead to which backends: policies tell their status to each.

use std::collections::{BTreeMap, BTreeSet};

use super::policies::PolicyTargetObject;
use super::route_kinds::{RouteKind, RouteName};
use navarch_api::gateway_api;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The Gateways and backends of one route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EndsOf(RouteName);

/// The Gateways of all backends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllAncestors;

/// The Gateways of one backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewaysOfBackend(pub(super) PolicyTargetObject);

impl Query for EndsOf {
    type Value = (BTreeSet<NamespacedName>, BTreeSet<PolicyTargetObject>);

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(route) = self.0.common(view) else { return Self::Value::default() };
        let own = route.meta.key.namespace.as_str();
        let is_gateway = |group: &str, kind: &str| group == gateway_api::GROUP && kind == "Gateway";
        let gateways = route.parents.iter().filter(|parent| is_gateway(&parent.group, &parent.kind));
        let gateways =
            gateways.map(|parent| NamespacedName::new(parent.namespace.as_deref().unwrap_or(own), &parent.name));
        let backends = self.0.backends(view).into_iter().filter_map(|backend| {
            let name = NamespacedName::new(backend.namespace.as_deref().unwrap_or(own), &backend.name);
            match (backend.group.as_str(), backend.kind.as_str()) {
                ("", "Service") => Some(PolicyTargetObject::Service(name)),
                ("networking.istio.io", "ServiceEntry") => Some(PolicyTargetObject::ServiceEntry(name)),
                (gateway_api::EXPERIMENTAL_GROUP, "XBackend") => Some(PolicyTargetObject::Backend(name)),
                _ => None,
            }
        });
        (gateways.collect(), backends.collect())
    }
}

impl Query for AllAncestors {
    type Value = BTreeMap<PolicyTargetObject, BTreeSet<NamespacedName>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut ancestors = Self::Value::new();
        for kind in RouteKind::ALL {
            for name in kind.names(view) {
                let ends = view.get(&EndsOf(RouteName { kind, name }));
                for backend in &ends.1 {
                    ancestors.entry(backend.clone()).or_default().extend(ends.0.iter().cloned());
                }
            }
        }
        ancestors
    }
}

impl Query for GatewaysOfBackend {
    type Value = BTreeSet<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AllAncestors).get(&self.0).cloned().unwrap_or_default()
    }
}

//! The Gateways that route to each backend: policies have a status for each.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::backend_policy::PolicyTargetObject;
use super::pair_counts::{CountsPart, PairCounts, Sums};
use super::route_kinds::{RouteKind, RouteName};
use navarch_api::gateway_api;
use navarch_api::object::NamespacedName;
use navarch_push::name_parts::part_of;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The Gateways and backends of one route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EndsOf(RouteName);

/// The number of routes of one part from each Gateway to each backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EndsIn(u8);

/// The number of routes from each Gateway to each backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllAncestors;

/// The same of one part of all backends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AncestorsIn(u8);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewaysOfBackend(pub(super) PolicyTargetObject);

impl Query for EndsOf {
    type Value = (BTreeSet<NamespacedName>, BTreeSet<PolicyTargetObject>);

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(route) = self.0.common(view) else {
            return Self::Value::default();
        };

        let own = route.meta.key.namespace.as_str();
        let is_gateway = |group: &str, kind: &str| group == gateway_api::GROUP && kind == "Gateway";
        let gateways = route
            .parents
            .iter()
            .filter(|parent| is_gateway(&parent.group, &parent.kind));
        let gateways = gateways.map(|parent| {
            NamespacedName::new(parent.namespace.as_deref().unwrap_or(own), &parent.name)
        });

        let backends = self.0.backends(view).into_iter().filter_map(|backend| {
            let name =
                NamespacedName::new(backend.namespace.as_deref().unwrap_or(own), &backend.name);
            match (backend.group.as_str(), backend.kind.as_str()) {
                ("", "Service") => Some(PolicyTargetObject::Service(name)),
                ("networking.istio.io", "ServiceEntry") => {
                    Some(PolicyTargetObject::ServiceEntry(name))
                }
                (gateway_api::EXPERIMENTAL_GROUP, "XBackend") => {
                    Some(PolicyTargetObject::Backend(name))
                }
                _ => None,
            }
        });

        (gateways.collect(), backends.collect())
    }
}

impl Query for EndsIn {
    type Value = Arc<Sums<PolicyTargetObject, NamespacedName>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut sums = Sums::new();
        for route in RouteKind::ALL
            .into_iter()
            .flat_map(|kind| kind.names_in(view, self.0))
        {
            let ends = view.get(&EndsOf(route));
            let (gateways, backends) = &*ends;
            for backend in backends {
                for gateway in gateways {
                    *sums.entry((backend.clone(), gateway.clone())).or_default() += 1;
                }
            }
        }
        Arc::new(sums)
    }
}

impl Query for AllAncestors {
    type Value = PairCounts<PolicyTargetObject, NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        self.renew(&PairCounts::empty(), view)
    }

    fn renew(&self, previous: &Self::Value, view: &View<'_>) -> Self::Value {
        previous.updated(|part| (*view.get(&EndsIn(part))).clone())
    }
}

impl Query for AncestorsIn {
    type Value = CountsPart<PolicyTargetObject, NamespacedName>;
    const IS_GATE: bool = true;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AllAncestors).part(self.0)
    }
}

impl Query for GatewaysOfBackend {
    type Value = BTreeSet<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let part = view.get(&AncestorsIn(part_of(&self.0)));
        part.get(&self.0)
            .map(|gateways| gateways.keys().cloned().collect())
            .unwrap_or_default()
    }
}

//! InferencePools: their generated Services and endpoint pickers (istiod's
//! `inferencepool_collection.go`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::pair_counts::{CountsPart, PairCounts, Sums};
use super::route_kinds::{RouteKind, RouteName};
use super::settings::ApiSettings;
use navarch_api::gateway_api::{
    self, BackendRef, PICKER_FAILURE_MODE_LABEL, PICKER_PORT_LABEL, PICKER_SERVICE_LABEL,
};
use navarch_api::object::NamespacedName;
use navarch_push::name_parts::part_of;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The endpoint picker of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointPicker {
    pub(crate) host: String,
    /// Its port, as the text of a label.
    pub(crate) port: String,
    /// Whether requests continue without it.
    pub(crate) fails_open: bool,
}

/// The endpoint pickers of a rule's destinations, in their order: one for each InferencePool.
pub(crate) type RulePickers = Vec<Option<EndpointPicker>>;

/// The Service that is generated for a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolService(pub(super) ServiceKey);

/// The value of [`PoolService`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceOfPool {
    /// Its first port, whose endpoints are used for all.
    pub(super) port: u32,
    pub(super) picker: Option<EndpointPicker>,
}

/// The InferencePools that a route has as backends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolsOf(pub(super) RouteName);

/// The HTTPRoutes of one part, by pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PoolRoutesIn(u8);

/// The HTTPRoutes by pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllPoolRoutes;

/// The HTTPRoutes of the pools of one part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PoolRoutesNear(u8);

impl Query for PoolService {
    type Value = Option<ServiceOfPool>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let service = view.service(&self.0)?;
        let label = |name: &str| service.labels.get(name).filter(|value| !value.is_empty());
        let picker = match (
            label(PICKER_SERVICE_LABEL),
            label(PICKER_PORT_LABEL),
            label(PICKER_FAILURE_MODE_LABEL),
        ) {
            (Some(name), Some(port), Some(mode)) => Some(EndpointPicker {
                host: view.get(&ApiSettings).host(name, self.0.namespace.as_str()),
                port: port.to_string(),
                fails_open: **mode == *"FailOpen",
            }),
            _ => None,
        };

        Some(ServiceOfPool {
            port: service.ports.first().map_or(0, |port| u32::from(port.port)),
            picker,
        })
    }
}

pub(super) fn is_pool(reference: &BackendRef) -> bool {
    reference.group == gateway_api::INFERENCE_GROUP && reference.kind == "InferencePool"
}

impl Query for PoolsOf {
    type Value = BTreeSet<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let own = self.0.name.namespace.as_str();
        let pools = self
            .0
            .backends(view)
            .into_iter()
            .filter(|backend| is_pool(backend));
        pools
            .map(|pool| NamespacedName::new(pool.namespace.as_deref().unwrap_or(own), &pool.name))
            .collect()
    }
}

impl Query for PoolRoutesIn {
    type Value = Arc<Sums<NamespacedName, RouteName>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut sums = Sums::new();
        for route in RouteKind::Http.names_in(view, self.0) {
            for pool in view.get(&PoolsOf(route.clone())).iter() {
                sums.insert((pool.clone(), route.clone()), 1);
            }
        }
        Arc::new(sums)
    }
}

impl Query for AllPoolRoutes {
    type Value = PairCounts<NamespacedName, RouteName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        self.renew(&PairCounts::empty(), view)
    }

    fn renew(&self, previous: &Self::Value, view: &View<'_>) -> Self::Value {
        previous.updated(|part| (*view.get(&PoolRoutesIn(part))).clone())
    }
}

impl Query for PoolRoutesNear {
    type Value = CountsPart<NamespacedName, RouteName>;
    const IS_GATE: bool = true;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&AllPoolRoutes).part(self.0)
    }
}

/// The routes with this pool as backend.
pub(super) fn routes_to(view: &View<'_>, pool: &NamespacedName) -> Vec<RouteName> {
    let part = view.get(&PoolRoutesNear(part_of(pool)));
    part.get(pool)
        .map(|routes| routes.keys().cloned().collect())
        .unwrap_or_default()
}

//! InferencePools: the Services that stand for them, and who picks an endpoint (istiod's `inferencepool_collection.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::merged;
use super::route_kinds::{RouteKind, RouteName};
use super::settings::ApiSettings;
use crate::gateway;
use navarch_api::gateway_api::{self, BackendRef, PICKER_FAILURE_MODE_LABEL, PICKER_PORT_LABEL, PICKER_SERVICE_LABEL};
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// Who picks an endpoint for a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointPicker {
    pub(crate) host: String,
    /// Its port, as a label has it.
    pub(crate) port: String,
    /// Whether requests go on without it.
    pub(crate) fails_open: bool,
}

/// The Service that stands for a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolService(pub(super) ServiceKey);

/// The value of [`PoolService`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceOfPool {
    /// Its first port, whose endpoints are those of all.
    pub(super) port: u32,
    /// Who picks one of them.
    pub(super) picker: Option<EndpointPicker>,
}

/// Whether some route of a Gateway leads to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LeadsToPool(RouteName);

/// Whether some route of a Gateway that is made leads to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewayHasPools(Arc<str>);

impl Query for PoolService {
    type Value = Option<ServiceOfPool>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let service = view.service(&self.0)?;
        let label = |name: &str| service.labels.get(name).filter(|value| !value.is_empty());
        let picker = match (label(PICKER_SERVICE_LABEL), label(PICKER_PORT_LABEL), label(PICKER_FAILURE_MODE_LABEL)) {
            (Some(name), Some(port), Some(mode)) => Some(EndpointPicker {
                host: view.get(&ApiSettings).host(name, self.0.namespace.as_str()),
                port: port.to_string(),
                fails_open: **mode == *"FailOpen",
            }),
            _ => None,
        };
        Some(ServiceOfPool { port: service.ports.first().map_or(0, |port| u32::from(port.port)), picker })
    }
}

/// Whether a reference is to a pool.
pub(super) fn is_pool(reference: &BackendRef) -> bool {
    reference.group == gateway_api::INFERENCE_GROUP && reference.kind == "InferencePool"
}

impl Query for LeadsToPool {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        self.0.backends(view).into_iter().any(is_pool)
    }
}

impl Query for GatewayHasPools {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        merged::routes_of_gateway(view, &self.0).iter().any(|route| *view.get(&LeadsToPool(route.clone())))
    }
}

/// Whether some route of the Gateways that the proxy serves leads to a pool.
pub(crate) fn has_inference_pools(view: &View<'_>) -> bool {
    let has_pools = |gateway: &Arc<str>| *view.get(&GatewayHasPools(gateway.clone()));
    view.get(&ApiSettings).api.inference && gateway::serving_gateways(view).iter().any(has_pools)
}

/// Who picks endpoints for the rules of a VirtualService that was made, by name of the rule.
pub(crate) fn endpoint_pickers(view: &View<'_>, name: &NamespacedName) -> Arc<BTreeMap<String, EndpointPicker>> {
    if !view.get(&ApiSettings).api.inference {
        return Arc::default();
    }
    merged::pickers(view, name)
}

/// The routes that lead to a pool.
pub(super) fn routes_to(view: &View<'_>, pool: &NamespacedName) -> Vec<RouteName> {
    let routes = RouteKind::Http.names(view).into_iter().map(|name| RouteName { kind: RouteKind::Http, name });
    let leads = |route: &RouteName| {
        *view.get(&LeadsToPool(route.clone()))
            && route.backends(view).into_iter().filter(|backend| is_pool(backend)).any(|backend| {
                let namespace = backend.namespace.as_deref().unwrap_or(route.name.namespace.as_str());
                *backend.name == *pool.name && namespace == pool.namespace.as_str()
            })
    };
    routes.filter(leads).collect()
}

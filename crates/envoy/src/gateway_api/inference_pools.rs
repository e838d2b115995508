//! InferencePools: the Services that stand for them, and who picks an endpoint (istiod's `inferencepool_collection.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::merged;
use super::route_kinds::{RouteKind, RouteName};
use super::settings::ApiSettings;
use crate::gateway;
use navarch_api::gateway_api::{self, BackendRef};
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// What stands between the name of a pool and the hash in the name of its Service.
const SEPARATOR: &str = "-ip-";
/// How much of the hash.
const HASH: usize = 8;
/// The longest name of a Service.
const MAX_NAME: usize = 63;
/// The label that names the picker's Service.
const PICKER_SERVICE: &str = "istio.io/inferencepool-extension-service";
/// The label that has its port.
const PICKER_PORT: &str = "istio.io/inferencepool-extension-port";
/// The label that says what happens without it.
const PICKER_FAILURE_MODE: &str = "istio.io/inferencepool-extension-failure-mode";

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

/// The name of the Service that stands for a pool.
pub(super) fn service_name(pool: &str) -> String {
    let hash: String = format!("{:x}", Sha256::digest(pool)).chars().take(HASH).collect();
    let longest = MAX_NAME - SEPARATOR.len() - HASH;
    let stem: String = match pool.len() > longest {
        true => pool.chars().take(longest).collect(),
        false => pool.to_owned(),
    };
    format!("{stem}{SEPARATOR}{hash}")
}

impl Query for PoolService {
    type Value = Option<ServiceOfPool>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let service = view.service(&self.0)?;
        let label = |name: &str| service.labels.get(name).filter(|value| !value.is_empty());
        let picker = match (label(PICKER_SERVICE), label(PICKER_PORT), label(PICKER_FAILURE_MODE)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_pools_are_called_as_istiod_calls_them() {
        assert_eq!(service_name("llama"), "llama-ip-fc5a1047");
        assert_eq!(service_name("phi"), "phi-ip-7f754d3d");
        assert_eq!(service_name(&"x".repeat(80)).len(), MAX_NAME);
    }
}

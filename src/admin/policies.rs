//! `/debug/authorizationz`, `/debug/telemetryz` and `/debug/pushcontext`: policies by namespace, and gateways between networks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::proxies::{self, Missing};
use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::istio::{AuthorizationPolicy, Telemetry};
use navarch_api::names::Namespace;
use navarch_api::object::Object;
use navarch_push::context::PushContext;
use navarch_push::proxy::Proxy;
use navarch_registry::directory::NetworkGateway;
use navarch_security::rules::Sight;
use navarch_store::Stored;

pub(super) async fn authorizationz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let context = state.push.context();
    reply::json(&parameters, &json!({ "authorization_policies": authorization_policies(&context) }))
}

/// All Telemetries, or those that hold for a proxy, put together.
pub(super) async fn telemetryz(
    State(state): State<AdminState>,
    Extension(sight): Extension<Sight>,
    parameters: Parameters,
) -> Response {
    let context = state.push.context();
    let page = match proxies::named(&state, &sight, &parameters) {
        Ok(info) => telemetry_of(&context, &info.proxy),
        Err(Missing::NotNamed) => json!({ "telemetries": telemetries(&context) }),
        Err(Missing::NotConnected) => return Missing::NotConnected.into_response(),
    };
    reply::json(&parameters, &page)
}

/// AuthorizationPolicies, and gateways between networks: those known by address, and those whose host name is not resolved.
pub(super) async fn pushcontext(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let context = state.push.context();
    let (known, unresolved) = gateways(&context);
    let page = json!({
        "AuthorizationPolicies": authorization_policies(&context),
        "NetworkGateways": known,
        "UnresolvedGateways": unresolved,
    });
    reply::json(&parameters, &page)
}

/// Gateways between networks that are known by address.
pub(super) async fn networkz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    reply::json(&parameters, &gateways(&state.push.context()).0)
}

/// All gateways: with addresses, and with host names that nobody has resolved. `null` where there are none.
fn gateways(context: &PushContext) -> (Value, Value) {
    let (mut known, mut unresolved) = (Vec::new(), Vec::new());
    for gateway in context.directory.network_gateways.values().flat_map(|all| all.iter()) {
        if gateway.address.parse::<IpAddr>().is_ok() {
            known.push(one(gateway, &gateway.address));
            continue;
        }
        match context.gateway_hosts.get(&gateway.address).filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => known.extend(addresses.iter().map(|address| one(gateway, &address.to_string()))),
            None => unresolved.push(one(gateway, &gateway.address)),
        }
    }
    let list = |all: Vec<Value>| if all.is_empty() { Value::Null } else { Value::Array(all) };
    (list(known), list(unresolved))
}

fn one(gateway: &NetworkGateway, address: &str) -> Value {
    json!({
        "Network": gateway.network,
        "Cluster": gateway.cluster,
        "Addr": address,
        "Port": gateway.port,
        "HBONEPort": gateway.hbone_port,
        "ServiceAccount": {
            "Namespace": gateway.service_account.namespace,
            "Name": &*gateway.service_account.name,
        },
    })
}

/// Objects of a kind by namespace, the oldest first.
fn by_namespace<T: Stored>(
    context: &PushContext,
    one: impl Fn(&Object<T>) -> Value,
) -> BTreeMap<Namespace, Vec<Value>> {
    let mut namespaces: BTreeMap<Namespace, Vec<Value>> = BTreeMap::new();
    for object in oldest_first::<T>(context) {
        namespaces.entry(object.meta.key.namespace.clone()).or_default().push(one(object));
    }
    namespaces
}

/// Objects of a kind, the oldest first.
fn oldest_first<T: Stored>(context: &PushContext) -> Vec<&Arc<Object<T>>> {
    let mut all: Vec<_> = T::table(&context.objects).iter().collect();
    all.sort_by_key(|object| (object.meta.created, object.meta.key.name.clone(), object.meta.key.namespace.clone()));
    all
}

fn authorization_policies(context: &PushContext) -> Value {
    let one = |policy: &Object<AuthorizationPolicy>| {
        json!({
            "name": &*policy.meta.key.name,
            "namespace": policy.meta.key.namespace,
            "annotations": policy.meta.annotations,
            "spec": reply::spec(&policy.spec),
        })
    };
    json!({
        "namespace_to_policies": by_namespace(context, one),
        "root_namespace": context.mesh.config.root_namespace,
    })
}

fn telemetries(context: &PushContext) -> Value {
    let one = |telemetry: &Object<Telemetry>| {
        json!({
            "name": &*telemetry.meta.key.name,
            "namespace": telemetry.meta.key.namespace,
            "spec": reply::spec(&telemetry.spec),
        })
    };
    json!({
        "namespace_to_telemetries": by_namespace(context, one),
        "root_namespace": context.mesh.config.root_namespace,
    })
}

/// The Telemetries that hold for a proxy, in the shape of istiod's `computedTelemetries`: the root namespace's, its own
/// namespace's and its workload's, each the oldest.
fn telemetry_of(context: &PushContext, proxy: &Proxy) -> Value {
    let root = Namespace::new(&context.mesh.config.root_namespace);
    let all = oldest_first::<Telemetry>(context);
    let is_whole = |telemetry: &Telemetry| {
        let selects = telemetry.selector.as_ref().is_some_and(|selector| !selector.match_labels.is_empty());
        !selects && telemetry.target_ref.is_none() && telemetry.target_refs.is_empty()
    };
    let selects = |telemetry: &Telemetry| {
        telemetry.selector.as_ref().is_some_and(|selector| {
            let mut labels = selector.match_labels.iter();
            !selector.match_labels.is_empty()
                && labels.all(|(key, value)| proxy.labels.get(key.as_str()).is_some_and(|own| **own == **value))
        })
    };
    let first = |namespace: &Namespace, fits: &dyn Fn(&Telemetry) -> bool| {
        all.iter().find(|one| one.meta.key.namespace == *namespace && fits(&one.spec)).copied()
    };
    let of_root = first(&root, &is_whole);
    let of_namespace = first(&proxy.namespace, &is_whole).filter(|_| proxy.namespace != root);
    let of_workload = first(&proxy.namespace, &selects);
    let name = |telemetry: Option<&Arc<Object<Telemetry>>>| {
        let key = telemetry.map(|telemetry| &telemetry.meta.key);
        json!({
            "Namespace": key.map_or("", |key| key.namespace.as_str()),
            "Name": key.map_or("", |key| &*key.name),
        })
    };
    let specs = || [of_root, of_namespace, of_workload].into_iter().flatten();
    let logging = specs().filter(|one| !one.spec.access_logging.is_empty());
    json!({
        "Root": name(of_root),
        "Namespace": name(of_namespace),
        "Workload": name(of_workload),
        "Metrics": specs().flat_map(|one| &one.spec.metrics).map(reply::spec).collect::<Vec<_>>(),
        "Logging": logging.map(|one| json!({ "Logging": reply::spec(&one.spec.access_logging) })).collect::<Vec<_>>(),
        "Tracing": specs().flat_map(|one| &one.spec.tracing).map(reply::spec).collect::<Vec<_>>(),
    })
}

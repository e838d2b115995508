//! `/debug/sidecarz` and `/debug/instancesz`: the scope of a proxy, and the service ports of
//! workloads.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::configz::config;
use super::registryz::{describe, port};
use super::reply::{self, Parameters};
use super::state::AdminState;
use super::{proxies, scratch};
use navarch_api::proto_json::to_proto_json;
use navarch_envoy::sidecar_scope::{
    DescribeScope, OutboundPolicy, RuleDescription, ScopeDescription,
};
use navarch_push::proxy::Proxy;
use navarch_push::targets::TargetsOfProxy;
use navarch_registry::model::{Service, ServiceTarget};
use navarch_security::rules::Visibility;

/// The scope of the requested proxy, in the shape of istiod's `SidecarScope`.
pub(super) async fn sidecarz(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    let info = match proxies::named(&state, &visibility, &parameters) {
        Ok(info) => info,
        Err(missing) => return missing.into_response(),
    };
    let last = info
        .types
        .iter()
        .filter_map(|watch| watch.sent.as_ref())
        .max_by_key(|sent| sent.at);
    let version = last.map_or_else(Arc::default, |sent| sent.version.clone());

    let proxy = info.proxy;
    let target = proxy.clone();
    let domain = state.push.context().mesh.settings.domain_suffix.clone();
    let ask = |engine: &mut navarch_push::engine::Engine, ids: &[navarch_push::engine::ProxyId]| {
        ids.first().and_then(|id| engine.query(*id, &DescribeScope))
    };

    match scratch::run(&state, vec![target], ask).await.flatten() {
        Some(scope) => reply::json(&parameters, &scope_of(&proxy, &version, &domain, &scope)),
        None => reply::ended(),
    }
}

/// One proxy's scope; `version` is that of its last response, `domain` the DNS suffix of Kubernetes
/// services.
fn scope_of(proxy: &Proxy, version: &str, domain: &str, scope: &ScopeDescription) -> Value {
    let services = |all: &[Arc<Service>]| {
        all.iter()
            .map(|service| describe(service))
            .collect::<Vec<_>>()
    };

    let by_host: Map<String, Value> = scope
        .services
        .iter()
        .map(|service| (service.key.hostname.to_string(), describe(service)))
        .collect();

    let rules: Map<String, Value> = scope
        .destination_rules
        .iter()
        .map(|(host, rules)| {
            (
                host.to_string(),
                Value::Array(
                    rules
                        .iter()
                        .map(|described| rule(described, domain))
                        .collect(),
                ),
            )
        })
        .collect();

    let sidecar = scope.sidecar.as_ref();
    let policy = match &scope.outbound_policy {
        None => Value::Null,
        // `REGISTRY_ONLY` is the zero value, which protobuf's JSON omits.
        Some(OutboundPolicy::RegistryOnly) => json!({}),
        Some(OutboundPolicy::AllowAny { egress_proxy: None }) => json!({ "mode": "ALLOW_ANY" }),
        Some(OutboundPolicy::AllowAny {
            egress_proxy: Some(proxy),
        }) => {
            json!({ "mode": "ALLOW_ANY", "egressProxy": to_proto_json(proxy) })
        }
        Some(OutboundPolicy::AllowAnyDynamicDns) => json!({ "mode": "ALLOW_ANY_DYNAMIC_DNS" }),
    };

    json!({
        "version": version,
        "name": sidecar.map_or("default-sidecar", |sidecar| &sidecar.meta.key.name),
        "namespace": proxy.namespace,
        "outboundTrafficPolicy": policy,
        "services": services(&scope.services),
        "egressListenerServices": scope.listeners.iter().map(|listener| services(listener)).collect::<Vec<_>>(),
        "servicesByHostname": by_host,
        "sidecar": sidecar.map(|sidecar| to_proto_json(&sidecar.spec)),
        "destinationRules": rules,
    })
}

/// DestinationRules that are merged.
fn rule(rule: &RuleDescription, domain: &str) -> Value {
    let export_to: Map<String, Value> = rule
        .export_to
        .iter()
        .map(|to| (to.clone(), json!({})))
        .collect();
    let from: Vec<Value> = rule
        .from
        .iter()
        .map(|name| json!({ "Namespace": name.namespace, "Name": &*name.name }))
        .collect();
    json!({ "exportTo": export_to, "rule": config(&rule.rule, domain), "from": from })
}

/// The service ports that the workload of each connected proxy serves, by the proxy.
pub(super) async fn instancesz(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let proxies: Vec<Arc<Proxy>> = state
        .connections
        .list()
        .into_iter()
        .map(|info| info.proxy)
        .collect();

    let names: Vec<Arc<str>> = proxies.iter().map(|proxy| proxy.name.clone()).collect();
    let ask = |engine: &mut navarch_push::engine::Engine, ids: &[navarch_push::engine::ProxyId]| {
        ids.iter()
            .map(|id| engine.query(*id, &TargetsOfProxy))
            .collect::<Option<Vec<_>>>()
    };
    let Some(targets) = scratch::run(&state, proxies, ask).await.flatten() else {
        return reply::ended();
    };

    let one = |(name, targets): (Arc<str>, Arc<Vec<ServiceTarget>>)| {
        (
            name.to_string(),
            Value::Array(targets.iter().map(target).collect()),
        )
    };

    reply::json(
        &parameters,
        &Value::Object(names.into_iter().zip(targets).map(one).collect()),
    )
}

/// One service port that a workload serves.
fn target(target: &ServiceTarget) -> Value {
    let mut port = port(&target.port);
    if let Some(port) = port.as_object_mut() {
        port.insert("TargetPort".to_owned(), target.target_port.into());
    }
    json!({ "Service": describe(&target.service), "Port": port })
}

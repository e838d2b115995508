//! `/debug/authorizationz`, `/debug/telemetryz` and `/debug/pushcontext`: policies by namespace,
//! and gateways between networks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::proxies::{self, Missing};
use super::reply::{self, Parameters};
use super::scratch;
use super::state::AdminState;
use navarch_api::istio::{AuthorizationPolicy, Telemetry};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_api::proto_json::to_proto_json;
use navarch_envoy::filters::telemetry::{DescribeTelemetry, TelemetryDescription};
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, ProxyId};
use navarch_registry::directory::NetworkGateway;
use navarch_security::rules::Visibility;
use navarch_store::Stored;

pub(super) async fn authorizationz(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let context = state.push.context();
    reply::json(
        &parameters,
        &json!({ "authorization_policies": authorization_policies(&context) }),
    )
}

/// All Telemetries, or the merged ones that apply to a proxy.
pub(super) async fn telemetryz(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    let context = state.push.context();
    let page = match proxies::named(&state, &visibility, &parameters) {
        Ok(info) => {
            let ask = |engine: &mut Engine, ids: &[ProxyId]| {
                ids.first()
                    .and_then(|id| engine.query(*id, &DescribeTelemetry))
            };
            match scratch::run(&state, vec![info.proxy], ask).await.flatten() {
                Some(telemetries) => telemetry_of(&telemetries),
                None => return reply::ended(),
            }
        }
        Err(Missing::NotNamed) => json!({ "telemetries": telemetries(&context) }),
        Err(Missing::NotConnected) => return Missing::NotConnected.into_response(),
    };
    reply::json(&parameters, &page)
}

/// AuthorizationPolicies, and gateways between networks: those with addresses, and those whose host
/// name is not resolved.
pub(super) async fn pushcontext(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let context = state.push.context();
    let (known, unresolved) = gateways(&context);
    let page = json!({
        "AuthorizationPolicies": authorization_policies(&context),
        "NetworkGateways": known,
        "UnresolvedGateways": unresolved,
    });
    reply::json(&parameters, &page)
}

/// Gateways between networks with addresses.
pub(super) async fn networkz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    reply::json(&parameters, &gateways(&state.push.context()).0)
}

/// All gateways: with addresses, and with unresolved host names. `null` if there are none.
fn gateways(context: &PushContext) -> (Value, Value) {
    let mut known = Vec::new();
    let mut unresolved = Vec::new();

    for gateway in context
        .directory
        .network_gateways
        .values()
        .flat_map(|all| all.iter())
    {
        if gateway.address.parse::<IpAddr>().is_ok() {
            known.push(one(gateway, &gateway.address));
            continue;
        }
        match context
            .gateway_hosts
            .get(&gateway.address)
            .filter(|addresses| !addresses.is_empty())
        {
            Some(addresses) => known.extend(
                addresses
                    .iter()
                    .map(|address| one(gateway, &address.to_string())),
            ),
            None => unresolved.push(one(gateway, &gateway.address)),
        }
    }

    let list = |all: Vec<Value>| {
        if all.is_empty() {
            Value::Null
        } else {
            Value::Array(all)
        }
    };

    (list(known), list(unresolved))
}

fn one(gateway: &NetworkGateway, address: &str) -> Value {
    json!({
        "Network": gateway.network,
        "Cluster": gateway.cluster,
        "Addr": address,
        "Port": gateway.port,
        "HBONEPort": gateway.hbone_port,
        "ServiceAccount": name(Some(&gateway.service_account)),
    })
}

/// Objects of a kind by namespace, the oldest first.
fn by_namespace<T: Stored>(
    context: &PushContext,
    one: impl Fn(&Object<T>) -> Value,
) -> BTreeMap<Namespace, Vec<Value>> {
    let mut namespaces: BTreeMap<Namespace, Vec<Value>> = BTreeMap::new();
    for object in oldest_first::<T>(context) {
        namespaces
            .entry(object.meta.key.namespace.clone())
            .or_default()
            .push(one(object));
    }
    namespaces
}

/// Objects of a kind, the oldest first.
fn oldest_first<T: Stored>(context: &PushContext) -> Vec<&Arc<Object<T>>> {
    let mut all: Vec<_> = T::table(&context.objects).iter().collect();
    all.sort_by_key(|object| {
        (
            object.meta.created,
            object.meta.key.name.clone(),
            object.meta.key.namespace.clone(),
        )
    });
    all
}

fn authorization_policies(context: &PushContext) -> Value {
    let one = |policy: &Object<AuthorizationPolicy>| {
        json!({
            "name": &*policy.meta.key.name,
            "namespace": policy.meta.key.namespace,
            "annotations": reply::map(&policy.meta.annotations),
            "spec": to_proto_json(&policy.spec),
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
            "spec": to_proto_json(&telemetry.spec),
        })
    };
    json!({
        "namespace_to_telemetries": by_namespace(context, one),
        "root_namespace": context.mesh.config.root_namespace,
    })
}

/// The Telemetries that apply to a proxy, in the shape of istiod's `computedTelemetries`, without
/// those of a service at a waypoint (`Namespace`).
fn telemetry_of(telemetries: &TelemetryDescription) -> Value {
    let TelemetryDescription {
        root,
        namespace,
        workload,
    } = telemetries;
    let key = |telemetry: &Arc<Object<Telemetry>>| telemetry.meta.key();
    let keys = |root: Option<NamespacedName>,
                proxy: Option<NamespacedName>,
                workload: Option<NamespacedName>| {
        let keys = [
            ("Root", root),
            ("Proxy", proxy),
            ("Namespace", None),
            ("Workload", workload),
        ];
        keys.map(|(level, object)| (level.to_owned(), name(object.as_ref())))
            .into_iter()
            .collect::<Map<_, _>>()
    };

    let logging = |telemetry: &Arc<Object<Telemetry>>, mut keys: Map<String, Value>| {
        let logging = &telemetry.spec.access_logging;
        keys.insert("Logging".to_owned(), to_proto_json(logging));
        (!logging.is_empty()).then_some(Value::Object(keys))
    };

    // As in istiod, the entry of the namespace does not have its own name with its logs.
    let of_root = root
        .iter()
        .filter_map(|rule| logging(rule, keys(Some(key(rule)), None, None)));
    let of_namespace = namespace
        .iter()
        .filter_map(|rule| logging(rule, keys(None, None, None)));
    let of_workload = workload
        .iter()
        .filter_map(|rule| logging(rule, keys(None, None, Some(key(rule)))));

    let all = || {
        root.iter()
            .chain(namespace)
            .chain(workload)
            .map(|object| &object.spec)
    };

    let mut page = keys(
        root.as_ref().map(key),
        namespace.as_ref().map(key),
        workload.last().map(key),
    );
    let metrics = all()
        .flat_map(|spec| &spec.metrics)
        .map(to_proto_json)
        .collect();

    let tracing = all()
        .flat_map(|spec| &spec.tracing)
        .map(to_proto_json)
        .collect();
    let logging = of_root.chain(of_namespace).chain(of_workload).collect();
    page.extend(
        [
            ("Metrics", metrics),
            ("Logging", logging),
            ("Tracing", tracing),
        ]
        .map(|(key, all)| (key.to_owned(), all)),
    );

    Value::Object(page)
}

/// An object's name in Go's format of a `NamespacedName`; empty for `None`.
fn name(name: Option<&NamespacedName>) -> Value {
    json!({
        "Namespace": name.map_or("", |name| name.namespace.as_str()),
        "Name": name.map_or("", |name| &*name.name),
    })
}

#[cfg(test)]
mod tests {
    use navarch_api::istio::AccessLogging;
    use navarch_api::object::ObjectMeta;

    use super::*;

    fn telemetry(namespace: &str, name: &str) -> Arc<Object<Telemetry>> {
        let meta = ObjectMeta {
            key: NamespacedName::new(namespace, name),
            ..ObjectMeta::default()
        };
        let access_logging = vec![AccessLogging {
            disabled: Some(true),
            ..AccessLogging::default()
        }];
        Arc::new(Object {
            meta,
            spec: Telemetry {
                access_logging,
                ..Telemetry::default()
            },
        })
    }

    #[test]
    fn telemetries_of_a_proxy_have_istiods_json_layout() {
        let telemetries = TelemetryDescription {
            root: Some(telemetry("istio-system", "mesh")),
            namespace: Some(telemetry("shop", "all")),
            workload: vec![telemetry("shop", "web"), telemetry("shop", "web-too")],
        };
        let (none, named) = (
            name(None),
            |namespace: &str, of: &str| json!({ "Namespace": namespace, "Name": of }),
        );

        let logging = |root: Value, workload: Value| {
            json!({
                "Root": root, "Proxy": none, "Namespace": none, "Workload": workload,
                "Logging": [{ "disabled": true }],
            })
        };

        let expected = json!({
            "Root": named("istio-system", "mesh"),
            "Proxy": named("shop", "all"),
            "Namespace": none,
            "Workload": named("shop", "web-too"),
            "Metrics": [],
            "Logging": [
                logging(named("istio-system", "mesh"), none.clone()),
                logging(none.clone(), none.clone()),
                logging(none.clone(), named("shop", "web")),
                logging(none.clone(), named("shop", "web-too")),
            ],
            "Tracing": [],
        });

        assert_eq!(telemetry_of(&telemetries), expected);
    }
}

//! `/debug/endpointShardz`: endpoints by host, namespace and shard (registry and cluster).

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_push::context::PushContext;
use navarch_registry::model::{Endpoint, Health, Registry, ServiceEndpoints, ServiceKey};

pub(super) async fn endpointz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(context) = state.push.inspect(|inspect| inspect.engine.context().clone()).await else {
        return reply::ended();
    };
    let mut hosts: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (key, endpoints) in &context.directory.endpoints {
        let entry = hosts.entry(key.hostname.to_string()).or_default();
        entry.insert(key.namespace.to_string(), describe(&context, key, endpoints));
    }
    reply::json(&parameters, &json!(hosts))
}

/// The endpoints of one service.
fn describe(context: &PushContext, key: &ServiceKey, endpoints: &ServiceEndpoints) -> Value {
    let service = context.directory.services.get(key).and_then(|services| services.first());
    let registry = super::registryz::registry(service.map_or(Registry::Kubernetes, |service| service.registry));
    let mut shards: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for endpoint in &endpoints.endpoints {
        shards.entry(format!("{registry}/{}", endpoint.workload.cluster)).or_default().push(one(endpoint));
    }
    let accounts: Map<String, Value> =
        endpoints.service_accounts.iter().map(|account| (account.to_string(), json!({}))).collect();
    json!({ "Shards": shards, "ServiceAccounts": accounts })
}

/// One endpoint.
fn one(endpoint: &Endpoint) -> Value {
    let workload = &endpoint.workload;
    json!({
        "Labels": workload.labels,
        "Addresses": endpoint.addresses,
        "ServicePortName": endpoint.port_name,
        "ServiceAccount": &*workload.identity,
        "Network": workload.network,
        "Locality": { "Label": &*workload.locality, "ClusterID": workload.cluster },
        "EndpointPort": endpoint.port,
        "LbWeight": endpoint.weight,
        "TLSMode": match workload.tls_mode {
            navarch_registry::model::TlsMode::Disabled => "disabled",
            navarch_registry::model::TlsMode::Istio => "istio",
        },
        "Namespace": workload.namespace,
        "WorkloadName": &*workload.name,
        "HostName": &*workload.hostname,
        "SubDomain": &*workload.subdomain,
        "HealthStatus": match endpoint.health {
            Health::Healthy => 0,
            Health::Unhealthy => 1,
            Health::Draining => 2,
            Health::Terminating => 3,
            Health::Unknown => 4,
        },
        "NodeName": &*workload.node,
    })
}

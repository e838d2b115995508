//! `/debug/endpointShardz`: endpoints by host, namespace and shard (registry and cluster).

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_registry::model::{Endpoint, Health, Registry, ServiceEndpoints};

pub(super) async fn endpointz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(context) = state
        .push
        .inspect(|inspect| inspect.engine.context().clone())
        .await
    else {
        return reply::ended();
    };
    let mut hosts: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (key, endpoints) in &context.directory.endpoints {
        let entry = hosts.entry(key.hostname.to_string()).or_default();
        entry.insert(key.namespace.to_string(), describe(endpoints));
    }
    reply::json(&parameters, &json!(hosts))
}

fn describe(endpoints: &ServiceEndpoints) -> Value {
    let mut shards: BTreeMap<String, Vec<Value>> = BTreeMap::new();

    for endpoint in &endpoints.endpoints {
        // A Service and a ServiceEntry may have the same host. Only endpoints of ServiceEntries
        // have a service port number.
        let is_of_entry = endpoint.legacy_port_key != 0;
        let registry = super::registryz::registry(if is_of_entry {
            Registry::External
        } else {
            Registry::Kubernetes
        });
        shards
            .entry(format!("{registry}/{}", endpoint.workload.location.cluster))
            .or_default()
            .push(one(endpoint));
    }

    let accounts: Map<String, Value> = endpoints
        .service_accounts
        .iter()
        .map(|account| (account.to_string(), json!({})))
        .collect();

    json!({ "Shards": shards, "ServiceAccounts": accounts })
}

fn one(endpoint: &Endpoint) -> Value {
    let workload = &endpoint.workload;
    let location = &workload.location;
    let dns_name = workload.dns_name.as_deref();

    json!({
        "Labels": reply::map(&workload.labels().to_map()),
        "Addresses": endpoint.addresses,
        "ServicePortName": endpoint.port_name,
        "LegacyClusterPortKey": endpoint.legacy_port_key,
        "ServiceAccount": &*workload.identity,
        "Network": location.network,
        "Locality": { "Label": &*location.locality, "ClusterID": location.cluster },
        "EndpointPort": endpoint.port,
        "LbWeight": endpoint.weight,
        "TLSMode": match workload.tls_mode {
            navarch_registry::model::TlsMode::Disabled => "disabled",
            navarch_registry::model::TlsMode::Istio => "istio",
        },
        "Namespace": workload.namespace,
        "WorkloadName": &*workload.name,
        "HostName": dns_name.map_or("", |name| &name.hostname),
        "SubDomain": dns_name.map_or("", |name| &name.subdomain),
        "HealthStatus": health(endpoint.health),
        "SendUnhealthyEndpoints": endpoint.send_unhealthy,
        "NodeName": &*location.node,
    })
}

/// Istio's number of a health (`HealthStatus` in `pilot/pkg/model/service.go`); 0 if it is unknown.
fn health(health: Health) -> u8 {
    match health {
        Health::Unknown => 0,
        Health::Healthy => 1,
        Health::Unhealthy => 2,
        Health::Draining => 3,
        Health::Terminating => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use navarch_api::names::{ClusterId, PortName};
    use navarch_registry::Location;
    use navarch_registry::model::{Discoverability, Workload};

    use super::*;

    fn endpoint(legacy_port_key: u16) -> Endpoint {
        let location = Arc::new(Location {
            cluster: ClusterId::new("east"),
            ..Location::default()
        });
        Endpoint {
            addresses: vec!["10.0.0.1".into()],
            port_name: PortName::new("http"),
            legacy_port_key,
            port: 8080,
            workload: Arc::new(Workload {
                location,
                ..Workload::default()
            }),
            health: Health::Unhealthy,
            send_unhealthy: true,
            weight: 0,
            discoverability: Discoverability::Mesh,
        }
    }

    #[test]
    fn health_states_have_istiods_numbers() {
        let all = [
            Health::Unknown,
            Health::Healthy,
            Health::Unhealthy,
            Health::Draining,
            Health::Terminating,
        ];
        assert_eq!(all.map(health), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn each_endpoint_is_in_the_shard_of_its_registry() {
        let endpoints = ServiceEndpoints {
            endpoints: vec![Arc::new(endpoint(0)), Arc::new(endpoint(80))],
            service_accounts: vec!["spiffe://td/ns/shop/sa/web".into()],
        };
        let shown = describe(&endpoints);
        let one = |legacy_port_key: u16| {
            json!([{
                "Labels": null, "Addresses": ["10.0.0.1"], "ServicePortName": "http",
                "LegacyClusterPortKey": legacy_port_key, "ServiceAccount": "", "Network": "",
                "Locality": { "Label": "", "ClusterID": "east" }, "EndpointPort": 8080, "LbWeight": 0,
                "TLSMode": "disabled", "Namespace": "", "WorkloadName": "", "HostName": "", "SubDomain": "",
                "HealthStatus": 2, "SendUnhealthyEndpoints": true, "NodeName": "",
            }])
        };

        let expected = json!({
            "Shards": { "Kubernetes/east": one(0), "External/east": one(80) },
            "ServiceAccounts": { "spiffe://td/ns/shop/sa/web": {} },
        });
        assert_eq!(shown, expected);
    }
}

//! `/debug/registryz`: all services in the shape of istiod's `model.Service`.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_registry::model::{ExportTo, Registry, Resolution, Service};

/// All services, by namespace and host.
pub(super) async fn registryz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(context) = state.push.inspect(|inspect| inspect.engine.context().clone()).await else {
        return reply::ended();
    };
    let services = context.directory.services.values().flat_map(|services| services.iter());
    reply::json(&parameters, &Value::Array(services.map(|service| describe(service)).collect()))
}

/// One service.
pub(super) fn describe(service: &Service) -> Value {
    let ports: Vec<Value> = service
        .ports
        .iter()
        .map(|port| json!({ "name": port.name, "port": port.port, "protocol": port.protocol.as_str() }))
        .collect();
    json!({
        "Attributes": {
            "ServiceRegistry": registry(service.registry),
            "Name": &*service.name,
            "Namespace": service.key.namespace,
            "Labels": service.labels,
            "ExportTo": export_to(&service.export_to),
            "LabelSelectors": service.selector,
            "ClusterExternalAddresses": { "Addresses": service.external_addresses.iter()
                .map(|(cluster, addresses)| (cluster.to_string(), json!(addresses))).collect::<serde_json::Map<_, _>>() },
        },
        "ports": ports,
        "serviceAccounts": service.service_accounts,
        "creationTime": service.created.map(|created| created.to_string()),
        "hostname": service.key.hostname,
        "clusterVIPs": { "Addresses": service.cluster_vips.iter()
            .map(|(cluster, addresses)| (cluster.to_string(), json!(addresses))).collect::<serde_json::Map<_, _>>() },
        "defaultAddress": &*service.default_address,
        "autoAllocatedIPv4Address": service.auto_ipv4.map(|ip| ip.to_string()),
        "autoAllocatedIPv6Address": service.auto_ipv6.map(|ip| ip.to_string()),
        "Resolution": resolution(service.resolution),
        "MeshExternal": service.mesh_external,
    })
}

/// Istio's name of a registry.
pub(super) fn registry(registry: Registry) -> &'static str {
    match registry {
        Registry::Kubernetes => "Kubernetes",
        Registry::External => "External",
    }
}

/// Istio's number of a resolution.
fn resolution(resolution: Resolution) -> u8 {
    match resolution {
        Resolution::ClientSideLb => 0,
        Resolution::DnsLb => 1,
        Resolution::Passthrough => 2,
        Resolution::DnsRoundRobinLb => 3,
        Resolution::Alias => 4,
        Resolution::DynamicDns => 5,
    }
}

/// Whom a service is shown to, as the keys of a map.
fn export_to(export_to: &ExportTo) -> Value {
    match export_to {
        ExportTo::Unset => Value::Null,
        ExportTo::Public => json!({ "*": {} }),
        ExportTo::Nobody => json!({ "~": {} }),
        ExportTo::Namespaces(namespaces) => {
            Value::Object(namespaces.iter().map(|namespace| (namespace.to_string(), json!({}))).collect())
        }
    }
}

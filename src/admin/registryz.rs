//! `/debug/registryz`: all services in the shape of istiod's `model.Service`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::names::ClusterId;
use navarch_base::small_map::SmallMap;
use navarch_registry::model::{
    ExportTo, Registry, Resolution, Service, ServiceKey, ServicePort, TrafficDistribution,
};

/// All services, by namespace and host.
pub(super) async fn registryz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(context) = state
        .push
        .inspect(|inspect| inspect.engine.context().clone())
        .await
    else {
        return reply::ended();
    };
    let services = context
        .directory
        .services
        .values()
        .flat_map(|services| services.iter());
    reply::json(
        &parameters,
        &Value::Array(services.map(|service| describe(service)).collect()),
    )
}

/// One service. Empty maps are `null`, and members that Go omits at their zero value are omitted.
pub(super) fn describe(service: &Service) -> Value {
    let mut value = json!({
        "Attributes": attributes(service),
        "creationTime": reply::time(service.created),
        "hostname": service.key.hostname,
        "clusterVIPs": addresses(&service.cluster_vips),
        "Resolution": resolution(service.resolution),
        "MeshExternal": service.mesh_external,
        // The version of Kubernetes is not kept, and istiod has none for ServiceEntries.
        "ResourceVersion": "",
    });

    let ports: Vec<Value> = service.ports.iter().map(port).collect();
    let text = |ip: Option<IpAddr>| json!(ip.map(|ip| ip.to_string()).unwrap_or_default());
    let mut others = json!({
        "ports": ports,
        "serviceAccounts": service.service_accounts,
        "defaultAddress": &*service.default_address,
        "autoAllocatedIPv4Address": text(service.auto_ipv4),
        "autoAllocatedIPv6Address": text(service.auto_ipv6),
    });

    reply::leave_out_unset(&mut others);
    if let (Some(value), Value::Object(others)) = (value.as_object_mut(), others) {
        value.extend(others);
    }

    value
}

/// One port. The name is omitted if it is empty.
pub(super) fn port(port: &ServicePort) -> Value {
    let mut value =
        json!({ "name": port.name, "port": port.port, "protocol": port.protocol.as_str() });
    reply::leave_out_unset(&mut value);
    value
}

/// The attributes of the registry.
fn attributes(service: &Service) -> Value {
    let alias = |key: &ServiceKey| json!({ "Hostname": key.hostname, "Namespace": key.namespace });
    let aliases: Vec<Value> = service.aliases.iter().map(alias).collect();
    let external_ports = service
        .external_ports
        .iter()
        .map(|(cluster, ports)| (cluster.to_string(), numbers(ports)));
    let external_ports: Map<String, Value> = external_ports.collect();
    let object = match service.registry {
        Registry::Kubernetes => "",
        Registry::External => &*service.origin.name.name,
    };

    json!({
        "ServiceRegistry": registry(service.registry),
        "Name": &*service.name,
        "Namespace": service.key.namespace,
        "Labels": reply::map(&service.labels),
        "ExportTo": export_to(&service.export_to),
        // The default visibility of the mesh config is already in `ExportTo`.
        "Visibility": 0,
        "LabelSelectors": reply::map(&service.selector),
        "Aliases": if aliases.is_empty() { Value::Null } else { Value::Array(aliases) },
        "ClusterExternalAddresses": addresses(&service.external_addresses),
        "ClusterExternalPorts": if external_ports.is_empty() { Value::Null } else { Value::Object(external_ports) },
        "PassthroughTargetPorts": numbers(&service.passthrough_target_ports),
        "Type": service.kubernetes.service_type,
        "ExternalName": &*service.kubernetes.external_name,
        "NodeLocal": service.kubernetes.node_local,
        "TrafficDistribution": traffic_distribution(service.kubernetes.traffic_distribution),
        "ObjectName": object,
        "DNSConnectStrategy": u8::from(service.races_connections),
        "PublishNotReadyAddresses": service.kubernetes.publish_not_ready,
    })
}

fn addresses(by_cluster: &SmallMap<ClusterId, Vec<Arc<str>>>) -> Value {
    let addresses: Map<String, Value> = by_cluster
        .iter()
        .map(|(cluster, addresses)| (cluster.to_string(), json!(addresses)))
        .collect();
    json!({ "Addresses": if addresses.is_empty() { Value::Null } else { Value::Object(addresses) } })
}

fn numbers(ports: &SmallMap<u16, u16>) -> Value {
    let ports: Map<String, Value> = ports
        .iter()
        .map(|(from, to)| (from.to_string(), json!(to)))
        .collect();
    if ports.is_empty() {
        Value::Null
    } else {
        Value::Object(ports)
    }
}

/// Istio's number of a traffic distribution.
fn traffic_distribution(distribution: TrafficDistribution) -> u8 {
    match distribution {
        TrafficDistribution::Any => 0,
        TrafficDistribution::PreferSameZone => 1,
        TrafficDistribution::PreferSameNode => 2,
    }
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

/// The visibility of a service, as the keys of a map.
fn export_to(export_to: &ExportTo) -> Value {
    match export_to {
        ExportTo::Unset => Value::Null,
        ExportTo::Public => json!({ "*": {} }),
        ExportTo::Nobody => json!({ "~": {} }),
        ExportTo::Namespaces(namespaces) => Value::Object(
            namespaces
                .iter()
                .map(|namespace| (namespace.to_string(), json!({})))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use navarch_api::names::PortName;
    use navarch_api::object::{Kind, NamespacedName, ObjectRef};
    use navarch_registry::model::{KubernetesAttributes, Labels};
    use navarch_registry::protocol::Protocol;

    use super::*;

    /// An entry of the namespace `shop` with the least that there can be.
    fn entry() -> Service {
        Service {
            key: ServiceKey::new("shop", "a.example"),
            origin: ObjectRef {
                kind: Kind::ServiceEntry,
                name: NamespacedName::new("shop", "entry"),
            },
            name: "a.example".into(),
            registry: Registry::External,
            created: None,
            labels: Labels::new(),
            ports: Vec::new(),
            resolution: Resolution::DnsLb,
            mesh_external: true,
            export_to: ExportTo::Unset,
            default_address: "0.0.0.0".into(),
            cluster_vips: SmallMap::default(),
            auto_ipv4: None,
            auto_ipv6: None,
            selector: Labels::new(),
            service_accounts: Vec::new(),
            aliases: Vec::new(),
            external_addresses: SmallMap::default(),
            external_ports: SmallMap::default(),
            passthrough_target_ports: SmallMap::default(),
            races_connections: true,
            kubernetes: KubernetesAttributes::default(),
        }
    }

    #[test]
    fn a_service_entry_has_the_members_that_go_writes() {
        let expected = json!({
            "Attributes": {
                "ServiceRegistry": "External", "Name": "a.example", "Namespace": "shop", "Labels": null,
                "ExportTo": null, "Visibility": 0, "LabelSelectors": null, "Aliases": null,
                "ClusterExternalAddresses": { "Addresses": null }, "ClusterExternalPorts": null,
                "PassthroughTargetPorts": null, "Type": "", "ExternalName": "", "NodeLocal": false,
                "TrafficDistribution": 0, "ObjectName": "entry", "DNSConnectStrategy": 1,
                "PublishNotReadyAddresses": false,
            },
            "creationTime": "0001-01-01T00:00:00Z", "hostname": "a.example", "clusterVIPs": { "Addresses": null },
            "defaultAddress": "0.0.0.0", "Resolution": 1, "MeshExternal": true, "ResourceVersion": "",
        });
        assert_eq!(describe(&entry()), expected);
    }

    #[test]
    fn a_kubernetes_service_has_its_type_and_ports() {
        let cluster = || ClusterId::new("east");
        let service = Service {
            registry: Registry::Kubernetes,
            ports: vec![ServicePort {
                name: PortName::new("http"),
                port: 80,
                protocol: Protocol::Http,
            }],
            aliases: vec![ServiceKey::new("shop", "alias.example")],
            external_ports: [(cluster(), [(80, 30080)].into_iter().collect())]
                .into_iter()
                .collect(),
            external_addresses: [(cluster(), vec!["192.0.2.1".into()])]
                .into_iter()
                .collect(),
            kubernetes: KubernetesAttributes {
                service_type: "NodePort",
                traffic_distribution: TrafficDistribution::PreferSameNode,
                ..KubernetesAttributes::default()
            },
            ..entry()
        };

        let shown = describe(&service);
        let attributes = &shown["Attributes"];
        assert_eq!(
            shown["ports"],
            json!([{ "name": "http", "port": 80, "protocol": "HTTP" }])
        );
        assert_eq!(attributes["Type"], "NodePort");
        assert_eq!(attributes["ObjectName"], "");

        assert_eq!(attributes["TrafficDistribution"], 2);
        assert_eq!(
            attributes["Aliases"],
            json!([{ "Hostname": "alias.example", "Namespace": "shop" }])
        );
        assert_eq!(
            attributes["ClusterExternalPorts"],
            json!({ "east": { "80": 30080 } })
        );

        assert_eq!(
            attributes["ClusterExternalAddresses"],
            json!({ "Addresses": { "east": ["192.0.2.1"] } })
        );
    }
}

//! The data of the templates for Gateways.

use gotmpl::Value;
use serde_json::Value as Json;

use super::super::gateway::{GatewayPort, Proxies};
use super::data::{Fixed, Unset, proxy_config, with_zeros};
use super::value::{Entries, map, of_struct, text};

/// A part of the Gateway as a struct.
fn part(gateway: &Json, name: &str, zeros: &[(&str, Unset)]) -> Value {
    let part = gateway.get(name).map_or(Value::Nil, of_struct);
    with_zeros(part, zeros)
}

fn texts(texts: &std::collections::BTreeMap<String, String>) -> Value {
    map(texts
        .iter()
        .map(|(name, value)| (name.as_str().into(), text(value.as_str())))
        .collect())
}

fn port(port: &GatewayPort) -> Value {
    let entries = [
        ("Name", text(port.name.as_str())),
        ("Port", Value::Int(port.port.into())),
        ("Protocol", text(port.protocol)),
        ("AppProtocol", text(port.app_protocol.as_str())),
    ];
    map(entries
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .collect())
}

/// All data for a Gateway. As in Go, the fields of its metadata are next to the controller's
/// fields.
pub(super) fn data(fixed: &Fixed, proxies: &Proxies<'_>) -> Value {
    let request = proxies.request;
    let zeros = [
        ("Name", Unset::Text),
        ("Namespace", Unset::Text),
        ("UID", Unset::Text),
        ("Labels", Unset::Map),
        ("Annotations", Unset::Map),
    ];

    let meta = part(request.gateway, "metadata", &zeros);
    let mut all = match &meta {
        Value::Map(entries) => (**entries).clone(),
        _ => Entries::new(),
    };
    all.remove(super::value::JSON);
    let entries = [
        (
            "TypeMeta",
            part(
                &Json::Null,
                "",
                &[("APIVersion", Unset::Text), ("Kind", Unset::Text)],
            ),
        ),
        ("ObjectMeta", meta),
        (
            "Spec",
            part(
                request.gateway,
                "spec",
                &[("Addresses", Unset::List), ("Listeners", Unset::List)],
            ),
        ),
        (
            "Status",
            part(request.gateway, "status", &[("Addresses", Unset::List)]),
        ),
        ("GatewayClass", text(request.class)),
        (
            "GatewayNameLabel",
            text("gateway.networking.k8s.io/gateway-name"),
        ),
        ("DeploymentName", text(request.deployment)),
        ("ServiceAccount", text(request.service_account)),
        (
            "Ports",
            Value::List(request.ports.iter().map(port).collect()),
        ),
        ("ServiceType", text(request.service_type)),
        ("ClusterID", text(request.cluster)),
        ("KubeVersion", Value::Int(request.kube_version)),
        ("Revision", text(proxies.revision)),
        ("NativeSidecars", Value::Bool(proxies.native_sidecars)),
        ("ProxyUID", Value::Int(proxies.ids.user)),
        ("ProxyGID", Value::Int(proxies.ids.group)),
        ("CompliancePolicy", text(proxies.compliance_policy)),
        ("InfrastructureLabels", texts(request.labels)),
        ("InfrastructureAnnotations", texts(request.annotations)),
        ("IsEastWestGateway", Value::Bool(request.east_west)),
        ("ControllerLabel", text(request.controller)),
        ("ProxyImage", text(proxies.image)),
        (
            "ProxyConfig",
            proxy_config(&proxies.proxy.config, &proxies.proxy.json),
        ),
        ("MeshConfig", fixed.mesh.clone()),
        ("Values", fixed.values.clone()),
    ];

    all.extend(
        entries
            .into_iter()
            .map(|(name, value)| (name.into(), value)),
    );

    map(all)
}

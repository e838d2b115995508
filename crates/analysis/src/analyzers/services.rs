//! The ports of Services.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::in_mesh::is_control_plane;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;

/// Checks that ports declare their protocol.
pub(super) static ANALYZERS: &[Analyzer] = &[Analyzer {
    name: "service.PortNameAnalyzer",
    description: "Checks the port names associated with each service",
    inputs: &[Kind::Service],
    run,
}];

/// The label of Services that a controller made, and its values.
const MANAGED: (&str, [&str; 3]) = (
    "gateway.istio.io/managed",
    [
        "istio.io-gateway-controller",
        "istio.io-mesh-controller",
        "istio.io-eastwest-controller",
    ],
);
/// The protocols that a port may be named for.
const PROTOCOLS: [&str; 12] = [
    "tcp",
    "udp",
    "grpc",
    "grpc-web",
    "http",
    "http_proxy",
    "http2",
    "https",
    "tls",
    "mongo",
    "redis",
    "mysql",
];
/// The protocols of Kubernetes' own names.
const STANDARD: [&str; 3] = ["kubernetes.io/h2c", "kubernetes.io/ws", "kubernetes.io/wss"];
/// Ports of server-first protocols, for which no protocol is detected.
const SERVER_FIRST: [i32; 4] = [25, 53, 3306, 27017];

/// Reports ports that need protocol detection.
fn run(context: &Context, report: &mut Report) {
    for (resource, service) in context.specs::<Service>() {
        let is_managed = resource
            .label(MANAGED.0)
            .is_some_and(|by| MANAGED.1.contains(&by));
        let Some(spec) = service
            .spec
            .as_ref()
            .filter(|_| !is_control_plane(resource) && !is_managed)
        else {
            continue;
        };

        let is_external = spec.type_.as_deref() == Some("ExternalName");

        for (index, port) in spec.ports.iter().flatten().enumerate() {
            let name = port.name.as_deref().unwrap_or_default();
            if has_protocol(port) && !(is_external && name == "tcp") {
                continue;
            }

            let message = if is_external {
                Message::new(
                    &messages::EXTERNAL_NAME_SERVICE_TYPE_INVALID_PORT_NAME,
                    resource,
                    parameters![],
                )
            } else {
                let target = match &port.target_port {
                    Some(IntOrString::Int(number)) => number.to_string(),
                    Some(IntOrString::String(name)) => name.clone(),
                    None => "0".to_owned(),
                };
                let parameters = parameters![name, port.port, target];
                Message::new(
                    &messages::PORT_NAME_IS_NOT_UNDER_NAMING_CONVENTION,
                    resource,
                    parameters,
                )
            };

            report.add(message.at(&format!("spec.ports[{index}].port")));
        }
    }
}

/// Whether a port declares its protocol.
fn has_protocol(port: &ServicePort) -> bool {
    let name = port
        .app_protocol
        .as_deref()
        .unwrap_or(port.name.as_deref().unwrap_or_default());
    let is_standard = port.app_protocol.is_some() && STANDARD.contains(&name);
    let lower = name.to_ascii_lowercase();
    let prefix = lower.split('-').next().unwrap_or_default();
    port.protocol.as_deref() == Some("UDP")
        || is_standard
        || lower.starts_with("grpc-web")
        || PROTOCOLS.contains(&prefix)
        || SERVER_FIRST.contains(&port.port)
}

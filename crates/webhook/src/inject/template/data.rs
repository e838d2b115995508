//! The data of templates (`SidecarTemplateData` of istiod's `pkg/kube/inject`).

use gotmpl::Value;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::super::context::{Context, ImageOf};
use super::super::pod;
use super::value::{Entries, JSON, map, of_json, of_struct, text};
use navarch_api::mesh::{InboundTrafficPolicyMode, MeshConfig, ProxyConfig};

/// The data that is the same for all pods.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) values: Value,
    /// Mesh config.
    pub(super) mesh: Value,
}

impl Fixed {
    /// Creates the data from values and mesh config.
    pub(super) fn new(values: &Json, mesh: &MeshConfig) -> Self {
        Self {
            values: of_json(values),
            mesh: of_message(mesh),
        }
    }
}

/// Converts a message of Istio's API.
fn of_message(message: &impl Serialize) -> Value {
    let json = serde_json::to_value(message).expect("all map keys of a message are strings");
    of_struct(&json)
}

/// The proxy config; its JSON is the text for the proxy's environment.
pub(super) fn proxy_config(config: &ProxyConfig, json: &str) -> Value {
    let Value::Map(entries) = of_message(config) else {
        return Value::Nil;
    };
    let mut entries = (*entries).clone();
    entries.insert(JSON.into(), text(json));
    map(entries)
}

/// Go's zero value of an unset field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unset {
    /// The empty string.
    Text,
    /// The empty map.
    Map,
    /// The empty list.
    List,
    No,
    Zero,
}

/// Adds Go's zero values for unset fields to a struct.
pub(super) fn with_zeros(value: Value, zeros: &[(&str, Unset)]) -> Value {
    let mut entries = match value {
        Value::Map(entries) => (*entries).clone(),
        _ => Entries::new(),
    };
    for (name, zero) in zeros {
        entries.entry((*name).into()).or_insert_with(|| match zero {
            Unset::Text => text(""),
            Unset::Map => map(Entries::new()),
            Unset::List => Value::List(Vec::new().into()),
            Unset::No => Value::Bool(false),
            Unset::Zero => Value::Int(0),
        });
    }
    map(entries)
}

fn metadata(pod: &Json, namespace: &str) -> Value {
    let empty = Json::Object(Map::new());
    let mut meta = pod.get("metadata").unwrap_or(&empty).clone();
    let fields = pod::as_map(&mut meta);
    fields.remove("managedFields");
    fields.insert("namespace".to_owned(), Json::String(namespace.to_owned()));
    let zeros = [
        ("Name", Unset::Text),
        ("GenerateName", Unset::Text),
        ("Labels", Unset::Map),
        ("Annotations", Unset::Map),
    ];
    with_zeros(of_struct(&meta), &zeros)
}

fn spec(pod: &Json) -> Value {
    let empty = Json::Object(Map::new());
    let zeros = [
        ("ServiceAccountName", Unset::Text),
        ("NodeName", Unset::Text),
        ("DNSPolicy", Unset::Text),
        ("HostNetwork", Unset::No),
        ("NodeSelector", Unset::Map),
        ("Containers", Unset::List),
        ("InitContainers", Unset::List),
        ("Volumes", Unset::List),
        ("ImagePullSecrets", Unset::List),
    ];

    let Value::Map(entries) = with_zeros(of_struct(pod.get("spec").unwrap_or(&empty)), &zeros)
    else {
        return Value::Nil;
    };

    let mut entries = (*entries).clone();

    for list in ["Containers", "InitContainers"] {
        if let Some(Value::List(containers)) = entries.get(list) {
            let containers = containers
                .iter()
                .map(|value| container(value.clone()))
                .collect();
            entries.insert(list.into(), Value::List(containers));
        }
    }

    map(entries)
}

fn container(value: Value) -> Value {
    let zeros = [
        ("Name", Unset::Text),
        ("Image", Unset::Text),
        ("Ports", Unset::List),
        ("Env", Unset::List),
        ("Args", Unset::List),
        ("Command", Unset::List),
        ("VolumeMounts", Unset::List),
    ];

    let Value::Map(entries) = with_zeros(value, &zeros) else {
        return Value::Nil;
    };

    let mut entries = (*entries).clone();
    if let Some(Value::List(ports)) = entries.get("Ports") {
        let zeros = [
            ("Name", Unset::Text),
            ("Protocol", Unset::Text),
            ("HostIP", Unset::Text),
            ("HostPort", Unset::Zero),
        ];
        let ports = ports
            .iter()
            .map(|port| with_zeros(port.clone(), &zeros))
            .collect();
        entries.insert("Ports".into(), Value::List(ports));
    }

    map(entries)
}

/// All data for a pod.
pub(super) fn data(fixed: &Fixed, context: &Context<'_>) -> Value {
    let workload = context.workload;
    let policy = context
        .mesh
        .inbound_traffic_policy
        .as_ref()
        .map(|policy| policy.mode);

    let inbound = if policy == Some(InboundTrafficPolicyMode::Localhost) {
        "localhost"
    } else {
        "passthrough"
    };

    let pair = |a: (&str, &str), b: (&str, &str)| {
        map([a, b]
            .into_iter()
            .map(|(name, value)| (name.into(), text(value)))
            .collect())
    };

    let entries = [
        (
            "TypeMeta",
            pair(
                ("APIVersion", &workload.api_version),
                ("Kind", &workload.kind),
            ),
        ),
        (
            "DeploymentMeta",
            pair(("Name", &workload.name), ("Namespace", &workload.namespace)),
        ),
        ("ObjectMeta", metadata(context.pod, &workload.namespace)),
        ("Spec", spec(context.pod)),
        (
            "ProxyConfig",
            proxy_config(context.proxy_config(), &context.proxy.json),
        ),
        ("MeshConfig", fixed.mesh.clone()),
        ("Values", fixed.values.clone()),
        ("Revision", text(context.revision)),
        ("NativeSidecars", Value::Bool(context.native_sidecars)),
        ("ProxyImage", text(context.stock_image(ImageOf::Proxy))),
        ("ProxyInitImage", text(context.stock_image(ImageOf::Init))),
        ("ProxyUID", Value::Int(context.ids.user)),
        ("ProxyGID", Value::Int(context.ids.group)),
        ("InboundTrafficPolicyMode", text(inbound)),
        ("CompliancePolicy", text(context.compliance_policy)),
    ];

    map(entries
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .collect())
}

//! Encoding of a typed object as JSON of an API server, which
//! [`decode_value`](super::decode::decode_value) decodes to the same object.
//!
//! Only the kept fields of an object are written, so it is not a copy of the original.

mod kubernetes;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::any_object::AnyObject;
use super::decode::served_versions;
use super::object::{Kind, Object, ObjectMeta};

/// Writes an object.
///
/// # Errors
/// When a value cannot be represented in JSON, such as NaN.
pub fn encode_value(object: &AnyObject) -> Result<Value, serde_json::Error> {
    let mut content = content(object)?;
    let kind = object.kind();
    content.insert("apiVersion".to_owned(), api_version(kind).into());
    content.insert("kind".to_owned(), kind.as_str().into());
    let metadata = metadata(object.meta());
    match content.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(more) => more.extend(metadata),
        None => _ = content.insert("metadata".to_owned(), Value::Object(metadata)),
    }
    Ok(Value::Object(content))
}

/// The preferred version of a kind, with its group.
fn api_version(kind: Kind) -> String {
    let version = served_versions(kind).first().copied().unwrap_or("v1");
    match kind.group() {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// The kept fields of metadata.
fn metadata(meta: &ObjectMeta) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |key: &str, value: Value| _ = all.insert(key.to_owned(), value);
    add("name", json!(&*meta.key.name));
    if !meta.key.namespace.is_empty() {
        add("namespace", json!(meta.key.namespace));
    }

    if !meta.labels.is_empty() {
        add("labels", json!(meta.labels));
    }

    if !meta.annotations.is_empty() {
        add("annotations", json!(meta.annotations));
    }

    if let Some(created) = meta.created {
        add("creationTimestamp", json!(created.to_string()));
    }

    if !meta.resource_version.is_empty() {
        add("resourceVersion", json!(&*meta.resource_version));
    }

    if meta.generation != 0 {
        add("generation", json!(meta.generation));
    }

    let uid = meta.uid.to_string();
    if !uid.is_empty() {
        add("uid", json!(uid));
    }

    if let Some(owner) = &meta.controller {
        let owner = json!({ "apiVersion": "", "kind": &*owner.kind, "name": &*owner.name, "uid": "", "controller": true });
        add("ownerReferences", json!([owner]));
    }

    if meta.deleting {
        // The time is not kept.
        add("deletionTimestamp", json!("1970-01-01T00:00:00Z"));
    }

    all
}

/// An object without metadata and kind.
fn content(object: &AnyObject) -> Result<Map<String, Value>, serde_json::Error> {
    let with_status = |mut all: Map<String, Value>, status: Value| {
        all.insert("status".to_owned(), status);
        all
    };

    Ok(match object {
        AnyObject::Namespace(_) => Map::new(),
        AnyObject::Node(node) => kubernetes::node(&node.spec),
        AnyObject::Service(service) => kubernetes::service(&service.spec),
        AnyObject::EndpointSlice(slice) => kubernetes::endpoint_slice(&slice.spec),
        AnyObject::Pod(pod) => kubernetes::pod(&pod.spec),
        AnyObject::Secret(secret) => kubernetes::secret(&secret.spec),
        AnyObject::ConfigMap(map) => kubernetes::config_map(&map.spec),
        AnyObject::ServiceAccount(account) => kubernetes::service_account(&account.spec),
        AnyObject::Ingress(ingress) => kubernetes::ingress(&ingress.spec),
        AnyObject::IngressClass(class) => kubernetes::ingress_class(&class.spec),
        AnyObject::ServiceEntry(entry) if !entry.spec.allocated.is_empty() => with_status(
            spec(entry)?,
            json!({ "addresses": serde_json::to_value(&entry.spec.allocated)? }),
        ),
        AnyObject::ServiceEntry(object) => spec(object)?,
        AnyObject::WorkloadEntry(entry) if entry.spec.healthy => with_status(
            spec(entry)?,
            json!({ "conditions": [{ "type": "Healthy", "status": "True" }] }),
        ),
        AnyObject::WorkloadEntry(object) => spec(object)?,
        AnyObject::KubernetesGateway(gateway) => {
            with_status(spec(gateway)?, serde_json::to_value(&gateway.spec.status)?)
        }
        AnyObject::VirtualService(object) => spec(object)?,
        AnyObject::DestinationRule(object) => spec(object)?,
        AnyObject::Gateway(object) => spec(object)?,
        AnyObject::Sidecar(object) => spec(object)?,
        AnyObject::EnvoyFilter(object) => spec(object)?,
        AnyObject::ProxyConfig(object) => spec(object)?,
        AnyObject::WorkloadGroup(object) => spec(object)?,
        AnyObject::PeerAuthentication(object) => spec(object)?,
        AnyObject::AuthorizationPolicy(object) => spec(object)?,
        AnyObject::RequestAuthentication(object) => spec(object)?,
        AnyObject::Telemetry(object) => spec(object)?,
        AnyObject::WasmPlugin(object) => spec(object)?,
        AnyObject::TrafficExtension(object) => spec(object)?,
        AnyObject::GatewayClass(object) => spec(object)?,
        AnyObject::HttpRoute(object) => spec(object)?,
        AnyObject::GrpcRoute(object) => spec(object)?,
        AnyObject::TlsRoute(object) => spec(object)?,
        AnyObject::TcpRoute(object) => spec(object)?,
        AnyObject::ReferenceGrant(object) => spec(object)?,
        AnyObject::BackendTlsPolicy(object) => spec(object)?,
        AnyObject::ListenerSet(object) => spec(object)?,
        AnyObject::XBackendTrafficPolicy(object) => spec(object)?,
        AnyObject::XBackend(object) => spec(object)?,
        AnyObject::InferencePool(object) => spec(object)?,
        AnyObject::ServiceExport(object) => spec(object)?,
        AnyObject::ServiceImport(object) => spec(object)?,
    })
}

/// The spec of a kind that a CustomResourceDefinition defines.
fn spec<T: Serialize>(object: &Object<T>) -> Result<Map<String, Value>, serde_json::Error> {
    Ok(Map::from_iter([(
        "spec".to_owned(),
        serde_json::to_value(&object.spec)?,
    )]))
}

//! The objects of a Gateway: a pure function of it, its class, the settings, ConfigMaps, and the configuration of injection.

use std::collections::BTreeMap;

use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_webhook::inject::{GatewayRequest, InjectError, Injector};
use serde_json::Value;

use super::MANAGED;
use super::classes::ClassInfo;
use super::metadata::Metadata;
use super::overlays::{Data, laid};
use super::ports::ports;
use super::settings::GatewayControllerSettings;

/// A Gateway whose proxies are made here, and what bears on their objects.
#[derive(Clone, Debug)]
pub struct Deployed<'a> {
    /// The Gateway, as the API server has it.
    pub gateway: &'a Value,
    /// What the Gateway's author asks for.
    pub spec: &'a KubernetesGateway,
    /// What the controller of its GatewayClass deploys.
    pub class: &'a ClassInfo,
    /// The listeners of the ListenerSets that may attach to it.
    pub listeners: Vec<&'a Listener>,
    /// What ConfigMaps lay over the objects, the uppermost last.
    pub overlays: Vec<&'a BTreeMap<String, String>>,
    /// The annotations of its namespace, where they are known.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// The version of the API server: 136 is 1.36.
    pub kube_version: i64,
}

/// Why a Gateway has no objects. Users must fix it, so it is not retried.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The template failed.
    #[error(transparent)]
    Template(#[from] InjectError),
    /// The Gateway refers to something that is no ConfigMap.
    #[error("infrastructure.parametersRef has kind {group:?}/{kind:?}; only ConfigMap is supported")]
    Parameters {
        /// API group that the reference names; empty is the core group.
        group: String,
        /// Kind that the reference names.
        kind: String,
    },
    /// There is no such ConfigMap.
    #[error("infrastructure.parametersRef: ConfigMap {0:?} not found")]
    NoParameters(String),
    /// A ConfigMap has a key that is no overlay's.
    #[error(
        "unknown overlay {0:?}; use deployment, horizontalPodAutoscaler, podDisruptionBudget, service or serviceAccount"
    )]
    Key(String),
    /// An overlay cannot be laid over its object.
    #[error("overlay {key:?}: {reason}")]
    Overlay {
        /// Key of the ConfigMap, as in `deployment`.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An overlay changes which object it is, or whose.
    #[error("overlay {key:?} may not change the identity or owner of the object")]
    Identity {
        /// Key of the ConfigMap, as in `deployment`.
        key: String,
    },
    /// A template makes objects of a kind that is not made.
    #[error("the template renders {version} {kind}, which is not supported for Gateways")]
    Kind {
        /// `apiVersion` of the object.
        version: String,
        /// `kind` of the object.
        kind: String,
    },
    /// A template makes an object in another namespace, or of a name that says nothing of the Gateway.
    #[error("the template renders {kind} {namespace}/{name}, which does not belong to the Gateway")]
    Foreign {
        /// `kind` of the object.
        kind: String,
        /// `metadata.namespace` of the object.
        namespace: String,
        /// `metadata.name` of the object.
        name: String,
    },
}

/// The objects of a Gateway, in the order in which they are applied. None for a class without proxies.
///
/// # Errors
/// When template, overlays and Gateway do not go together.
pub fn objects(
    deployed: &Deployed<'_>,
    settings: &GatewayControllerSettings,
    injector: &Injector,
) -> Result<Vec<Value>, ObjectsError> {
    let Deployed { gateway, spec, class, .. } = deployed;
    let Some(template) = class.template else { return Ok(Vec::new()) };
    let metadata = Metadata::of(gateway, spec, class, settings, &injector.network());
    let listeners = spec.listeners.iter().chain(deployed.listeners.iter().copied());
    let request = GatewayRequest {
        gateway,
        class: &spec.gateway_class_name,
        deployment: &metadata.deployment,
        service_account: &metadata.service_account,
        ports: &ports(listeners, settings.quic),
        service_type: &metadata.service_type,
        labels: &metadata.labels,
        annotations: &metadata.annotations,
        controller: class.label,
        east_west: class.east_west,
        cluster: &settings.cluster,
        kube_version: deployed.kube_version,
        namespace_annotations: deployed.namespace_annotations,
    };
    let overlays: Vec<&Data> = deployed.overlays.clone();
    let mut made = Vec::new();
    for object in injector.gateway_objects(template, &request)? {
        let Some(mut object) = laid(&object, &overlays)? else { continue };
        check(&object, gateway, &metadata)?;
        mark(&mut object, &class.controller);
        made.push(object);
    }
    Ok(made)
}

/// A text of the metadata of an object.
fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// Sees to it that an object is the Gateway's, whatever the template says.
fn check(object: &Value, gateway: &Value, metadata: &Metadata) -> Result<(), ObjectsError> {
    let name = meta(object, "name");
    let is_named = name == metadata.deployment
        || name == metadata.service_account
        || (!name.is_empty() && name.starts_with(meta(gateway, "name")));
    if is_named && meta(object, "namespace") == meta(gateway, "namespace") {
        return Ok(());
    }
    Err(ObjectsError::Foreign {
        kind: object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned(),
        namespace: meta(object, "namespace").to_owned(),
        name: name.to_owned(),
    })
}

/// Labels an object as made by a controller.
fn mark(object: &mut Value, controller: &str) {
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let labels = meta.entry("labels").or_insert_with(|| Value::Object(serde_json::Map::new()));
    if !labels.is_object() {
        *labels = Value::Object(serde_json::Map::new());
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(MANAGED.to_owned(), Value::String(controller.replace('/', "-")));
    }
}

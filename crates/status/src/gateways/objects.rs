//! The objects of a Gateway: a pure function of the Gateway, its class, the settings, ConfigMaps,
//! and the injection config.

use std::collections::BTreeMap;

use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_api::object::NamespacedName;
use navarch_kubernetes::{InvalidName, object_name};
use navarch_webhook::inject::{GatewayRequest, InjectError, Injector};
use serde_json::Value;

use super::MANAGED;
use super::classes::ClassInfo;
use super::metadata::{Metadata, NAME_OVERRIDE, SERVICE_ACCOUNT};
use super::overlays::{Overlay, with_overlays};
use super::ports::ports;
use super::settings::GatewayControllerSettings;

/// A Gateway to deploy, and the inputs of its objects.
#[derive(Clone, Debug)]
pub struct Deployed<'a> {
    /// The Gateway object from the API server.
    pub gateway: &'a Value,
    /// `spec` of the same object, decoded.
    pub spec: &'a KubernetesGateway,
    /// The class of the Gateway.
    pub class: &'a ClassInfo,
    /// The listeners of its ListenerSets.
    pub listeners: Vec<&'a Listener>,
    /// The overlays from ConfigMaps, in order of application.
    pub overlays: Vec<Overlay<'a>>,
    /// The annotations of its namespace, if known.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// The version of the API server, such as 136 for 1.36.
    pub kube_version: i64,
}

/// Why a Gateway has no objects. Users must fix it, so it is not retried.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The template failed.
    #[error(transparent)]
    Template(#[from] InjectError),
    /// The Gateway refers to an object that is not a ConfigMap.
    #[error(
        "infrastructure.parametersRef has kind {group:?}/{kind:?}; only ConfigMap is supported"
    )]
    Parameters {
        /// The API group of the reference; empty is the core group.
        group: String,
        /// The kind of the reference.
        kind: String,
    },
    /// The ConfigMap does not exist.
    #[error("infrastructure.parametersRef: ConfigMap {0:?} not found")]
    NoParameters(String),
    /// A ConfigMap has a key that is not an overlay.
    #[error(
        "ConfigMap {map}: unknown overlay {key:?}; use deployment, horizontalPodAutoscaler, podDisruptionBudget, service or serviceAccount"
    )]
    Key {
        /// The ConfigMap.
        map: NamespacedName,
        /// The unknown key.
        key: String,
    },
    /// An overlay cannot be applied to its object.
    #[error("ConfigMap {map}: overlay {key:?}: {reason}")]
    Overlay {
        /// The ConfigMap.
        map: NamespacedName,
        /// The key of the ConfigMap, such as `deployment`.
        key: String,
        /// The text is not YAML, is not an object, or cannot be merged into the object of the
        /// template.
        reason: String,
    },
    /// An overlay changes the identity or the owner of the object.
    #[error("ConfigMap {map}: overlay {key:?} may not change the identity or owner of the object")]
    Identity {
        /// The ConfigMap.
        map: NamespacedName,
        /// The key of the ConfigMap, such as `deployment`.
        key: String,
    },
    /// An annotation or a reference names an object by what cannot be a name.
    #[error("{field}: {error}")]
    Name {
        /// The annotation or the field of the Gateway.
        field: &'static str,
        /// The name.
        #[source]
        error: InvalidName,
    },
    /// A template renders an object of an unsupported kind.
    #[error("the template renders {version} {kind}, which is not supported for Gateways")]
    Kind {
        /// `apiVersion` of the object.
        version: String,
        /// `kind` of the object.
        kind: String,
    },
    /// A template renders an object in another namespace, or with a name that does not derive from
    /// the Gateway's.
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

impl ObjectsError {
    /// Whether an overlay is the cause, which the Gateway's status reports. A fault of the
    /// reference to its ConfigMap is reported by the translation of Gateways.
    pub(super) fn is_rejected_overlay(&self) -> bool {
        match self {
            Self::Key { .. } | Self::Overlay { .. } | Self::Identity { .. } => true,
            Self::Template(_)
            | Self::Parameters { .. }
            | Self::NoParameters(_)
            | Self::Name { .. }
            | Self::Kind { .. }
            | Self::Foreign { .. } => false,
        }
    }
}

/// The objects of a Gateway, in the order in which they are applied. Empty for a class without
/// proxies.
///
/// # Errors
/// If the template or an overlay is invalid.
pub fn objects(
    deployed: &Deployed<'_>,
    settings: &GatewayControllerSettings,
    injector: &Injector,
) -> Result<Vec<Value>, ObjectsError> {
    let Deployed {
        gateway,
        spec,
        class,
        ..
    } = deployed;

    let Some(template) = class.template else {
        return Ok(Vec::new());
    };

    let metadata = Metadata::of(gateway, spec, class, settings, &injector.network());
    for (field, name) in [
        (NAME_OVERRIDE, &metadata.deployment),
        (SERVICE_ACCOUNT, &metadata.service_account),
    ] {
        object_name(name).map_err(|error| ObjectsError::Name { field, error })?;
    }

    let listeners = spec
        .listeners
        .iter()
        .chain(deployed.listeners.iter().copied());
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

    let mut made = Vec::new();

    for object in injector.gateway_objects(template, &request)? {
        let Some(mut object) = with_overlays(&object, &deployed.overlays)? else {
            continue;
        };
        check(&object, gateway, &metadata)?;
        mark(&mut object, &class.controller);
        made.push(object);
    }

    Ok(made)
}

/// A string in the metadata of an object.
fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|meta| meta.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Checks that the name and namespace of a rendered object are the Gateway's.
fn check(object: &Value, gateway: &Value, metadata: &Metadata) -> Result<(), ObjectsError> {
    let name = meta(object, "name");
    object_name(name).map_err(|error| ObjectsError::Name {
        field: "metadata.name",
        error,
    })?;

    let is_named = name == metadata.deployment
        || name == metadata.service_account
        || (!name.is_empty() && name.starts_with(meta(gateway, "name")));
    if is_named && meta(object, "namespace") == meta(gateway, "namespace") {
        return Ok(());
    }
    Err(ObjectsError::Foreign {
        kind: object
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        namespace: meta(object, "namespace").to_owned(),
        name: name.to_owned(),
    })
}

/// Adds the label of the controller to an object.
fn mark(object: &mut Value, controller: &str) {
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let labels = meta
        .entry("labels")
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    if !labels.is_object() {
        *labels = Value::Object(serde_json::Map::new());
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(
            MANAGED.to_owned(),
            Value::String(controller.replace('/', "-")),
        );
    }
}

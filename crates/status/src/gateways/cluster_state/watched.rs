//! What the controllers keep of watched objects.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use navarch_api::gateway_api::{KubernetesGateway, ListenerSet};
use navarch_api::object::NamespacedName;
use navarch_api::text_map::TextMap;
use serde_json::Value;

use super::super::GATEWAY_API;
use super::super::listener_sets::AttachedSet;
use super::super::overlays::Data;
use super::super::rejected_overlays;
use super::super::watches::DEFAULTS_FOR_CLASS;
use super::super::writer::Fields;

/// A Gateway without its status, except for what this controller writes into it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gateway {
    /// The object from the API server.
    pub(super) value: Value,
    pub(super) spec: KubernetesGateway,
    /// The ConfigMap that it refers to, or the group and kind of another referenced object.
    pub(super) parameters: Option<Result<NamespacedName, (String, String)>>,
    /// The rejection of an overlay that its status reports.
    pub(super) told: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Namespace {
    pub(super) labels: TextMap,
    /// Its annotations about user and group IDs of pods.
    pub(super) annotations: Data,
}

/// A ConfigMap with defaults for all Gateways of a class.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Defaults {
    /// Its creation time: the oldest ConfigMap of a class is used.
    pub(super) created: Option<Timestamp>,
    pub(super) class: String,
    pub(super) data: Data,
}

/// An object that these controllers created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateways) struct MadeObject {
    pub(in crate::gateways) owner: Option<NamespacedName>,
    /// The digest of its applied fields.
    pub(in crate::gateways) fields: Fields,
}

impl MadeObject {
    /// The relevant fields of an object.
    pub(in crate::gateways) fn of(object: &DynamicObject, manager: &str) -> Self {
        let owners = object.metadata.owner_references.iter().flatten();
        let mut gateways = owners.filter(|owner| {
            owner.kind == "Gateway" && owner.api_version.split('/').next() == Some(GATEWAY_API.0)
        });
        let namespace = object.namespace().unwrap_or_default();
        let owner = gateways
            .next()
            .map(|owner| NamespacedName::new(&namespace, &owner.name));
        Self {
            owner,
            fields: Fields::of(object, manager),
        }
    }
}

/// The spec of an object, if it is valid.
pub(super) fn spec<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Option<T> {
    let spec = object.data.get("spec")?;
    let read = serde_json::from_value(spec.clone());
    if let Err(error) = &read {
        let ns = object.namespace().unwrap_or_default();
        let name = object.name_any();
        tracing::warn!(%ns, %name, %error, "failed to decode the spec of a Gateway API object");
    }
    read.ok()
}

/// Extracts a Gateway, without fields that change with its status.
pub(super) fn gateway(mut object: DynamicObject) -> Option<Gateway> {
    let spec: KubernetesGateway = spec(&object)?;
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    let told = rejected_overlays::told(object.data.get("status")).map(str::to_owned);
    if let Some(data) = object.data.as_object_mut() {
        data.remove("status");
    }

    let namespace = object.namespace().unwrap_or_default();
    let parameters = spec
        .infrastructure
        .as_ref()
        .and_then(|infrastructure| infrastructure.parameters_ref.as_ref())
        .map(|map| {
            if map.group.is_empty() && map.kind == "ConfigMap" {
                Ok(NamespacedName::new(&namespace, &map.name))
            } else {
                Err((map.group.clone(), map.kind.clone()))
            }
        });

    Some(Gateway {
        value: serde_json::to_value(object).ok()?,
        spec,
        parameters,
        told,
    })
}

/// Extracts a ListenerSet.
pub(super) fn listener_set(object: &DynamicObject) -> Option<AttachedSet> {
    let created = object.creation_timestamp().map(|time| time.0);
    Some(AttachedSet::of(
        spec::<ListenerSet>(object)?,
        &object.namespace().unwrap_or_default(),
        created,
    ))
}

/// Extracts a namespace.
pub(super) fn namespace(object: DynamicObject) -> Namespace {
    let labels = object.metadata.labels.unwrap_or_default();
    let annotations = object.metadata.annotations.unwrap_or_default();
    Namespace {
        labels: labels
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        annotations: annotations
            .into_iter()
            .filter(|(name, _)| name.starts_with("openshift.io/"))
            .collect(),
    }
}

/// Extracts the ConfigMap of a class.
pub(super) fn defaults(object: &DynamicObject) -> Option<Defaults> {
    let class = object.labels().get(DEFAULTS_FOR_CLASS)?.clone();
    let data = object.data.get("data").cloned().unwrap_or_default();
    let data = if data.is_null() {
        Data::new()
    } else {
        serde_json::from_value(data).ok()?
    };
    Some(Defaults {
        created: object.creation_timestamp().map(|time| time.0),
        class,
        data,
    })
}

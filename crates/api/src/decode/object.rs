//! Decoding of one JSON value to an object of its kind.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::{
    core::v1 as core, discovery::v1 as discovery, networking::v1 as networking,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::envelope::{DEFAULT_NAMESPACE, Subject, group_and_version, served_versions};
use super::{Outcome, content_hash};
use crate::any_object::AnyObject;
use crate::field_error::FieldError;
use crate::gateway_api;
use crate::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig,
    RequestAuthentication, ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService,
    WasmPlugin, WorkloadEntry, WorkloadGroup,
};
use crate::kubernetes;
use crate::kubernetes::{
    ConfigMap, EndpointSlice, Ingress, IngressClass, Node, Pod, Secret, Service, ServiceAccount,
};
use crate::mcs::{ServiceExport, ServiceImport};
use crate::names::Namespace;
use crate::object::{Kind, NamespacedName, Object, ObjectMeta};
use crate::typed::Typed;
use navarch_base::base64_text;

/// Maximum length of an object name.
const MAX_NAME: usize = 253;

/// Maximum length of a namespace name.
const MAX_LABEL: usize = 63;

/// The known top-level fields of Istio's objects.
const MEMBERS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Where the version of an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// From `metadata.resourceVersion`.
    Written,
    /// From the hash of the object.
    Hash,
}

/// Reads one object.
pub(super) fn decode_object(value: &Value, version: Version) -> (Subject, Outcome) {
    let subject = Subject::of(value);
    let outcome = match known_kind(value, &subject) {
        Ok(None) => Outcome::Ignored,
        Ok(Some(kind)) => match decode_kind(&Wire {
            kind,
            value,
            version,
        }) {
            Ok(Typed {
                value: object,
                unknown_fields,
            }) => Outcome::Read {
                object,
                unknown_fields,
            },
            Err(error) => Outcome::Rejected(error),
        },
        Err(error) => Outcome::Rejected(error),
    };

    (subject, outcome)
}

/// The kind of an object; `None` if it is unknown.
fn known_kind(value: &Value, subject: &Subject) -> Result<Option<Kind>, FieldError> {
    if !value.is_object() {
        return Err(FieldError::new(
            "",
            "is not an object with apiVersion, kind and metadata",
        ));
    }

    for (field, text) in [
        ("apiVersion", &subject.api_version),
        ("kind", &subject.kind),
    ] {
        if text.is_empty() {
            return Err(FieldError::new(field, "is required and must be a string"));
        }
    }

    let Some(kind) = subject.known_kind() else {
        return Ok(None);
    };

    let (_, version) = group_and_version(&subject.api_version);
    let served = served_versions(kind);
    if served.contains(&version) {
        return Ok(Some(kind));
    }

    let reason = format!(
        "{version:?} is not a supported version of {kind}; supported versions: {}",
        served.join(", ")
    );
    Err(FieldError::new("apiVersion", reason))
}

/// An undecoded object of a known kind.
struct Wire<'a> {
    kind: Kind,
    value: &'a Value,
    /// Where its version comes from.
    version: Version,
}

impl Wire<'_> {
    /// The same object with another value.
    fn with<'b>(&self, value: &'b Value) -> Wire<'b> {
        Wire {
            kind: self.kind,
            value,
            version: self.version,
        }
    }
}

/// Reads an object of any kind.
fn decode_kind(wire: &Wire<'_>) -> Result<Typed<AnyObject>, FieldError> {
    match wire.kind {
        Kind::Namespace => kubernetes::<core::Namespace, kubernetes::Namespace>(wire),
        Kind::Node => kubernetes::<core::Node, Node>(wire),
        Kind::Service => kubernetes::<core::Service, Service>(wire),
        Kind::EndpointSlice => kubernetes::<discovery::EndpointSlice, EndpointSlice>(wire),
        Kind::Pod => kubernetes::<core::Pod, Pod>(wire),
        Kind::Secret => {
            let value = with_joined_lines(wire.value, "data");
            kubernetes::<core::Secret, Secret>(&wire.with(&value))
        }
        Kind::ConfigMap => {
            let value = with_joined_lines(wire.value, "binaryData");
            kubernetes::<core::ConfigMap, ConfigMap>(&wire.with(&value))
        }
        Kind::ServiceAccount => kubernetes::<core::ServiceAccount, ServiceAccount>(wire),
        Kind::Ingress => kubernetes::<networking::Ingress, Ingress>(wire),
        Kind::IngressClass => kubernetes::<networking::IngressClass, IngressClass>(wire),

        Kind::VirtualService => istio::<VirtualService>(wire, |_, _| {}),
        Kind::DestinationRule => istio::<DestinationRule>(wire, |_, _| {}),
        Kind::Gateway => istio::<Gateway>(wire, |_, _| {}),
        Kind::ServiceEntry => istio(wire, ServiceEntry::take_status),
        Kind::WorkloadEntry => istio(wire, WorkloadEntry::take_status),
        Kind::Sidecar => istio::<Sidecar>(wire, |_, _| {}),
        Kind::EnvoyFilter => istio::<EnvoyFilter>(wire, |_, _| {}),
        Kind::ProxyConfig => istio::<ProxyConfig>(wire, |_, _| {}),
        Kind::WorkloadGroup => istio::<WorkloadGroup>(wire, |_, _| {}),
        Kind::PeerAuthentication => istio::<PeerAuthentication>(wire, |_, _| {}),
        Kind::AuthorizationPolicy => istio::<AuthorizationPolicy>(wire, |_, _| {}),
        Kind::RequestAuthentication => istio::<RequestAuthentication>(wire, |_, _| {}),
        Kind::Telemetry => istio::<Telemetry>(wire, |_, _| {}),
        Kind::WasmPlugin => istio::<WasmPlugin>(wire, |_, _| {}),
        Kind::TrafficExtension => istio::<TrafficExtension>(wire, |_, _| {}),

        Kind::GatewayClass => gateway::<gateway_api::GatewayClass>(wire, |_, _| {}),
        Kind::KubernetesGateway => gateway(wire, gateway_api::KubernetesGateway::take_status),
        Kind::HttpRoute => gateway::<gateway_api::HttpRoute>(wire, |_, _| {}),
        Kind::GrpcRoute => gateway::<gateway_api::GrpcRoute>(wire, |_, _| {}),
        Kind::TlsRoute => gateway::<gateway_api::TlsRoute>(wire, |_, _| {}),
        Kind::TcpRoute => gateway::<gateway_api::TcpRoute>(wire, |_, _| {}),
        Kind::ReferenceGrant => gateway::<gateway_api::ReferenceGrant>(wire, |_, _| {}),
        Kind::BackendTlsPolicy => gateway::<gateway_api::BackendTlsPolicy>(wire, |_, _| {}),
        Kind::ListenerSet => gateway::<gateway_api::ListenerSet>(wire, |_, _| {}),
        Kind::XBackendTrafficPolicy => {
            gateway::<gateway_api::XBackendTrafficPolicy>(wire, |_, _| {})
        }
        Kind::XBackend => gateway::<gateway_api::XBackend>(wire, |_, _| {}),
        Kind::InferencePool => gateway::<gateway_api::InferencePool>(wire, |_, _| {}),

        Kind::ServiceExport => gateway::<ServiceExport>(wire, |_, _| {}),
        Kind::ServiceImport => gateway::<ServiceImport>(wire, |_, _| {}),
    }
}

/// The object with each base64 text of a member in one line, as Go reads it.
fn with_joined_lines<'a>(object: &'a Value, member: &str) -> Cow<'a, Value> {
    let texts = |value: &Value| -> Vec<(String, String)> {
        let entries = value.get(member).and_then(Value::as_object);
        let texts = entries
            .into_iter()
            .flatten()
            .filter_map(|(name, text)| Some((name, text.as_str()?)));
        texts
            .filter_map(|(name, text)| match base64_text::joined(text) {
                Cow::Borrowed(_) => None,
                Cow::Owned(joined) => Some((name.clone(), joined)),
            })
            .collect()
    };

    let mut object = Cow::Borrowed(object);
    for (name, joined) in texts(&object) {
        if let Some(text) = object
            .to_mut()
            .get_mut(member)
            .and_then(|entries| entries.get_mut(name))
        {
            *text = Value::String(joined);
        }
    }
    object
}

/// Decodes an object of one of Kubernetes' own kinds by its full type `W`.
fn kubernetes<W, T>(wire: &Wire<'_>) -> Result<Typed<AnyObject>, FieldError>
where
    W: DeserializeOwned,
    Object<T>: TryFrom<W, Error = FieldError>,
    AnyObject: From<Object<T>>,
{
    let full = Typed::<W>::from_json(wire.value)?;
    let mut object = Object::<T>::try_from(full.value)?;
    validate_and_default(&mut object.meta, wire)?;
    // A newer API server has fields that are unknown here; they are not errors of users.
    let unknown_fields = if wire.version == Version::Written {
        Vec::new()
    } else {
        full.unknown_fields
    };
    Ok(Typed {
        value: object.into(),
        unknown_fields,
    })
}

/// Decodes an object of one of Istio's kinds; `take_status` copies the used part of its status, if
/// it has one.
fn istio<T>(
    wire: &Wire<'_>,
    take_status: fn(&mut T, &Value),
) -> Result<Typed<AnyObject>, FieldError>
where
    T: DeserializeOwned,
    AnyObject: From<Object<T>>,
{
    defined(wire, take_status, |spec| Typed::from_proto_json(spec))
}

/// Reads an object of one of the Gateway API's kinds. One without a spec has an empty one.
fn gateway<T>(
    wire: &Wire<'_>,
    take_status: fn(&mut T, &Value),
) -> Result<Typed<AnyObject>, FieldError>
where
    T: DeserializeOwned,
    AnyObject: From<Object<T>>,
{
    let empty = Value::Object(serde_json::Map::new());
    defined(wire, take_status, |spec| {
        Typed::from_json(if spec.is_null() { &empty } else { spec })
    })
}

/// Reads an object of a kind that a CustomResourceDefinition defines.
fn defined<T>(
    wire: &Wire<'_>,
    take_status: fn(&mut T, &Value),
    read_spec: impl Fn(&Value) -> Result<Typed<T>, FieldError>,
) -> Result<Typed<AnyObject>, FieldError>
where
    AnyObject: From<Object<T>>,
{
    let absent = Value::Null;
    let metadata = wire.value.get("metadata").unwrap_or(&absent);
    let metadata = Typed::<Option<meta::ObjectMeta>>::from_json(metadata)
        .map_err(|error| error.under("metadata"))?;
    let mut meta = ObjectMeta::try_from(metadata.value.unwrap_or_default())?;
    validate_and_default(&mut meta, wire)?;
    let spec = wire.value.get("spec").unwrap_or(&absent);
    let mut spec = read_spec(spec).map_err(|error| error.under("spec"))?;

    if let Some(status) = wire.value.get("status") {
        take_status(&mut spec.value, status);
    }

    let members = wire
        .value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str());

    let mut unknown_fields: Vec<_> = members
        .filter(|key| !MEMBERS.contains(key))
        .map(str::to_owned)
        .collect();
    unknown_fields.extend(
        metadata
            .unknown_fields
            .iter()
            .map(|path| format!("metadata.{path}")),
    );

    unknown_fields.extend(
        spec.unknown_fields
            .iter()
            .map(|path| format!("spec.{path}")),
    );

    Ok(Typed {
        value: Object {
            meta,
            spec: spec.value,
        }
        .into(),
        unknown_fields,
    })
}

/// Validates and defaults metadata as an API server: checks names, and sets the namespace as the
/// kind requires.
fn validate_and_default(meta: &mut ObjectMeta, wire: &Wire<'_>) -> Result<(), FieldError> {
    let namespace = &meta.key.namespace;
    let name = &meta.key.name;
    check_name(name).map_err(|reason| FieldError::new("metadata.name", reason))?;
    if wire.kind.is_cluster_scoped() {
        meta.key = NamespacedName::of(Namespace::default(), name.clone());
    } else if namespace.is_empty() {
        meta.key = NamespacedName::of(Namespace::new(DEFAULT_NAMESPACE), name.clone());
    } else {
        check_label(namespace.as_str())
            .map_err(|reason| FieldError::new("metadata.namespace", reason))?;
    }
    if wire.version == Version::Hash {
        meta.resource_version = Arc::from(content_hash(wire.value));
    }
    Ok(())
}

/// Checks the name of an object: DNS labels separated by dots.
fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME {
        return Err(format!(
            "has {} characters, at most {MAX_NAME} are allowed",
            name.len()
        ));
    }
    name.split('.')
        .try_for_each(check_letters)
        .map_err(|reason| format!("{name:?} is not a valid name: {reason}"))
}

/// Checks a lower-case DNS label.
fn check_label(label: &str) -> Result<(), String> {
    if label.len() > MAX_LABEL {
        return Err(format!(
            "has {} characters, at most {MAX_LABEL} are allowed",
            label.len()
        ));
    }
    check_letters(label)
}

/// Checks the characters of a lower-case DNS label.
fn check_letters(label: &str) -> Result<(), String> {
    let is_good =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if label.is_empty()
        || label.starts_with('-')
        || label.ends_with('-')
        || !label.chars().all(is_good)
    {
        return Err(format!(
            "{label:?} must consist of a-z, 0-9 and inner hyphens"
        ));
    }
    Ok(())
}

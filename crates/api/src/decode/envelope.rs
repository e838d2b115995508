//! The envelope of objects: `apiVersion`, `kind`, and lists.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::mcs;
use crate::object::{Kind, NamespacedName, ObjectRef};

/// The identity of a document's object; unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `metadata.namespace`; `default` if an object of a known namespaced kind has none.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl Subject {
    /// From a JSON value; absent parts are empty.
    pub(super) fn of(value: &Value) -> Self {
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let metadata = value.get("metadata");
        let mut subject = Self {
            api_version: text(value.get("apiVersion")),
            kind: text(value.get("kind")),
            namespace: text(metadata.and_then(|metadata| metadata.get("namespace"))),
            name: text(metadata.and_then(|metadata| metadata.get("name"))),
        };
        match subject.known_kind() {
            Some(kind) if kind.is_cluster_scoped() => subject.namespace.clear(),
            Some(_) if subject.namespace.is_empty() => {
                subject.namespace.push_str(DEFAULT_NAMESPACE)
            }
            Some(_) | None => {}
        }
        subject
    }

    /// The kind, if it is known.
    #[must_use]
    pub fn known_kind(&self) -> Option<Kind> {
        let (group, _) = group_and_version(&self.api_version);
        Kind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == self.kind && kind.group() == group)
    }

    /// The identity of the object, if its kind and name are known.
    #[must_use]
    pub fn object_ref(&self) -> Option<ObjectRef> {
        let kind = self.known_kind()?;
        (!self.name.is_empty()).then(|| ObjectRef {
            kind,
            name: NamespacedName::new(&self.namespace, &self.name),
        })
    }
}

impl fmt::Display for Subject {
    /// `VirtualService shop/reviews`, or as much of it as is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.kind.is_empty() {
            "document"
        } else {
            &self.kind
        })?;
        match (self.namespace.as_str(), self.name.as_str()) {
            (_, "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// Splits `apiVersion`; the core group is empty.
pub(super) fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The API versions of a kind, the preferred one first. All are decoded alike.
#[must_use]
pub fn served_versions(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Namespace
        | Kind::Node
        | Kind::Service
        | Kind::EndpointSlice
        | Kind::Pod
        | Kind::Secret
        | Kind::ConfigMap
        | Kind::ServiceAccount
        | Kind::Ingress
        | Kind::IngressClass => &["v1"],

        Kind::VirtualService
        | Kind::DestinationRule
        | Kind::Gateway
        | Kind::ServiceEntry
        | Kind::WorkloadEntry
        | Kind::Sidecar
        | Kind::WorkloadGroup => &["v1", "v1beta1", "v1alpha3"],

        Kind::EnvoyFilter => &["v1alpha3"],
        Kind::ProxyConfig => &["v1beta1"],
        Kind::PeerAuthentication | Kind::AuthorizationPolicy | Kind::RequestAuthentication => {
            &["v1", "v1beta1"]
        }
        Kind::Telemetry => &["v1", "v1alpha1"],
        Kind::WasmPlugin
        | Kind::TrafficExtension
        | Kind::XBackendTrafficPolicy
        | Kind::XBackend => &["v1alpha1"],

        Kind::ServiceExport | Kind::ServiceImport => mcs::api().versions(),

        Kind::GatewayClass | Kind::KubernetesGateway | Kind::HttpRoute => {
            &["v1", "v1beta1", "v1alpha2"]
        }
        Kind::GrpcRoute | Kind::TcpRoute => &["v1", "v1alpha2"],
        Kind::TlsRoute => &["v1", "v1alpha3", "v1alpha2"],
        Kind::ReferenceGrant => &["v1", "v1beta1", "v1alpha2"],
        Kind::BackendTlsPolicy => &["v1", "v1alpha3"],
        Kind::ListenerSet | Kind::InferencePool => &["v1"],
    }
}

/// The items of a list (`List`, or a list of one kind such as `ServiceList`, whose items need no
/// `kind`). `None` for anything else.
pub(super) fn items(value: &Value) -> Option<impl Iterator<Item = Cow<'_, Value>>> {
    let item_kind = value.get("kind")?.as_str()?.strip_suffix("List")?;
    let api_version = value.get("apiVersion")?;
    let items = value.get("items")?.as_array()?;
    Some(items.iter().map(move |item| {
        let nameless = item
            .as_object()
            .filter(|members| !item_kind.is_empty() && !members.contains_key("kind"));
        let Some(members) = nameless else {
            return Cow::Borrowed(item);
        };
        let mut members = members.clone();
        members.insert("kind".to_owned(), Value::from(item_kind));
        members.insert("apiVersion".to_owned(), api_version.clone());
        Cow::Owned(Value::Object(members))
    }))
}

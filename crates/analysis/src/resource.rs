//! One object, as analyzers see it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use navarch_api::any_object::AnyObject;
use navarch_api::istio;
use navarch_api::yaml;
use serde_json::Value;

use crate::kind::Kind;

/// Labels or annotations.
pub(crate) type Texts = BTreeMap<String, String>;

/// An object with what analyzers ask of it.
#[derive(Debug)]
pub struct Resource {
    /// `apiVersion`'s group, and `kind`.
    pub kind: Kind,
    /// `metadata.namespace`; empty where the kind has none, or where none is written and none is
    /// assumed.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: Texts,
    /// `metadata.annotations`.
    pub annotations: Texts,
    /// `status` as it was written.
    pub(crate) status: Value,
    pub(crate) content: Content,
    /// Its source file; `None` for objects of a cluster.
    pub(crate) place: Option<SourcePosition>,
    /// The remote cluster that it is of; `None` for files and for the cluster that configures the
    /// mesh.
    pub(crate) cluster: Option<Arc<str>>,
}

/// The identity of an object. Objects of remote clusters come after others of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// `kind`.
    pub kind: Kind,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The remote cluster that it is of.
    pub cluster: Option<Arc<str>>,
}

/// The content of an object.
#[derive(Debug)]
pub(crate) enum Content {
    /// A kind of Istio's.
    Istio(AnyObject),
    Pod(Box<Pod>),
    Deployment(Box<Deployment>),
    Service(Box<Service>),
    Secret(Box<Secret>),
    ConfigMap(Box<ConfigMap>),
    /// Webhooks that change objects.
    Mutating(Box<MutatingWebhookConfiguration>),
    /// Webhooks that judge objects.
    Validating(Box<ValidatingWebhookConfiguration>),
    /// The definition of a kind.
    Definition(Box<CustomResourceDefinition>),
    /// The `spec` of a kind whose fields are mostly unused.
    Plain(Value),
    /// An object of a cluster that cannot be read, for this reason.
    Unreadable(String),
}

/// The position of an object in a file.
#[derive(Debug)]
pub(crate) struct SourcePosition {
    /// The file as the user named it.
    pub(crate) file: Arc<str>,
    /// The line of the object, from 1; `None` if the text has no meaningful lines.
    pub(crate) line: Option<usize>,
    pub(crate) document: Arc<DocumentLines>,
    /// The path of the object in the document: empty, or `items[0].`.
    pub(crate) prefix: String,
}

/// A document whose lines are determined lazily.
#[derive(Debug)]
pub(crate) struct DocumentLines {
    text: String,
    /// How many lines of the file are before it.
    before: usize,
    /// The lines of its scalars by path.
    lines: OnceLock<BTreeMap<String, usize>>,
}

impl DocumentLines {
    pub(crate) fn new(text: &str, before: usize) -> Self {
        Self {
            text: text.to_owned(),
            before,
            lines: OnceLock::new(),
        }
    }

    /// The lines of its scalars in the text.
    fn lines(&self) -> &BTreeMap<String, usize> {
        self.lines.get_or_init(|| yaml::scalar_lines(&self.text))
    }

    /// The line of a scalar in the file.
    fn line_of(&self, path: &str) -> Option<usize> {
        self.lines().get(path).map(|line| line + self.before)
    }

    /// The first line of each item of a list in the file.
    pub(crate) fn of_items(&self) -> BTreeMap<usize, usize> {
        let mut first = BTreeMap::new();
        for (path, line) in self.lines() {
            let index = path
                .strip_prefix("items[")
                .and_then(|rest| rest.split(']').next()?.parse().ok());
            if let Some(index) = index {
                let known = first.entry(index).or_insert(line + self.before);
                *known = (*known).min(line + self.before);
            }
        }
        first
    }
}

impl Resource {
    /// `namespace/name`, or only the name.
    #[must_use]
    pub fn full_name(&self) -> String {
        full_name(&self.namespace, &self.name)
    }

    /// Kind and name, as users know them.
    #[must_use]
    pub fn friendly_name(&self) -> String {
        format!("{} {}", self.kind.as_str(), self.full_name())
    }

    /// Its identity.
    #[must_use]
    pub fn key(&self) -> Key {
        let namespace = self.namespace.clone();
        let name = self.name.clone();
        Key {
            kind: self.kind,
            namespace,
            name,
            cluster: self.cluster.clone(),
        }
    }

    /// The cluster that it is of, as istioctl names it.
    pub(crate) fn cluster_name(&self) -> &str {
        self.cluster.as_deref().unwrap_or("default")
    }

    /// The namespace that it belongs to: that of a namespace is itself.
    pub(crate) fn owning_namespace(&self) -> &str {
        if self.kind == Kind::Namespace {
            &self.name
        } else {
            &self.namespace
        }
    }

    /// File and line, or a better line.
    pub(crate) fn reference(&self, line: Option<usize>) -> Option<String> {
        let place = self.place.as_ref()?;
        Some(match (place.line, line) {
            (None, _) => place.file.to_string(),
            (Some(line), None) | (Some(_), Some(line)) => format!("{}:{line}", place.file),
        })
    }

    /// The line of a scalar such as `spec.gateways[0]`.
    pub(crate) fn line_of(&self, field: &str) -> Option<usize> {
        let place = self.place.as_ref()?;
        place.document.line_of(&format!("{}{field}", place.prefix))
    }

    /// The object's `status`; null if absent.
    #[must_use]
    pub fn status(&self) -> &Value {
        &self.status
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Its content, deserialized as `T`.
    pub(crate) fn spec<T: Spec>(&self) -> Option<&T> {
        T::of(&self.content)
    }
}

/// `namespace/name`, or only the name.
pub(crate) fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// The contents of objects of one kind.
pub(crate) trait Spec: Sized + 'static {
    const KIND: Kind;

    /// Its content, if it is of this kind.
    fn of(content: &Content) -> Option<&Self>;
}

/// Says how Istio's kinds are read.
macro_rules! istio_specs {
    ($($kind:ident),* $(,)?) => {
        $(impl Spec for istio::$kind {
            const KIND: Kind = Kind::$kind;

            fn of(content: &Content) -> Option<&Self> {
                match content {
                    Content::Istio(AnyObject::$kind(object)) => Some(&object.spec),
                    _ => None,
                }
            }
        })*
    };
}

/// Says how Kubernetes' kinds are read.
macro_rules! kubernetes_specs {
    ($($spec:ident $variant:ident $kind:ident),* $(,)?) => {
        $(impl Spec for $spec {
            const KIND: Kind = Kind::$kind;

            fn of(content: &Content) -> Option<&Self> {
                match content {
                    Content::$variant(object) => Some(object),
                    _ => None,
                }
            }
        })*
    };
}

istio_specs! {
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, ProxyConfig, RequestAuthentication, ServiceEntry, Sidecar,
    Telemetry, VirtualService, WasmPlugin,
}

kubernetes_specs! {
    Pod Pod Pod,
    Deployment Deployment Deployment,
    Service Service Service,
    Secret Secret Secret,
    ConfigMap ConfigMap ConfigMap,
    MutatingWebhookConfiguration Mutating MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration Validating ValidatingWebhookConfiguration,
    CustomResourceDefinition Definition CustomResourceDefinition,
}

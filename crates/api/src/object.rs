//! Metadata, kinds and names of objects.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;

use super::gateway_api;
use super::mcs;
use super::names::Namespace;
use super::shared_texts::{HasTexts, SharedTexts};
use super::text_map::TextMap;
use super::uid::Uid;
use navarch_base::interned::Interned;
use navarch_tables::hash::keyed_hash;

/// The annotation of a ConfigMap that is a lock, with the record of its holder as JSON, which is
/// renewed every few seconds.
pub const LOCK_RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

/// The metadata that Navarch keeps of an object (`metav1.ObjectMeta` without unused fields).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// `metadata.namespace` and `metadata.name`.
    pub key: NamespacedName,
    /// `metadata.labels`.
    pub labels: TextMap,
    /// `metadata.annotations`.
    pub annotations: TextMap,
    /// `metadata.creationTimestamp`; `None` sorts before every moment.
    pub created: Option<Timestamp>,
    /// `metadata.resourceVersion`, or the hash of the content if the source has no versions.
    /// Opaque. Empty for Kubernetes' own kinds from a server, since nothing reads their versions.
    pub resource_version: Arc<str>,
    /// `metadata.generation`, 0 if unknown.
    pub generation: i64,
    /// `metadata.uid`.
    pub uid: Uid,
    /// The first of `metadata.ownerReferences` that is a controller.
    pub controller: Option<Arc<ControllerRef>>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// The controller of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerRef {
    /// Its kind: `ReplicaSet`, `Job` and others.
    pub kind: Arc<str>,
    /// `name` of the owner reference, such as `reviews-7d4c8b9f5` of a ReplicaSet.
    pub name: Arc<str>,
}

/// An object of one kind: metadata and the typed rest.
///
/// `T` holds `spec` for Istio's kinds, and what Navarch reads of spec and status for Kubernetes
/// kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Object<T> {
    /// The metadata.
    pub meta: ObjectMeta,
    /// The kind's own content.
    pub spec: T,
}

/// Objects of one kind, by name.
pub type ObjectsByName<T> = BTreeMap<NamespacedName, Arc<Object<T>>>;

/// Namespace and name of an object within one kind. It is as small as a pointer, since many tables
/// contain it; all copies share one allocation.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct NamespacedName(Arc<NameParts>);

/// The parts of a [`NamespacedName`].
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct NameParts {
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: Namespace,
    /// `metadata.name`, unique among the objects of a kind in a namespace.
    pub name: Arc<str>,
}

/// Kind, namespace and name: the identity of an object in messages and provenance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Without an API version: an object is the same in all versions of its kind.
    pub kind: Kind,
    /// Namespace and name.
    pub name: NamespacedName,
}

/// The kinds of objects that Navarch reads. All API versions of a kind are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1/Namespace`.
    Namespace,
    /// `v1/Node`.
    Node,
    /// `v1/Service`.
    Service,
    /// `discovery.k8s.io/v1/EndpointSlice`.
    EndpointSlice,
    /// `v1/Pod`.
    Pod,
    /// `v1/Secret`.
    Secret,
    /// `v1/ConfigMap`.
    ConfigMap,
    /// `v1/ServiceAccount`.
    ServiceAccount,
    /// `networking.k8s.io/v1/Ingress`.
    Ingress,
    /// `networking.k8s.io/v1/IngressClass`.
    IngressClass,
    /// `networking.istio.io/VirtualService`.
    VirtualService,
    /// `networking.istio.io/DestinationRule`.
    DestinationRule,
    /// `networking.istio.io/Gateway`.
    Gateway,
    /// `networking.istio.io/ServiceEntry`.
    ServiceEntry,
    /// `networking.istio.io/WorkloadEntry`.
    WorkloadEntry,
    /// `networking.istio.io/Sidecar`.
    Sidecar,
    /// `networking.istio.io/EnvoyFilter`.
    EnvoyFilter,
    /// `networking.istio.io/ProxyConfig`.
    ProxyConfig,
    /// `networking.istio.io/WorkloadGroup`.
    WorkloadGroup,
    /// `security.istio.io/PeerAuthentication`.
    PeerAuthentication,
    /// `security.istio.io/AuthorizationPolicy`.
    AuthorizationPolicy,
    /// `security.istio.io/RequestAuthentication`.
    RequestAuthentication,
    /// `telemetry.istio.io/Telemetry`.
    Telemetry,
    /// `extensions.istio.io/WasmPlugin`.
    WasmPlugin,
    /// `extensions.istio.io/TrafficExtension`.
    TrafficExtension,
    /// `gateway.networking.k8s.io/GatewayClass`.
    GatewayClass,
    /// `gateway.networking.k8s.io/Gateway`, not Istio's own Gateway.
    KubernetesGateway,
    /// `gateway.networking.k8s.io/HTTPRoute`.
    HttpRoute,
    /// `gateway.networking.k8s.io/GRPCRoute`.
    GrpcRoute,
    /// `gateway.networking.k8s.io/TLSRoute`.
    TlsRoute,
    /// `gateway.networking.k8s.io/TCPRoute`.
    TcpRoute,
    /// `gateway.networking.k8s.io/ReferenceGrant`.
    ReferenceGrant,
    /// `gateway.networking.k8s.io/BackendTLSPolicy`.
    BackendTlsPolicy,
    /// `gateway.networking.k8s.io/ListenerSet`.
    ListenerSet,
    /// `gateway.networking.x-k8s.io/XBackendTrafficPolicy`.
    XBackendTrafficPolicy,
    /// `gateway.networking.x-k8s.io/XBackend`.
    XBackend,
    /// `inference.networking.k8s.io/InferencePool`.
    InferencePool,
    /// `multicluster.x-k8s.io/ServiceExport`.
    ServiceExport,
    /// `multicluster.x-k8s.io/ServiceImport`.
    ServiceImport,
}

impl Kind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 39] = [
        Self::Namespace,
        Self::Node,
        Self::Service,
        Self::EndpointSlice,
        Self::Pod,
        Self::Secret,
        Self::ConfigMap,
        Self::ServiceAccount,
        Self::Ingress,
        Self::IngressClass,
        Self::VirtualService,
        Self::DestinationRule,
        Self::Gateway,
        Self::ServiceEntry,
        Self::WorkloadEntry,
        Self::Sidecar,
        Self::EnvoyFilter,
        Self::ProxyConfig,
        Self::WorkloadGroup,
        Self::PeerAuthentication,
        Self::AuthorizationPolicy,
        Self::RequestAuthentication,
        Self::Telemetry,
        Self::WasmPlugin,
        Self::TrafficExtension,
        Self::GatewayClass,
        Self::KubernetesGateway,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::TlsRoute,
        Self::TcpRoute,
        Self::ReferenceGrant,
        Self::BackendTlsPolicy,
        Self::ListenerSet,
        Self::XBackendTrafficPolicy,
        Self::XBackend,
        Self::InferencePool,
        Self::ServiceExport,
        Self::ServiceImport,
    ];

    /// The value of `kind:`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::ServiceAccount => "ServiceAccount",
            Self::Ingress => "Ingress",
            Self::IngressClass => "IngressClass",

            Self::VirtualService => "VirtualService",
            Self::DestinationRule => "DestinationRule",
            Self::Gateway => "Gateway",
            Self::ServiceEntry => "ServiceEntry",
            Self::WorkloadEntry => "WorkloadEntry",
            Self::Sidecar => "Sidecar",
            Self::EnvoyFilter => "EnvoyFilter",
            Self::ProxyConfig => "ProxyConfig",
            Self::WorkloadGroup => "WorkloadGroup",
            Self::PeerAuthentication => "PeerAuthentication",
            Self::AuthorizationPolicy => "AuthorizationPolicy",
            Self::RequestAuthentication => "RequestAuthentication",
            Self::Telemetry => "Telemetry",
            Self::WasmPlugin => "WasmPlugin",
            Self::TrafficExtension => "TrafficExtension",

            Self::GatewayClass => "GatewayClass",
            Self::KubernetesGateway => "Gateway",
            Self::HttpRoute => "HTTPRoute",
            Self::GrpcRoute => "GRPCRoute",
            Self::TlsRoute => "TLSRoute",
            Self::TcpRoute => "TCPRoute",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::BackendTlsPolicy => "BackendTLSPolicy",
            Self::ListenerSet => "ListenerSet",
            Self::XBackendTrafficPolicy => "XBackendTrafficPolicy",
            Self::XBackend => "XBackend",
            Self::InferencePool => "InferencePool",

            Self::ServiceExport => "ServiceExport",
            Self::ServiceImport => "ServiceImport",
        }
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::Namespace
            | Self::Node
            | Self::Service
            | Self::Pod
            | Self::Secret
            | Self::ConfigMap
            | Self::ServiceAccount => "",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Ingress | Self::IngressClass => "networking.k8s.io",

            Self::VirtualService
            | Self::DestinationRule
            | Self::Gateway
            | Self::ServiceEntry
            | Self::WorkloadEntry
            | Self::Sidecar
            | Self::EnvoyFilter
            | Self::ProxyConfig
            | Self::WorkloadGroup => "networking.istio.io",
            Self::PeerAuthentication | Self::AuthorizationPolicy | Self::RequestAuthentication => {
                "security.istio.io"
            }
            Self::Telemetry => "telemetry.istio.io",
            Self::WasmPlugin | Self::TrafficExtension => "extensions.istio.io",

            Self::GatewayClass
            | Self::KubernetesGateway
            | Self::HttpRoute
            | Self::GrpcRoute
            | Self::TlsRoute
            | Self::TcpRoute
            | Self::ReferenceGrant
            | Self::BackendTlsPolicy
            | Self::ListenerSet => gateway_api::GROUP,
            Self::XBackendTrafficPolicy | Self::XBackend => gateway_api::EXPERIMENTAL_GROUP,
            Self::InferencePool => gateway_api::INFERENCE_GROUP,

            Self::ServiceExport | Self::ServiceImport => mcs::api().group,
        }
    }

    /// Whether proxies get the resource version of objects of this kind. istiod pushes such an
    /// object again when only its version changes: an agent pulls an image again whose
    /// `imagePullPolicy` is `Always`.
    #[must_use]
    pub fn sends_version(self) -> bool {
        matches!(self, Self::WasmPlugin | Self::TrafficExtension)
    }

    /// Whether objects of this kind have no namespace.
    #[must_use]
    pub fn is_cluster_scoped(self) -> bool {
        matches!(
            self,
            Self::Namespace | Self::Node | Self::IngressClass | Self::GatewayClass
        )
    }
}

impl ObjectMeta {
    /// A copy of namespace and name.
    #[must_use]
    pub fn key(&self) -> NamespacedName {
        self.key.clone()
    }
}

impl HasTexts for ObjectMeta {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.key.share(texts);
        self.labels.share(texts);
        // Records of locks never repeat: they would take the places of texts that do.
        if !self.annotations.contains_key(LOCK_RECORD) {
            self.annotations.share(texts);
        }
        if let Some(controller) = &mut self.controller {
            texts.share_controller(controller);
        }
    }
}

impl NamespacedName {
    /// Copies the texts, which [`of`](Self::of) shares. `namespace` is empty for cluster-scoped
    /// kinds.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self::of(Namespace::new(namespace), Arc::from(name))
    }

    /// Replaces it with its stored copy, or stores it.
    pub(super) fn intern(&mut self, names: &Interned<NameParts>) {
        self.0 = names.intern(&self.0);
    }

    /// The stored copy of a name, which is stored if there is none. Allocates nothing for a known
    /// one.
    pub(super) fn stored(namespace: &Namespace, name: &str, names: &Interned<NameParts>) -> Self {
        // Borrowed parts have the hash of `NameParts`.
        let hash = keyed_hash(&(namespace.as_str(), name));
        let is_it = |known: &NameParts| known.namespace == *namespace && *known.name == *name;
        Self(names.get_or_insert(hash, is_it, || {
            Arc::new(NameParts {
                namespace: namespace.clone(),
                name: name.into(),
            })
        }))
    }

    /// From its parts.
    #[must_use]
    pub fn of(namespace: Namespace, name: Arc<str>) -> Self {
        Self(Arc::new(NameParts { namespace, name }))
    }
}

impl PartialOrd for NameParts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NameParts {
    /// By namespace, then by name. Objects of a namespace mostly share its text, and names that are
    /// compared are mostly of one namespace.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let by_namespace = match self.namespace.is_same_text(&other.namespace) {
            true => Ordering::Equal,
            false => self.namespace.cmp(&other.namespace),
        };
        by_namespace.then_with(|| self.name.cmp(&other.name))
    }
}

impl Deref for NamespacedName {
    type Target = NameParts;

    #[inline]
    fn deref(&self) -> &NameParts {
        &self.0
    }
}

impl PartialOrd for NamespacedName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NamespacedName {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            Ordering::Equal
        } else {
            self.0.cmp(&other.0)
        }
    }
}

impl HasTexts for NamespacedName {
    /// Shares the namespace; no effect once the name was cloned.
    fn share(&mut self, texts: &mut SharedTexts) {
        if let Some(parts) = Arc::get_mut(&mut self.0) {
            parts.namespace.share(texts);
        }
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl<T: PartialEq> Object<T> {
    /// Whether two versions of an object are equal, except for version, generation and uid.
    #[must_use]
    pub fn same_content(&self, other: &Self) -> bool {
        let a = &self.meta;
        let b = &other.meta;
        a.key == b.key
            && a.labels == b.labels
            && a.annotations == b.annotations
            && a.created == b.created
            && a.controller == b.controller
            && a.deleting == b.deleting
            && self.spec == other.spec
    }

    /// Whether two versions of an object of a kind have the same output, in resources of proxies
    /// and in statuses: the same content and generation, and the same version where it is sent.
    #[must_use]
    pub fn same_output(&self, other: &Self, kind: Kind) -> bool {
        self.same_content(other)
            && self.meta.generation == other.meta.generation
            && (!kind.sends_version() || self.meta.resource_version == other.meta.resource_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_texts_whoever_shares_them() {
        let shop = Namespace::new("shop");
        let names = [
            NamespacedName::new("", "z"),
            NamespacedName::new("bank", "b"),
            NamespacedName::of(shop.clone(), "a".into()),
            NamespacedName::of(shop.clone(), "b".into()),
            NamespacedName::new("shop", "b"),
            NamespacedName::of(shop, "c".into()),
            NamespacedName::new("shop-2", "a"),
        ];

        for a in &names {
            for b in &names {
                let texts = |name: &NamespacedName| (name.namespace.to_string(), name.name.clone());
                assert_eq!(a.cmp(b), texts(a).cmp(&texts(b)), "{a} and {b}");
                assert_eq!(a == b, a.cmp(b) == Ordering::Equal);
            }
        }
    }
}

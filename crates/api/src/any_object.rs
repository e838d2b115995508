//! An object of any kind, as passed from a source to the store.

use std::sync::Arc;

use super::gateway_api::{
    BackendTlsPolicy, GatewayClass, GrpcRoute, HttpRoute, InferencePool, KubernetesGateway, ListenerSet,
    ReferenceGrant, TcpRoute, TlsRoute, XBackend, XBackendTrafficPolicy,
};
use super::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig, RequestAuthentication,
    ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService, WasmPlugin, WorkloadEntry, WorkloadGroup,
};
use super::kubernetes::{
    ConfigMap, EndpointSlice, Ingress, IngressClass, Namespace, Node, Pod, Secret, Service, ServiceAccount,
};
use super::mcs::{ServiceExport, ServiceImport};
use super::object::{Kind, Object, ObjectMeta, ObjectRef};
use super::shared_texts::{HasTexts, SharedTexts};

/// Prefix of annotations that only the control plane sets.
pub const INTERNAL: &str = "internal.istio.io/";

/// Declares one variant per kind.
macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// An object with its kind known at run time. Cheap to clone.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyObject {
            $(
                #[doc = concat!("A ", stringify!($kind), ".")]
                $kind(Arc<Object<$kind>>),
            )*
        }

        impl AnyObject {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                }
            }

            /// Its metadata.
            #[must_use]
            pub fn meta(&self) -> &ObjectMeta {
                match self {
                    $(Self::$kind(object) => &object.meta,)*
                }
            }

            /// Its metadata, unless the object is shared.
            fn meta_mut(&mut self) -> Option<&mut ObjectMeta> {
                match self {
                    $(Self::$kind(object) => Arc::get_mut(object).map(|object| &mut object.meta),)*
                }
            }

            /// The object without the annotations with which the control plane marks objects that it generates: on objects that
            /// users write they would be spoofed.
            #[must_use]
            pub fn without_internal_annotations(mut self) -> Self {
                let is_internal = |key: &Arc<str>| key.starts_with(INTERNAL);
                if self.meta().annotations.keys().any(is_internal) {
                    match &mut self {
                        $(Self::$kind(object) => {
                            let annotations = &mut Arc::make_mut(object).meta.annotations;
                            let kept = annotations.iter().filter(|(key, _)| !is_internal(key));
                            *annotations = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
                        })*
                    }
                }
                self
            }

            /// Whether two versions of an object have the same effect on proxies: the same spec, labels and creation time.
            #[must_use]
            pub fn same_effect(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$kind(a), Self::$kind(b)) => {
                        let (one, other) = (&a.meta, &b.meta);
                        one.labels == other.labels && one.created == other.created && a.spec == b.spec
                    })*
                    _ => false,
                }
            }

            /// Whether two versions have the same content ([`Object::same_content`]); objects of different kinds never do.
            #[must_use]
            pub fn same_content(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$kind(a), Self::$kind(b)) => a.same_content(b),)*
                    _ => false,
                }
            }
        }

        $(impl From<Object<$kind>> for AnyObject {
            fn from(object: Object<$kind>) -> Self {
                Self::$kind(Arc::new(object))
            }
        }

        impl From<Arc<Object<$kind>>> for AnyObject {
            fn from(object: Arc<Object<$kind>>) -> Self {
                Self::$kind(object)
            }
        })*
    };
}

kinds! {
    Namespace, Node, Service, EndpointSlice, Pod, Secret, ConfigMap, ServiceAccount, Ingress, IngressClass, VirtualService, DestinationRule,
    Gateway, ServiceEntry, WorkloadEntry, Sidecar, EnvoyFilter, ProxyConfig, WorkloadGroup,
    PeerAuthentication, AuthorizationPolicy, RequestAuthentication,
    Telemetry, WasmPlugin, TrafficExtension,
    GatewayClass, KubernetesGateway, HttpRoute, GrpcRoute, TlsRoute, TcpRoute, ReferenceGrant,
    BackendTlsPolicy, ListenerSet, XBackendTrafficPolicy, XBackend, InferencePool,
    ServiceExport, ServiceImport,
}

impl HasTexts for AnyObject {
    /// Interns the texts of metadata, and those of kinds with many objects. No effect once the object was cloned.
    fn share(&mut self, texts: &mut SharedTexts) {
        fn spec<T: HasTexts>(object: &mut Arc<Object<T>>, texts: &mut SharedTexts) {
            if let Some(object) = Arc::get_mut(object) {
                object.spec.share(texts);
            }
        }
        if let Some(meta) = self.meta_mut() {
            meta.share(texts);
        }
        if let Self::Pod(pod) = self {
            spec(pod, texts);
        } else if let Self::Service(service) = self {
            spec(service, texts);
        } else if let Self::EndpointSlice(slice) = self {
            spec(slice, texts);
        }
    }
}

impl AnyObject {
    /// Removes the version, for kinds whose version is not used. Returns an empty one once the object was cloned.
    pub(super) fn take_version(&mut self) -> String {
        self.meta_mut().map(|meta| std::mem::take(&mut meta.resource_version)).unwrap_or_default().to_string()
    }

    /// Kind, namespace and name.
    #[must_use]
    pub fn object_ref(&self) -> ObjectRef {
        ObjectRef { kind: self.kind(), name: self.meta().key() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_the_control_plane_are_taken_from_what_others_write() {
        let mut gateway = Object { meta: ObjectMeta::default(), spec: Gateway::default() };
        for key in ["internal.istio.io/gateway-semantics", "internal.istio.io/service-account-name", "own/one"] {
            gateway.meta.annotations.insert(Arc::from(key), Arc::from("gateway"));
        }
        let written = AnyObject::from(gateway);
        let kept = written.clone().without_internal_annotations();
        assert_eq!(kept.meta().annotations.keys().map(|key| &**key).collect::<Vec<_>>(), ["own/one"]);
        assert_eq!(written.meta().annotations.len(), 3, "others who hold it see no change");
    }
}

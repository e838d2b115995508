//! The current objects by kind, namespace and name, immutable per version.
//!
//! Copies share all unchanged parts (persistent maps), so a snapshot costs a few reference counts.
//! Depends only on the identity of objects, not on their source.

mod discovery;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use discovery::{Discovery, DiscoveryScope};
pub use table::Table;

use navarch_api::any_object::AnyObject;
use navarch_api::gateway_api::{
    BackendTlsPolicy, GatewayClass, GrpcRoute, HttpRoute, InferencePool, KubernetesGateway,
    ListenerSet, ReferenceGrant, TcpRoute, TlsRoute, XBackend, XBackendTrafficPolicy,
};
use navarch_api::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig,
    RequestAuthentication, ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService,
    WasmPlugin, WorkloadEntry, WorkloadGroup,
};
use navarch_api::kubernetes::{
    ConfigMap, EndpointSlice, Ingress, IngressClass, Namespace, Node, Pod, Secret, Service,
    ServiceAccount,
};
use navarch_api::mcs::{ServiceExport, ServiceImport};
use navarch_api::names::Namespace as NamespaceName;
use navarch_api::object::{Kind, NamespacedName, Object, ObjectRef};

/// A kind that the store keeps.
pub trait Stored: Sized + PartialEq + 'static {
    /// The kind of the objects.
    const KIND: Kind;

    /// The table of the kind.
    fn table(objects: &Objects) -> &Table<Self>;

    /// The table of the kind, mutable.
    fn table_mut(objects: &mut Objects) -> &mut Table<Self>;
}

/// Declares the tables, and implements `Stored` for each kind.
macro_rules! tables {
    ($($(#[$doc:meta])* $field:ident: $kind:ident),* $(,)?) => {
        /// All objects. Cheap to clone.
        #[derive(Clone, Debug, Default)]
        pub struct Objects {
            $($(#[$doc])* pub $field: Table<$kind>,)*
        }

        $(impl Stored for $kind {
            const KIND: Kind = Kind::$kind;

            fn table(objects: &Objects) -> &Table<Self> {
                &objects.$field
            }

            fn table_mut(objects: &mut Objects) -> &mut Table<Self> {
                &mut objects.$field
            }
        })*

        impl Objects {
            /// Removes an object by its kind and name. Returns whether it existed.
            pub fn remove_ref(&mut self, kind: Kind, key: &NamespacedName) -> bool {
                match kind {
                    $(Kind::$kind => self.$field.remove(key).is_some(),)*
                }
            }

            /// Adds or replaces an object of any kind. Returns whether its output differs.
            pub fn put_any(&mut self, object: AnyObject) -> bool {
                match object {
                    $(AnyObject::$kind(object) => self.$field.put(object),)*
                }
            }

            /// An object of any kind.
            #[must_use]
            pub fn any(&self, object: &ObjectRef) -> Option<AnyObject> {
                match object.kind {
                    $(Kind::$kind => self.$field.get(&object.name).cloned().map(AnyObject::$kind),)*
                }
            }

            /// Whether an object differs from that in `other`, or is in one of them only.
            #[must_use]
            pub fn differs(&self, other: &Self, object: &ObjectRef) -> bool {
                match object.kind {
                    $(Kind::$kind => self.$field.differs(&other.$field, &object.name),)*
                }
            }

            /// Moves all objects of a namespace whose kinds are in the scope to `other`. Returns
            /// their names.
            fn move_namespace(
                &mut self,
                namespace: &NamespaceName,
                scope: DiscoveryScope,
                other: &mut Self,
            ) -> Vec<ObjectRef> {
                let mut moved = Vec::new();
                $(if scope.covers(Kind::$kind) {
                    for object in self.$field.take_namespace(namespace) {
                        moved.push(ObjectRef { kind: Kind::$kind, name: object.meta.key() });
                        other.$field.put(object);
                    }
                })*
                moved
            }

            /// The namespaces that contain objects.
            fn inhabited_namespaces(&self) -> BTreeSet<NamespaceName> {
                let mut names = BTreeSet::new();
                $(names.extend(self.$field.iter().map(|object| object.meta.key.namespace.clone()));)*
                names.remove("");
                names
            }

            /// Kind and name of each object, kind by kind in the order of the tables.
            pub fn all_names(&self) -> impl Iterator<Item = ObjectRef> {
                let names = std::iter::empty();
                $(let names = names.chain(self.$field.iter().map(|object| ObjectRef { kind: Kind::$kind, name: object.meta.key() }));)*
                names
            }

            /// The names of all objects of a kind, in order.
            pub fn all_of(&self, kind: Kind) -> Box<dyn Iterator<Item = ObjectRef> + '_> {
                match kind {
                    $(Kind::$kind => Box::new(
                        self.$field
                            .iter()
                            .map(move |object| ObjectRef { kind, name: object.meta.key() }),
                    ),)*
                }
            }

            /// All objects, kind by kind.
            pub fn all(&self) -> impl Iterator<Item = AnyObject> {
                let none = std::iter::empty::<AnyObject>();
                $(let none = none.chain(self.$field.iter().cloned().map(AnyObject::$kind));)*
                none
            }

            /// Whether an object exists.
            #[must_use]
            pub fn contains(&self, object: &ObjectRef) -> bool {
                match object.kind {
                    $(Kind::$kind => self.$field.get(&object.name).is_some(),)*
                }
            }

            /// The names of the objects of a kind, each with its resource version.
            #[must_use]
            pub fn versions(&self, kind: Kind) -> Vec<(NamespacedName, Arc<str>)> {
                match kind {
                    $(Kind::$kind => {
                        let one = |object: &Arc<Object<$kind>>| {
                            (object.meta.key(), object.meta.resource_version.clone())
                        };
                        self.$field.iter().map(one).collect()
                    })*
                }
            }

            /// Number of objects of a kind.
            #[must_use]
            pub fn count(&self, kind: Kind) -> usize {
                match kind {
                    $(Kind::$kind => self.$field.len(),)*
                }
            }
        }
    };
}

tables! {
    /// Cluster-scoped, so the namespace of their keys is empty. Labels select discovery, injection
    /// and waypoints.
    namespaces: Namespace,
    /// Cluster-scoped. Have the localities of pods, and kubelet versions for native sidecars.
    nodes: Node,
    /// Kubernetes Services.
    services: Service,
    /// Addresses behind Kubernetes Services, of pods and others, with their readiness.
    endpoint_slices: EndpointSlice,
    /// Labels, addresses, nodes and service accounts of workloads.
    pods: Pod,
    /// Certificates of gateways and clients (`credentialName`), and credentials for images of Wasm
    /// modules.
    secrets: Secret,
    /// Roots of certificates (`configmap://`, BackendTLSPolicy), and the mesh config of remote
    /// clusters.
    config_maps: ConfigMap,
    /// Not read from API servers, since istiod's permissions do not include them.
    service_accounts: ServiceAccount,
    /// Of all classes: `ingressControllerMode` and `ingressClass` of mesh config decide which are
    /// served.
    ingresses: Ingress,
    /// Cluster-scoped. Their `spec.controller` decides whether Ingresses of the class are served.
    ingress_classes: IngressClass,
    /// Routes by host, for sidecars (gateway `mesh`) and for gateways.
    virtual_services: VirtualService,
    /// Subsets of hosts, and how clients balance load, limit connections and use TLS.
    destination_rules: DestinationRule,
    /// Istio Gateways.
    gateways: Gateway,
    /// Hosts that are no Kubernetes Services, inside or outside of the mesh, with their endpoints.
    service_entries: ServiceEntry,
    /// Workloads that are not pods, such as virtual machines; services select them by label.
    workload_entries: WorkloadEntry,
    /// Which hosts proxies of a namespace or workload see, and at which ports they listen.
    sidecars: Sidecar,
    /// Patches of the generated listeners, routes, clusters and extensions.
    envoy_filters: EnvoyFilter,
    /// Overrides of `defaultConfig` of mesh config, by namespace or workload.
    proxy_configs: ProxyConfig,
    /// Templates of the WorkloadEntries that are created when workloads register.
    workload_groups: WorkloadGroup,
    /// Whether workloads accept plain text, mutual TLS or both, also by port.
    peer_authentications: PeerAuthentication,
    /// Which requests and connections to workloads are allowed, denied, audited, or passed to an
    /// external authorizer.
    authorization_policies: AuthorizationPolicy,
    /// Which issuers of JWTs workloads trust, and where requests carry the tokens.
    request_authentications: RequestAuthentication,
    /// Tracing, metrics and access logs of the mesh, of a namespace, or of workloads.
    telemetries: Telemetry,
    /// WebAssembly modules for the filter chains of workloads.
    wasm_plugins: WasmPlugin,
    /// WebAssembly modules or Lua scripts for the filter chains of workloads.
    traffic_extensions: TrafficExtension,
    /// Cluster-scoped. Their `spec.controllerName` decides which Gateways are served.
    gateway_classes: GatewayClass,
    /// Gateways of the Gateway API.
    kubernetes_gateways: KubernetesGateway,
    /// Routes of HTTP requests, for listeners of Gateways and for Services.
    http_routes: HttpRoute,
    /// Routes of gRPC calls by service and method, for listeners of Gateways and for Services.
    grpc_routes: GrpcRoute,
    /// Routes of TLS connections by SNI.
    tls_routes: TlsRoute,
    /// Routes of all connections to a listener.
    tcp_routes: TcpRoute,
    /// Permit references from objects of other namespaces to Services, Secrets and others of their
    /// own.
    reference_grants: ReferenceGrant,
    /// TLS settings for connections to Services: the expected host name, and roots that verify it.
    backend_tls_policies: BackendTlsPolicy,
    /// Further listeners of Gateways, also of Gateways in other namespaces.
    listener_sets: ListenerSet,
    /// Retry limits and session persistence of requests to Services. Experimental in the Gateway
    /// API.
    backend_traffic_policies: XBackendTrafficPolicy,
    /// Backends outside of the cluster, by DNS name. Experimental in the Gateway API.
    backends: XBackend,
    /// Pods that serve a model, and the service that picks a pod for each request.
    inference_pools: InferencePool,
    /// Make the Service of the same name available in all clusters of the set (MCS API).
    service_exports: ServiceExport,
    /// Services that other clusters of the set export, with their virtual addresses (MCS API).
    service_imports: ServiceImport,
}

impl Objects {
    /// The object of this kind and name.
    #[must_use]
    pub fn get<T: Stored>(&self, key: &NamespacedName) -> Option<&Arc<Object<T>>> {
        T::table(self).get(key)
    }

    /// Inserts an object, or replaces the object of the same name. Returns whether the content
    /// differs.
    pub fn put<T: Stored>(&mut self, object: Arc<Object<T>>) -> bool {
        T::table_mut(self).put(object)
    }
}

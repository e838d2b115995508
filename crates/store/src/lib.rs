//! The current objects by kind, namespace and name, immutable per version.
//!
//! Copies share all unchanged parts (persistent maps), so a snapshot costs a few reference counts. Depends only on the identity
//! of objects, not on their source.

mod discovery;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use discovery::{Discovery, DiscoveryScope};
pub use table::Table;

use navarch_api::any_object::AnyObject;
use navarch_api::gateway_api::{
    BackendTlsPolicy, GatewayClass, GrpcRoute, HttpRoute, InferencePool, KubernetesGateway, ListenerSet,
    ReferenceGrant, TcpRoute, TlsRoute, XBackend, XBackendTrafficPolicy,
};
use navarch_api::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig, RequestAuthentication,
    ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService, WasmPlugin, WorkloadEntry, WorkloadGroup,
};
use navarch_api::kubernetes::{
    ConfigMap, EndpointSlice, Ingress, IngressClass, Namespace, Node, Pod, Secret, Service, ServiceAccount,
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

            /// Adds or replaces an object of any kind. Returns whether its content differs.
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

            /// Moves all objects of a namespace whose kinds are in the scope to `other`. Returns their names.
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

            /// The names of all objects.
            pub fn all_names(&self) -> impl Iterator<Item = ObjectRef> {
                let names = std::iter::empty();
                $(let names = names.chain(self.$field.iter().map(|object| ObjectRef { kind: Kind::$kind, name: object.meta.key() }));)*
                names
            }

            /// The names of all objects of a kind, in order.
            pub fn all_of(&self, kind: Kind) -> Box<dyn Iterator<Item = ObjectRef> + '_> {
                match kind {
                    $(Kind::$kind => Box::new(
                        self.$field.iter().map(move |object| ObjectRef { kind, name: object.meta.key() }),
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
                        let one = |object: &Arc<Object<$kind>>| (object.meta.key(), object.meta.resource_version.clone());
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
    /// Namespaces.
    namespaces: Namespace,
    /// Nodes.
    nodes: Node,
    /// Kubernetes Services.
    services: Service,
    /// EndpointSlices.
    endpoint_slices: EndpointSlice,
    /// Pods.
    pods: Pod,
    /// Secrets.
    secrets: Secret,
    /// ConfigMaps.
    config_maps: ConfigMap,
    /// ServiceAccounts.
    service_accounts: ServiceAccount,
    /// Ingresses.
    ingresses: Ingress,
    /// IngressClasses.
    ingress_classes: IngressClass,
    /// VirtualServices.
    virtual_services: VirtualService,
    /// DestinationRules.
    destination_rules: DestinationRule,
    /// Istio Gateways.
    gateways: Gateway,
    /// ServiceEntries.
    service_entries: ServiceEntry,
    /// WorkloadEntries.
    workload_entries: WorkloadEntry,
    /// Sidecars.
    sidecars: Sidecar,
    /// EnvoyFilters.
    envoy_filters: EnvoyFilter,
    /// ProxyConfigs.
    proxy_configs: ProxyConfig,
    /// WorkloadGroups.
    workload_groups: WorkloadGroup,
    /// PeerAuthentications.
    peer_authentications: PeerAuthentication,
    /// AuthorizationPolicies.
    authorization_policies: AuthorizationPolicy,
    /// RequestAuthentications.
    request_authentications: RequestAuthentication,
    /// Telemetries.
    telemetries: Telemetry,
    /// WasmPlugins.
    wasm_plugins: WasmPlugin,
    /// TrafficExtensions.
    traffic_extensions: TrafficExtension,
    /// GatewayClasses.
    gateway_classes: GatewayClass,
    /// Gateways of the Gateway API.
    kubernetes_gateways: KubernetesGateway,
    /// HTTPRoutes.
    http_routes: HttpRoute,
    /// GRPCRoutes.
    grpc_routes: GrpcRoute,
    /// TLSRoutes.
    tls_routes: TlsRoute,
    /// TCPRoutes.
    tcp_routes: TcpRoute,
    /// ReferenceGrants.
    reference_grants: ReferenceGrant,
    /// BackendTLSPolicies.
    backend_tls_policies: BackendTlsPolicy,
    /// ListenerSets.
    listener_sets: ListenerSet,
    /// XBackendTrafficPolicies.
    backend_traffic_policies: XBackendTrafficPolicy,
    /// XBackends.
    backends: XBackend,
    /// InferencePools.
    inference_pools: InferencePool,
    /// ServiceExports.
    service_exports: ServiceExport,
    /// ServiceImports.
    service_imports: ServiceImport,
}

impl Objects {
    /// The object of this kind and name.
    #[must_use]
    pub fn get<T: Stored>(&self, key: &NamespacedName) -> Option<&Arc<Object<T>>> {
        T::table(self).get(key)
    }

    /// Inserts an object, or replaces the object of the same name. Returns whether the content differs.
    pub fn put<T: Stored>(&mut self, object: Arc<Object<T>>) -> bool {
        T::table_mut(self).put(object)
    }
}

//! The work queues of an update, by step.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::queue::Queue;
use crate::model::{ServiceKey, Workload};
use navarch_api::names::Hostname;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_store::{Objects, Stored};

/// The objects and values to be recomputed. Steps process what earlier steps queue here.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// Namespaces of which labels or annotations may have changed.
    pub namespaces: BTreeSet<NamespacedName>,
    pub nodes: BTreeSet<NamespacedName>,
    pub pods: Queue<NamespacedName>,
    /// WorkloadEntries.
    pub entries: BTreeSet<NamespacedName>,
    /// Kubernetes Services.
    pub services: BTreeSet<NamespacedName>,
    pub service_entries: BTreeSet<NamespacedName>,
    /// EndpointSlices.
    pub slices: Queue<NamespacedName>,
    /// ServiceEntries whose endpoints are to be rebuilt.
    pub entry_endpoints: BTreeSet<NamespacedName>,
    /// Keys with changed declarations.
    pub keys: BTreeSet<ServiceKey>,
    /// Whether aliases were added, changed or removed.
    pub aliases: bool,
    /// Whether addresses for hosts of ServiceEntries must be allocated again.
    pub allocation: bool,
    /// Services whose endpoints are to be collected.
    pub endpoints: Queue<ServiceKey>,
    /// Pods whose targets are to be found.
    pub pod_targets: Queue<NamespacedName>,
    /// Addresses whose targets are to be found.
    pub addresses: BTreeSet<IpAddr>,
    /// Pods whose workloads are to be updated in the directory.
    pub workloads: Queue<NamespacedName>,
    /// Kubernetes Services that are or were gateways, or may be now.
    pub gateways: BTreeSet<NamespacedName>,
    /// Gateways of the Gateway API.
    pub gateway_objects: BTreeSet<NamespacedName>,
    /// ServiceExports.
    pub exports: BTreeSet<NamespacedName>,
    /// ServiceImports; the aggregate builds their services.
    pub imports: BTreeSet<NamespacedName>,
    /// Added, changed or removed workloads of a remote cluster, in their versions before and after.
    pub touched: Vec<Arc<Workload>>,
    /// Hosts with changed aliases.
    pub aliased: BTreeSet<Hostname>,
}

impl Work {
    /// Sorts changed objects by kind; kinds that the registry does not read are ignored.
    #[must_use]
    pub(super) fn sort(changed: &BTreeSet<ObjectRef>) -> Self {
        let mut work = Self::default();

        for ObjectRef { kind, name } in changed {
            let names = match kind {
                Kind::Namespace => &mut work.namespaces,
                Kind::Node => &mut work.nodes,
                Kind::Pod => {
                    work.pods.insert(name.clone());
                    continue;
                }
                Kind::WorkloadEntry => &mut work.entries,
                Kind::Service => &mut work.services,
                Kind::ServiceEntry => &mut work.service_entries,
                Kind::EndpointSlice => {
                    work.slices.insert(name.clone());
                    continue;
                }
                Kind::Secret
                | Kind::ConfigMap
                | Kind::ServiceAccount
                | Kind::Ingress
                | Kind::IngressClass
                | Kind::VirtualService
                | Kind::DestinationRule
                | Kind::Gateway
                | Kind::Sidecar
                | Kind::EnvoyFilter
                | Kind::ProxyConfig
                | Kind::WorkloadGroup
                | Kind::PeerAuthentication
                | Kind::AuthorizationPolicy
                | Kind::RequestAuthentication
                | Kind::Telemetry
                | Kind::WasmPlugin
                | Kind::TrafficExtension
                | Kind::GatewayClass
                | Kind::HttpRoute
                | Kind::GrpcRoute
                | Kind::TlsRoute
                | Kind::TcpRoute
                | Kind::ReferenceGrant
                | Kind::BackendTlsPolicy
                | Kind::ListenerSet
                | Kind::XBackendTrafficPolicy
                | Kind::XBackend
                | Kind::InferencePool => continue,
                Kind::ServiceExport => &mut work.exports,
                Kind::ServiceImport => &mut work.imports,
                Kind::KubernetesGateway => &mut work.gateway_objects,
            };

            names.insert(name.clone());
        }

        work
    }

    /// All objects, for an empty registry.
    #[must_use]
    pub(super) fn everything(objects: &Objects) -> Self {
        fn names<T: Stored, N: FromIterator<NamespacedName>>(objects: &Objects) -> N {
            T::table(objects)
                .iter()
                .map(|object| object.meta.key())
                .collect()
        }
        use navarch_api::{gateway_api, istio, kubernetes};
        Self {
            pods: names::<kubernetes::Pod, _>(objects),
            entries: names::<istio::WorkloadEntry, _>(objects),
            services: names::<kubernetes::Service, _>(objects),
            service_entries: names::<istio::ServiceEntry, _>(objects),
            slices: names::<kubernetes::EndpointSlice, _>(objects),
            gateway_objects: names::<gateway_api::KubernetesGateway, _>(objects),
            ..Self::default()
        }
    }
}

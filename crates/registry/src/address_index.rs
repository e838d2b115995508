//! The names of workloads and services that ztunnel can request, maintained incrementally, and an
//! index of objects by address, node, label and pod.
//!
//! ```text
//! object before ─┐
//! object now ────┴─▶ keys and names of either ─▶ what differs ─▶ AddressIndex + AddressChange
//! ```
//!
//! The index finds candidates: readers check whether an object matches. The cost of a change
//! depends only on what it changes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;

use super::address_name::AddressName;
use super::model::{Labels, ServiceKey};
use super::object_index::ObjectIndex;
use super::remote_gateway::{RemoteGateway, remote_gateways};
use navarch_api::any_object::AnyObject;
use navarch_api::istio::ServiceEntry;
use navarch_api::kubernetes::{AddressType, EndpointSlice, Pod, Service, ServiceType};
use navarch_api::names::{ClusterId, Hostname, Namespace, ResourceName};
use navarch_api::object::{Kind, NamespacedName, Object, ObjectRef};
use navarch_base::cidr::Cidr;
use navarch_store::Objects;
use navarch_tables::hash::keyed_hash;

/// The label of EndpointSlices that names their Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Labels with many values that no selector uses: they are not indexed.
const UNSELECTED: [&str; 3] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
];

/// A key of the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressKey {
    /// An address of pods, Services, ServiceEntries, WorkloadEntries, EndpointSlices and Gateways.
    Address(IpAddr),
    /// The node that pods run on.
    Node(Arc<str>),
    /// The pod that EndpointSlices list.
    Pod(NamespacedName),
    /// A label of pods of a namespace; the Service of EndpointSlices.
    Label(LabelKey),
}

/// A label within a namespace. Two labels may have the same key, which is a hash within this
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelKey(u64);

/// The names and the objects by key. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AddressIndex {
    /// By the hash of their keys.
    objects: ObjectIndex,
    /// Number of objects with each name. Pods are not counted, since each has a name of its own.
    brought: OrdMap<ResourceName, usize>,
}

/// A change of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressChange {
    /// Keys with different objects.
    pub keys: BTreeSet<AddressKey>,
    /// Names that no object had before.
    pub added: BTreeSet<ResourceName>,
    /// Names that no object has any more.
    pub removed: BTreeSet<ResourceName>,
}

/// The cluster of an index, and which of its objects are indexed.
#[derive(Clone, Copy, Debug)]
pub struct IndexScope<'a> {
    /// The cluster of the objects.
    pub cluster: &'a ClusterId,
    /// The DNS suffix of Kubernetes services.
    pub domain_suffix: &'a str,
    /// Which of its objects are indexed.
    pub coverage: Coverage,
}

/// Which objects of a cluster are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All objects: the configuration cluster.
    Own,
    /// Services and workloads: a remote cluster in the same network.
    Workloads {
        /// Whether WorkloadEntries are workloads there, too.
        entries: bool,
    },
    /// Services: a remote cluster in another network.
    Services,
    /// Pods and WorkloadEntries by address, without names: proxies request the metadata of peers,
    /// and nothing else uses the index.
    Peers,
}

/// The keys and names of one version of an object.
#[derive(Default)]
struct Traits {
    keys: BTreeSet<AddressKey>,
    names: BTreeSet<ResourceName>,
}

impl LabelKey {
    /// The key for pods of `namespace` with the label `key: value`.
    #[must_use]
    pub fn of_pods(namespace: &Namespace, key: &str, value: &str) -> Self {
        Self(keyed_hash(&(namespace.as_str(), key, value)))
    }

    /// The key of the Service of EndpointSlices.
    #[must_use]
    pub fn of_slices(namespace: &Namespace, service: &str) -> Self {
        Self::of_pods(namespace, SERVICE_NAME_LABEL, service)
    }

    /// The keys of a selector's labels; none if it has only labels that are not indexed.
    pub fn of_selector<'a>(
        namespace: &'a Namespace,
        selector: &'a Labels,
    ) -> impl Iterator<Item = Self> + 'a {
        let kept = selector
            .iter()
            .filter(|(key, _)| !UNSELECTED.contains(&&***key));
        kept.map(|(key, value)| Self::of_pods(namespace, key, value))
    }
}

impl AddressIndex {
    /// Applies changes of objects. `before` and `now` are the objects; `changed` are those that may
    /// differ. An index has one scope for its lifetime, unless it is emptied in between.
    pub fn apply(
        &mut self,
        before: &Objects,
        now: &Objects,
        changed: &BTreeSet<ObjectRef>,
        scope: &IndexScope<'_>,
    ) -> AddressChange {
        let mut change = AddressChange::default();
        for object in changed
            .iter()
            .filter(|object| scope.coverage.has(object.kind))
        {
            let traits = |objects: &Objects| {
                objects
                    .any(object)
                    .map(|object| Traits::of(&object, scope))
                    .unwrap_or_default()
            };
            let old = traits(before);
            let new = traits(now);
            for key in old.keys.difference(&new.keys) {
                self.objects.remove(keyed_hash(key), object);
                change.keys.insert(key.clone());
            }
            for key in new.keys.difference(&old.keys) {
                self.objects.insert(keyed_hash(key), object);
                change.keys.insert(key.clone());
            }
            for name in old.names.difference(&new.names) {
                self.take_name(name, object.kind, &mut change);
            }
            for name in new.names.difference(&old.names) {
                self.add_name_reference(name, object.kind, &mut change);
            }
        }

        change
    }

    /// Whether an object other than a pod has this name.
    #[must_use]
    pub fn has_name(&self, name: &ResourceName) -> bool {
        self.brought.contains_key(name)
    }

    /// The objects at an address.
    pub fn at(&self, address: IpAddr) -> impl Iterator<Item = ObjectRef> + use<'_> {
        self.with_key(&AddressKey::Address(address))
    }

    /// The pods on a node.
    pub fn on(&self, node: &Arc<str>) -> impl Iterator<Item = NamespacedName> + use<'_> {
        self.with_key(&AddressKey::Node(node.clone()))
            .map(|pod| pod.name)
    }

    /// The EndpointSlices that list a pod.
    pub fn slices_of(
        &self,
        pod: &NamespacedName,
    ) -> impl Iterator<Item = NamespacedName> + use<'_> {
        self.with_key(&AddressKey::Pod(pod.clone()))
            .map(|slice| slice.name)
    }

    /// The objects with a label.
    pub fn with(&self, label: LabelKey) -> impl Iterator<Item = ObjectRef> + use<'_> {
        self.with_key(&AddressKey::Label(label))
    }

    fn with_key(&self, key: &AddressKey) -> impl Iterator<Item = ObjectRef> + use<'_> {
        self.objects.get(keyed_hash(key))
    }

    fn add_name_reference(&mut self, name: &ResourceName, kind: Kind, change: &mut AddressChange) {
        let count = if kind == Kind::Pod {
            0
        } else {
            self.brought.get(name).copied().unwrap_or_default()
        };
        if kind != Kind::Pod {
            self.brought.insert(name.clone(), count + 1);
        }
        // A name that is removed and added within one change is unchanged.
        if count == 0 && !change.removed.remove(name) {
            change.added.insert(name.clone());
        }
    }

    /// Removes a reference to a name.
    fn take_name(&mut self, name: &ResourceName, kind: Kind, change: &mut AddressChange) {
        let count = if kind == Kind::Pod {
            1
        } else {
            self.brought.get(name).copied().unwrap_or_default()
        };
        if count > 1 {
            self.brought.insert(name.clone(), count - 1);
            return;
        }
        self.brought.remove(name);
        if !change.added.remove(name) {
            change.removed.insert(name.clone());
        }
    }
}

/// The addresses of a pod as a workload; none once it has ended.
fn addresses_of(pod: &Pod) -> &[IpAddr] {
    if pod.is_terminal() { &[] } else { &pod.pod_ips }
}

impl Coverage {
    /// Whether objects of a kind have keys or names.
    fn has(self, kind: Kind) -> bool {
        match self {
            Self::Own => matches!(
                kind,
                Kind::Pod
                    | Kind::Service
                    | Kind::ServiceEntry
                    | Kind::WorkloadEntry
                    | Kind::EndpointSlice
                    | Kind::KubernetesGateway
            ),
            Self::Workloads { entries } => {
                matches!(kind, Kind::Pod | Kind::Service | Kind::EndpointSlice)
                    || entries && kind == Kind::WorkloadEntry
            }
            Self::Services => kind == Kind::Service,
            Self::Peers => matches!(kind, Kind::Pod | Kind::WorkloadEntry),
        }
    }
}

impl Traits {
    /// The keys and names of one version of an object.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only a few kinds contain the locations of workloads and services"
    )]
    fn of(object: &AnyObject, scope: &IndexScope<'_>) -> Self {
        let mut traits = Self::default();

        if scope.coverage == Coverage::Peers {
            match object {
                AnyObject::Pod(pod) => {
                    traits.add_addresses(addresses_of(&pod.spec).iter().copied())
                }
                AnyObject::WorkloadEntry(entry) => {
                    traits.add_addresses(entry.spec.address.parse().ok())
                }
                _ => {}
            }
            return traits;
        }

        match object {
            AnyObject::Pod(pod) => traits.add_pod(pod, scope),
            AnyObject::Service(service) => traits.add_service(service, scope),
            AnyObject::ServiceEntry(entry) => traits.add_entry(entry, scope),
            AnyObject::WorkloadEntry(entry) => {
                traits.add_addresses(entry.spec.address.parse().ok());
                traits.add_name(&AddressName::WorkloadEntry(entry.meta.key()), scope);
            }
            AnyObject::EndpointSlice(slice) => traits.add_slice(slice, scope),
            AnyObject::KubernetesGateway(gateway) => {
                for RemoteGateway {
                    network,
                    address,
                    port,
                    service_account: _,
                } in remote_gateways(gateway)
                {
                    traits.add_addresses(address.parse().ok());
                    traits.add_name(
                        &AddressName::NetworkGateway {
                            network,
                            address,
                            port,
                        },
                        scope,
                    );
                }
            }
            _ => {}
        }

        traits
    }

    /// Adds the keys and name of a pod. A pod that has ended is not a workload, but may have
    /// supplied the identity of a waypoint.
    fn add_pod(&mut self, pod: &Object<Pod>, scope: &IndexScope<'_>) {
        let meta = &pod.meta;
        let spec = &pod.spec;
        let labels = meta
            .labels
            .iter()
            .filter(|(key, _)| !UNSELECTED.contains(&&***key));
        let labels = labels.map(|(key, value)| LabelKey::of_pods(&meta.key.namespace, key, value));
        self.keys.extend(labels.map(AddressKey::Label));
        let addresses = addresses_of(spec);
        if addresses.is_empty() {
            return;
        }
        self.add_addresses(addresses.iter().copied());
        self.keys.extend(spec.node.clone().map(AddressKey::Node));
        self.add_name(&AddressName::Pod(meta.key()), scope);
    }

    fn add_service(&mut self, service: &Object<Service>, scope: &IndexScope<'_>) {
        if matches!(service.spec.service_type, ServiceType::ExternalName(_)) {
            return;
        }
        self.add_addresses(service.spec.cluster_ips.addresses().iter().copied());
        let key = &service.meta.key;
        let host = format!("{}.{}.svc.{}", key.name, key.namespace, scope.domain_suffix);
        self.add_host(&key.namespace, &host, scope);
    }

    /// Adds the keys and names of a ServiceEntry and its endpoints.
    fn add_entry(&mut self, entry: &Object<ServiceEntry>, scope: &IndexScope<'_>) {
        let meta = &entry.meta;
        let spec = &entry.spec;
        for host in &spec.hosts {
            self.add_host(&meta.key.namespace, host, scope);
        }

        let ranges = spec
            .addresses
            .iter()
            .filter_map(|text| Cidr::parse_range_or_address(text));
        self.keys
            .extend(ranges.map(|range| AddressKey::Address(range.masked().address)));
        self.add_addresses(
            spec.allocated
                .iter()
                .filter_map(|address| address.value.parse().ok()),
        );

        let mut add = |address: &str| {
            self.add_addresses(address.parse().ok());
            self.add_name(
                &AddressName::Endpoint {
                    entry: meta.key(),
                    address: Arc::from(address),
                },
                scope,
            );
        };

        if entry.spec.has_implicit_endpoints() {
            spec.hosts.iter().for_each(|host| add(host));
        } else {
            spec.endpoints
                .iter()
                .for_each(|endpoint| add(&endpoint.address));
        }
    }

    /// Adds the keys and names of an EndpointSlice: of the pods that it lists, and of its endpoints
    /// that are not pods.
    fn add_slice(&mut self, slice: &Object<EndpointSlice>, scope: &IndexScope<'_>) {
        let meta = &slice.meta;
        let spec = &slice.spec;
        let Some(service) = spec
            .service
            .as_ref()
            .filter(|_| spec.address_type != AddressType::Fqdn)
        else {
            return;
        };

        self.keys.insert(AddressKey::Label(LabelKey::of_slices(
            &meta.key.namespace,
            service,
        )));

        for endpoint in &spec.endpoints {
            match (&endpoint.pod, endpoint.addresses.first()) {
                (Some(pod), _) => _ = self.keys.insert(AddressKey::Pod(pod.clone())),
                (None, Some(address)) => {
                    self.add_addresses(endpoint.addresses.iter().copied());
                    self.add_name(
                        &AddressName::SliceEndpoint {
                            slice: meta.key(),
                            address: *address,
                        },
                        scope,
                    );
                }
                (None, None) => {}
            }
        }
    }

    /// Adds a service by its host.
    fn add_host(&mut self, namespace: &Namespace, host: &str, scope: &IndexScope<'_>) {
        let key = ServiceKey {
            namespace: namespace.clone(),
            hostname: Hostname::new(host),
        };
        self.add_name(&AddressName::Service(key), scope);
    }

    fn add_addresses(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.keys
            .extend(addresses.into_iter().map(AddressKey::Address));
    }

    fn add_name(&mut self, name: &AddressName, scope: &IndexScope<'_>) {
        self.names.insert(name.to_resource_name(scope.cluster));
    }
}

#[cfg(test)]
mod tests;

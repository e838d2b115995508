//! The cluster of a proxy, and reads of objects that exist in that cluster only.

use std::net::IpAddr;
use std::sync::Arc;

use super::context::PushContext;
use super::fact::{FactKey, RemoteFact};
use super::proxy::Proxy;
use super::view::View;
use navarch_api::names::{ClusterId, Namespace};
use navarch_api::object::{NamespacedName, Object, ObjectRef};
use navarch_registry::address_index::{AddressIndex, AddressKey, LabelKey};
use navarch_registry::directory::{Directory, TargetsAt};
use navarch_registry::model::{ServiceTarget, Workload};
use navarch_store::{Objects, Stored};

/// The cluster of a proxy, from its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClusterRef {
    /// The cluster that configures the mesh, or no cluster given.
    Config,
    /// A remote cluster whose API server is watched.
    Remote(ClusterId),
    /// The metadata names a cluster that is not watched. Its objects do not exist for reads.
    Unknown,
}

impl View<'_> {
    /// All clusters except the one that configures the mesh.
    pub fn remote_clusters(&self) -> impl Iterator<Item = &ClusterId> {
        self.read(FactKey::Clusters).remotes.keys()
    }

    /// The service ports of Kubernetes Services that a pod of a cluster serves.
    #[must_use]
    pub fn targets_of_pod_in(
        &self,
        cluster_ref: &ClusterRef,
        pod: &NamespacedName,
    ) -> &[ServiceTarget] {
        match cluster_ref {
            ClusterRef::Config => self.targets_of_pod(pod),
            ClusterRef::Remote(cluster) => {
                let fact = FactKey::remote(cluster, RemoteFact::TargetsOf(pod.clone()));
                let targets =
                    remote(self.read(fact), cluster).and_then(|remote| remote.pod_targets.get(pod));
                targets.map_or(&[], |targets| targets)
            }
            ClusterRef::Unknown => &[],
        }
    }

    /// The service ports that WorkloadEntries of a cluster at this address serve, and the pods at
    /// this address.
    #[must_use]
    pub fn targets_at_in(
        &self,
        cluster_ref: &ClusterRef,
        address: IpAddr,
    ) -> Option<&Arc<TargetsAt>> {
        match cluster_ref {
            ClusterRef::Config => self.targets_at(address),
            ClusterRef::Remote(cluster) => {
                let fact = FactKey::remote(cluster, RemoteFact::TargetsAt(address));
                remote(self.read(fact), cluster)?.targets.get(&address)
            }
            ClusterRef::Unknown => None,
        }
    }

    /// The workload of the pod of this name in a cluster.
    #[must_use]
    pub fn workload_in(
        &self,
        cluster_ref: &ClusterRef,
        name: &NamespacedName,
    ) -> Option<&Arc<Workload>> {
        match cluster_ref {
            ClusterRef::Config => self.workload(name),
            ClusterRef::Remote(cluster) => {
                let fact = FactKey::remote(cluster, RemoteFact::Workload(name.clone()));
                remote(self.read(fact), cluster)?.workloads.get(name)
            }
            ClusterRef::Unknown => None,
        }
    }

    /// Whether a service account of a cluster may read the secrets of its namespace there; false
    /// while this is not known.
    #[must_use]
    pub fn may_read_secrets_in(&self, cluster_ref: &ClusterRef, account: &NamespacedName) -> bool {
        match cluster_ref {
            ClusterRef::Config => self.may_read_secrets(account),
            ClusterRef::Remote(cluster) => {
                let fact = FactKey::remote(cluster, RemoteFact::SecretReader(account.clone()));
                let readers = &self.read(fact).remote_secret_readers;
                readers
                    .get(&(cluster.clone(), account.clone()))
                    .copied()
                    .unwrap_or_default()
            }
            ClusterRef::Unknown => false,
        }
    }

    /// All objects of a kind in a remote cluster, by namespace and name.
    #[must_use]
    pub fn list_all_in<T: Stored>(&self, cluster: &ClusterId) -> Vec<&Arc<Object<T>>> {
        let context = self.read(FactKey::remote(cluster, RemoteFact::All(T::KIND)));
        objects(context, cluster)
            .into_iter()
            .flat_map(|objects| T::table(objects).iter())
            .collect()
    }

    /// `None` if the cluster is unknown, or has no object of this kind and name.
    #[must_use]
    pub fn object_in<T: Stored>(
        &self,
        cluster_ref: &ClusterRef,
        name: &NamespacedName,
    ) -> Option<&Arc<Object<T>>> {
        match cluster_ref {
            ClusterRef::Config => self.object(name),
            ClusterRef::Remote(cluster) => {
                let object = ObjectRef {
                    kind: T::KIND,
                    name: name.clone(),
                };
                let fact = FactKey::remote(cluster, RemoteFact::Object(object));
                T::table(objects(self.read(fact), cluster)?).get(name)
            }
            ClusterRef::Unknown => None,
        }
    }

    /// The objects of a kind in one namespace of a cluster, by name.
    #[must_use]
    pub fn list_in<T: Stored>(
        &self,
        cluster_ref: &ClusterRef,
        namespace: &Namespace,
    ) -> Vec<&Arc<Object<T>>> {
        match cluster_ref {
            ClusterRef::Config => self.list(namespace).collect(),
            ClusterRef::Remote(cluster) => {
                let fact = FactKey::remote(cluster, RemoteFact::List(T::KIND, namespace.clone()));
                let objects = objects(self.read(fact), cluster);
                objects
                    .into_iter()
                    .flat_map(|objects| T::table(objects).in_namespace(namespace))
                    .collect()
            }
            ClusterRef::Unknown => Vec::new(),
        }
    }

    /// The objects of a cluster that may be found at an address.
    pub fn objects_at_in(
        &self,
        cluster_ref: &ClusterRef,
        address: IpAddr,
    ) -> impl Iterator<Item = ObjectRef> + use<'_> {
        self.index_of(cluster_ref, AddressKey::Address(address))
            .into_iter()
            .flat_map(move |index| index.at(address))
    }

    /// The pods on a node of a cluster.
    pub fn pods_on_in(
        &self,
        cluster_ref: &ClusterRef,
        node: &Arc<str>,
    ) -> impl Iterator<Item = NamespacedName> + use<'_> {
        let index = self.index_of(cluster_ref, AddressKey::Node(node.clone()));
        index.map(|index| index.on(node)).into_iter().flatten()
    }

    /// The EndpointSlices of a cluster that list a pod of it.
    pub fn slices_of_pod_in(
        &self,
        cluster_ref: &ClusterRef,
        pod: &NamespacedName,
    ) -> impl Iterator<Item = NamespacedName> + use<'_> {
        let index = self.index_of(cluster_ref, AddressKey::Pod(pod.clone()));
        index
            .map(|index| index.slices_of(pod))
            .into_iter()
            .flatten()
    }

    /// The objects of a cluster that may have a label.
    pub fn objects_with_in(
        &self,
        cluster_ref: &ClusterRef,
        label: LabelKey,
    ) -> impl Iterator<Item = ObjectRef> + use<'_> {
        self.index_of(cluster_ref, AddressKey::Label(label))
            .into_iter()
            .flat_map(move |index| index.with(label))
    }

    /// The address index of a cluster, read by a key. For remote clusters there is one if the
    /// networks of an ambient mesh are joined (with workloads of clusters in the same network
    /// only), or if a proxy has requested a peer.
    fn index_of(&self, cluster_ref: &ClusterRef, key: AddressKey) -> Option<&AddressIndex> {
        match cluster_ref {
            ClusterRef::Config => Some(&self.read(FactKey::Found(key)).addresses),
            ClusterRef::Remote(cluster) => self
                .read(FactKey::remote(cluster, RemoteFact::Found(key)))
                .remote_addresses
                .get(cluster),
            ClusterRef::Unknown => None,
        }
    }
}

impl PushContext {
    /// The workload of a proxy's pod; `None` if the pod has not been read.
    #[must_use]
    pub fn workload_of(&self, proxy: &Proxy) -> Option<&Arc<Workload>> {
        self.directory_of(proxy)?
            .workloads
            .get(&proxy.workload_name())
    }

    /// The directory of the cluster that a proxy is in, by its metadata; `None` if that cluster is not
    /// watched. Pods of two clusters can have the same name, as those of StatefulSets do.
    fn directory_of(&self, proxy: &Proxy) -> Option<&Directory> {
        let clusters = &self.mesh.settings.clusters;
        let named = ClusterId::new(proxy.meta("CLUSTER_ID").unwrap_or_default());
        let cluster = clusters.aliases.get(&named).unwrap_or(&named);
        if cluster.as_str().is_empty() || *cluster == self.mesh.settings.cluster_id {
            return Some(&self.directory);
        }
        remote(self, cluster)
    }
}

fn remote<'a>(context: &'a PushContext, cluster: &ClusterId) -> Option<&'a Directory> {
    context
        .directory
        .remotes
        .get(cluster)
        .map(|directory| &**directory)
}

/// The objects of a remote cluster.
fn objects<'a>(context: &'a PushContext, cluster: &ClusterId) -> Option<&'a Objects> {
    context.remotes.get(cluster)
}

#[cfg(test)]
mod tests {
    use navarch_api::settings::Settings;
    use navarch_api::testing::objects;
    use serde_json::json;

    use super::*;
    use crate::mesh_state::{Change, MeshState, RemoteChange};
    use crate::proxy::Locality;
    use crate::testing::changes;

    #[test]
    fn a_proxy_is_in_the_cluster_of_its_metadata_which_may_have_an_alias() {
        let pod = |account: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: db-0, namespace: shop}}\n\
                 spec: {{serviceAccountName: {account}, containers: []}}\n\
                 status: {{phase: Running, podIP: 10.0.0.1}}\n"
            )
        };
        let mut settings = Settings::default();
        let aliases = &mut settings.clusters.aliases;
        aliases.insert(ClusterId::new("former-name"), ClusterId::new("east"));
        let mut state = MeshState::new(settings);
        let east = RemoteChange::Reset(objects(&pod("of-east")));
        state.apply(changes(&pod("own")));
        state.apply([Change::Remote(ClusterId::new("east"), east)]);

        let context = state.context();
        let account = |metadata| {
            let id = "sidecar~10.0.0.1~db-0.shop~shop.svc.cluster.local";
            let proxy = Proxy::parse(id, metadata, Locality::default()).unwrap();
            Some(context.workload_of(&proxy)?.service_account.to_string())
        };
        let own = Some("own".to_owned());
        let of_east = Some("of-east".to_owned());
        assert_eq!(account(json!({})), own);
        assert_eq!(account(json!({ "CLUSTER_ID": "Kubernetes" })), own);
        assert_eq!(account(json!({ "CLUSTER_ID": "east" })), of_east);
        assert_eq!(account(json!({ "CLUSTER_ID": "former-name" })), of_east);
        assert_eq!(account(json!({ "CLUSTER_ID": "west" })), None);
    }
}

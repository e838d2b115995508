//! The attributes of a proxy that translators can read. Each read is recorded and splits results,
//! so read no more than is needed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::attr::{Attr, AttrValue};
use super::cluster_ref::ClusterRef;
use super::fact::FactKey;
use super::namespace_list::NamespaceList;
use super::pod_of_proxy::{PodOfProxy, is_test_machine};
use super::proxy::{IpFamilies, Locality, ProxyKind, workload_name_of};
use super::query::{ProxyQuery, Query};
use super::targets::TargetsOfProxy;
use super::view::View;
use navarch_api::identity::Identity;
use navarch_api::learned_scope::LearnedWorkload;
use navarch_api::names::{ClusterId, Namespace, NetworkId};
use navarch_api::object::NamespacedName;
use navarch_base::go_text::parse_bool;
use navarch_registry::model::{Labels, ServiceTarget};
use navarch_registry::{NODE_LABEL, WorkloadLocation, locality_of_proxy};

/// The attributes of the view's proxy.
#[derive(Clone, Copy, Debug)]
pub struct ProxyView<'a>(&'a View<'a>);

/// The labels of the proxy without topology labels: those of its workload in the registry over
/// static ones (`STATIC_LABELS`), else those that it sent (`LABELS`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnLabels;

/// The labels that selectors match, topology labels included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectiveLabels;

/// Whether a label selector selects the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SelectedBy(Arc<Labels>);

/// The locality of the proxy: from its labels, else from its node message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectiveLocality;

/// The workload of the proxy's pod, if the client has proved the pod's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WorkloadOfIdentity;

impl View<'_> {
    /// The proxy that this view is for.
    #[must_use]
    pub fn proxy(&self) -> ProxyView<'_> {
        ProxyView(self)
    }
}

impl ProxyView<'_> {
    /// The type of the proxy: sidecar, router, waypoint…
    #[must_use]
    pub fn kind(self) -> ProxyKind {
        if let AttrValue::Kind(kind) = self.0.attribute(&Attr::Kind) {
            kind
        } else {
            ProxyKind::Sidecar
        }
    }

    /// The configuration namespace. Splits by namespace: prefer [`ProxyView::namespace_among`]
    /// where few matter.
    #[must_use]
    pub fn namespace(self) -> Namespace {
        Namespace::new(self.text(&Attr::Namespace).unwrap_or_default())
    }

    /// The configuration namespace if it is one of `namespaces`.
    #[must_use]
    pub fn namespace_among(
        self,
        namespaces: impl IntoIterator<Item = Namespace>,
    ) -> Option<Namespace> {
        self.namespace_in(&namespaces.into_iter().collect())
    }

    /// As [`ProxyView::namespace_among`], for a list that many proxies share.
    #[must_use]
    pub fn namespace_in(self, namespaces: &NamespaceList) -> Option<Namespace> {
        self.text(&Attr::NamespaceAmong(namespaces.clone()))
            .map(Namespace::new)
    }

    /// All addresses. Splits by proxy.
    #[must_use]
    pub fn ips(self) -> Arc<[IpAddr]> {
        if let AttrValue::Ips(ips) = self.0.attribute(&Attr::Ips) {
            ips
        } else {
            Arc::from([])
        }
    }

    /// The IP families of its addresses.
    #[must_use]
    pub fn families(self) -> IpFamilies {
        if let AttrValue::Families(families) = self.0.attribute(&Attr::Families) {
            families
        } else {
            IpFamilies::V4
        }
    }

    /// `<pod>.<namespace>`. Splits by proxy.
    #[must_use]
    pub fn name(self) -> Arc<str> {
        self.text(&Attr::Name).unwrap_or_else(|| Arc::from(""))
    }

    /// The DNS domain of the node id, such as `shop.svc.cluster.local`.
    #[must_use]
    pub fn dns_domain(self) -> Arc<str> {
        self.text(&Attr::DnsDomain).unwrap_or_else(|| Arc::from(""))
    }

    /// `node.cluster`: the name of the proxy's service, from its bootstrap.
    #[must_use]
    pub fn service_cluster(self) -> Arc<str> {
        self.text(&Attr::ServiceCluster)
            .unwrap_or_else(|| Arc::from(""))
    }

    /// A metadata key: scalars as text, others as JSON text.
    #[must_use]
    pub fn meta(self, key: &str) -> Option<Arc<str>> {
        self.text(&Attr::Meta(Arc::from(key)))
    }

    /// Whether a metadata key is this string (and not another type with the same text).
    #[must_use]
    pub fn has_text(self, key: &str, value: &str) -> bool {
        self.0
            .attribute(&Attr::HasText(Arc::from(key), Arc::from(value)))
            == AttrValue::Bool(true)
    }

    /// Whether a metadata key is `true` (Istio's `StringBool`; `1` and `True` also count).
    #[must_use]
    pub fn meta_bool(self, key: &str) -> bool {
        self.meta(key)
            .and_then(|text| parse_bool(&text))
            .unwrap_or(false)
    }

    /// The whole metadata as JSON text. Splits finely.
    #[must_use]
    pub fn all_meta(self) -> Arc<str> {
        self.text(&Attr::AllMeta).unwrap_or_else(|| Arc::from("{}"))
    }

    /// The cluster from the proxy's metadata, with cluster aliases resolved.
    #[must_use]
    pub fn cluster_id(self) -> ClusterId {
        let cluster = ClusterId::new(self.meta("CLUSTER_ID").unwrap_or_default());
        self.0
            .mesh()
            .settings
            .clusters
            .aliases
            .get(&cluster)
            .cloned()
            .unwrap_or(cluster)
    }

    /// The cluster in `CLUSTER_ID` of the metadata, aliases resolved.
    #[must_use]
    pub fn proxy_cluster(self) -> ClusterRef {
        let cluster_id = self.cluster_id();
        if cluster_id.as_str().is_empty() || cluster_id == self.view().mesh().settings.cluster_id {
            return ClusterRef::Config;
        }
        let is_known = self
            .view()
            .read(FactKey::Clusters)
            .remotes
            .contains_key(&cluster_id);
        if is_known {
            ClusterRef::Remote(cluster_id)
        } else {
            ClusterRef::Unknown
        }
    }

    /// The network from the proxy's metadata.
    #[must_use]
    pub fn network(self) -> NetworkId {
        NetworkId::new(self.meta("NETWORK").unwrap_or_default())
    }

    /// The effective labels. Splits by label set: prefer [`ProxyView::selected_by`].
    #[must_use]
    pub fn labels(self) -> Arc<Labels> {
        self.0.derived(&EffectiveLabels)
    }

    /// The labels as the proxy sent them.
    #[must_use]
    pub fn sent_labels(self) -> Arc<Labels> {
        if let AttrValue::Labels(labels) = self.0.attribute(&Attr::MetaLabels) {
            labels
        } else {
            Arc::default()
        }
    }

    /// Whether a selector selects the proxy; an empty selector always does.
    #[must_use]
    pub fn selected_by(self, selector: &Labels) -> bool {
        selector.is_empty() || *self.0.derived(&SelectedBy(Arc::new(selector.clone())))
    }

    /// The service ports that the proxy's workload serves, in Istio's order.
    #[must_use]
    pub fn targets(self) -> Arc<Vec<ServiceTarget>> {
        self.0.derived(&TargetsOfProxy)
    }

    /// The effective locality.
    #[must_use]
    pub fn locality(self) -> Locality {
        (*self.0.derived(&EffectiveLocality)).clone()
    }

    /// Whether the proxy supports this Envoy extension. Proxies that list none are assumed to be
    /// Istio's build, with all extensions.
    #[must_use]
    pub fn supports(self, extension: &str) -> bool {
        self.0.attribute(&Attr::Supports(Arc::from(extension))) == AttrValue::Bool(true)
    }

    /// Whether its stream is delta xDS.
    #[must_use]
    pub fn uses_delta(self) -> bool {
        self.0.attribute(&Attr::TakesDeltas) == AttrValue::Bool(true)
    }

    /// The verified identity of the stream's client; `None` if unauthenticated. Splits by identity:
    /// prefer [`ProxyView::verified_namespace`] if the namespace is enough.
    #[must_use]
    pub fn identity(self) -> Option<Identity> {
        if let AttrValue::Identity(identity) = self.0.attribute(&Attr::Identity) {
            Some(identity)
        } else {
            None
        }
    }

    /// Whether its scope was learned when its stream started.
    #[must_use]
    pub fn has_learned_scope(self) -> bool {
        self.0.attribute(&Attr::LearnedScope) == AttrValue::Bool(true)
    }

    /// The workload for which it learns: that of the pod with its name, if the pod has the service
    /// account and the namespace that the client has proved. `None` if there is no such pod (yet), or
    /// if it has no controller.
    #[must_use]
    pub fn learned_workload(self) -> Option<LearnedWorkload> {
        (*self.0.derived(&WorkloadOfIdentity)).clone()
    }

    /// The namespace of the verified identity; `None` if unauthenticated.
    #[must_use]
    pub fn verified_namespace(self) -> Option<Namespace> {
        self.text(&Attr::VerifiedNamespace).map(Namespace::new)
    }

    /// An attribute with a text value.
    fn text(self, attr: &Attr) -> Option<Arc<str>> {
        if let AttrValue::Text(text) = self.0.attribute(attr) {
            Some(text)
        } else {
            None
        }
    }

    /// The pod of the proxy, if known.
    pub(super) fn pod(self) -> Option<NamespacedName> {
        (*self.0.derived(&PodOfProxy)).clone()
    }

    /// The underlying view.
    pub(super) fn view(&self) -> &View<'_> {
        self.0
    }

    /// Namespace and name of its pod or WorkloadEntry, from the node id.
    pub(super) fn workload_name(self) -> NamespacedName {
        workload_name_of(&self.name())
    }
}

impl Query for OwnLabels {
    type Value = Labels;

    fn compute(&self, view: &View<'_>) -> Labels {
        let proxy = view.proxy();
        let sent = proxy.sent_labels();
        let registered = if is_test_machine(&sent) {
            None
        } else {
            registered_labels(view)
        };

        let Some(registered) = registered else {
            return (*sent).clone();
        };

        let forever = proxy.meta("STATIC_LABELS");
        let forever =
            forever.and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(&text).ok());
        let Some(forever) = forever.filter(|forever| !forever.is_empty()) else {
            return registered;
        };

        let forever = forever
            .into_iter()
            .map(|(key, value)| (Arc::from(key), Arc::from(value)));
        let mut labels: Labels = forever.collect();
        labels.extend(
            registered
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );

        labels
    }
}

impl ProxyQuery for OwnLabels {}

impl Query for EffectiveLabels {
    type Value = Labels;

    fn compute(&self, view: &View<'_>) -> Labels {
        let proxy = view.proxy();
        let own = view.derived(&OwnLabels);
        let Locality {
            region,
            zone,
            sub_zone,
        } = proxy.locality();

        // A level is only used together with the one above it.
        let locality = match (&*zone, &*sub_zone) {
            ("", _) => region.to_string(),
            (_, "") => format!("{region}/{zone}"),
            _ => format!("{region}/{zone}/{sub_zone}"),
        };
        let cluster = proxy.cluster_id();
        let network = proxy.network();

        let node = proxy.meta("NODE_NAME").unwrap_or_else(|| Arc::from(""));
        let labels = WorkloadLocation {
            cluster: &cluster,
            locality: &locality,
            node: &node,
            network: &network,
        }
        .label(&own);

        if labels == *own {
            (*own).clone()
        } else {
            labels
        }
    }
}

/// The labels of the proxy's workload in the registry: of its pod, else of the endpoint of a
/// ServiceEntry of its namespace at one of its addresses.
fn registered_labels(view: &View<'_>) -> Option<Labels> {
    let proxy = view.proxy();
    let cluster_ref = proxy.proxy_cluster();
    if let Some(workload) = proxy
        .pod()
        .and_then(|pod| view.workload_in(&cluster_ref, &pod).cloned())
    {
        // The node comes from the proxy.
        let others = workload
            .labels()
            .iter()
            .filter(|(label, _)| &***label != NODE_LABEL);
        return Some(
            others
                .map(|(label, value)| (label.clone(), value.clone()))
                .collect(),
        );
    }

    // ServiceEntries are read from the configuration cluster only.
    if cluster_ref != ClusterRef::Config {
        return None;
    }

    let ips = proxy.ips();
    let mut here = ips.iter().filter_map(|ip| view.targets_at(*ip));
    here.find_map(|at| {
        let own = proxy.namespace_among(at.workloads.keys().cloned())?;
        at.workloads
            .get(&own)
            .map(|workload| workload.labels().to_map())
            .filter(|labels| !labels.is_empty())
    })
}

impl ProxyQuery for EffectiveLabels {}

impl Query for SelectedBy {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let labels = view.proxy().labels();
        self.0
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    }
}

impl ProxyQuery for SelectedBy {}

impl Query for WorkloadOfIdentity {
    type Value = Option<LearnedWorkload>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let proxy = view.proxy();
        let identity = proxy.identity()?;
        let pod = proxy.workload_name();
        let workload = view.workload_in(&proxy.proxy_cluster(), &pod)?;

        let is_proved = pod.namespace == identity.namespace
            && workload.service_account == identity.service_account;
        // Without a controller the pod is its own workload, which nothing is kept for: no other pod
        // starts with it, and a pipeline makes many.
        let outlives_pod = workload.name != pod.name;
        (is_proved && outlives_pod).then(|| LearnedWorkload {
            namespace: identity.namespace,
            account: identity.service_account,
            name: workload.name.clone(),
        })
    }
}

impl ProxyQuery for WorkloadOfIdentity {}

impl Query for EffectiveLocality {
    type Value = Locality;

    fn compute(&self, view: &View<'_>) -> Locality {
        if let Some([region, zone, sub_zone]) = locality_of_proxy(&view.derived(&OwnLabels)) {
            return Locality {
                region: Arc::from(region),
                zone: Arc::from(zone),
                sub_zone: Arc::from(sub_zone),
            };
        }
        if let AttrValue::Locality(locality) = view.attribute(&Attr::Locality) {
            locality
        } else {
            Locality::default()
        }
    }
}

impl ProxyQuery for EffectiveLocality {}

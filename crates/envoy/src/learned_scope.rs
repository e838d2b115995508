//! Learned scopes: a sidecar starts with the clusters that its workload has used, and requests the
//! others with the first request for them.
//!
//! ```text
//! first request ─▶ Envoy's filter on_demand ─▶ CDS by name ─▶ the cluster, its endpoints ─▶ forwarded
//!                                                   │
//!                         what the workload has used ◀┘ ─▶ clusters of all its sidecars, from their start on
//! ```
//!
//! - *Only clusters are lazy*, and with them their endpoints. Listeners and routes stay whole: what a
//!   request means (rewrites, weights, retries, policies) does not depend on what was learned. Route
//!   configurations of sidecars are not validated against clusters (`validate_clusters: false`).
//! - *What cannot be lazy*: Envoy requests a cluster on demand only for the route of an HTTP request.
//!   Everything else that names a cluster which is missing fails without a request to the control
//!   plane: TCP connections are closed, mirrors and access logs are dropped without a word, external
//!   authorization and token issuers fail. Therefore whatever a listener of the proxy names stays
//!   (`NamedByListener`): TCP and TLS chains, also those of ports without a declared protocol,
//!   tracers, access logs, policies, extensions and their code. So do mirrors
//!   (`MirroredHosts`), services of extension providers and token issuers, what EnvoyFilters name,
//!   wildcard hosts, which share the cache of a filter, and clusters that are not a service's.
//! - *What should not be lazy*: hosts that Envoy resolves, or to which it originates TLS with files or
//!   secrets. While it waits for these it requests no other cluster (`clusters::waits_for_others`).
//! - *Which proxies are served whole*: those with EnvoyFilters that do more to outbound listeners than
//!   merge fields, and those whose workload has used more hosts than [`MAX_HOSTS`]; both with a remark.
//!   About others the stream decides when it starts (`navarch_xds`): by the version of Envoy, its
//!   protocol, its identity and the form of its routes.
//! - *Who can widen a scope*: a client requests by name only what it would get without a learned
//!   scope, as resources do not depend on what was learned. It widens the scope of its own workload
//!   only: the namespace and service account that it has proved, and the owner of the pod with its
//!   name, if that pod has this account. Pods of one account can thus speak for each other's
//!   workloads: nothing that they can prove distinguishes them. `WORKLOAD_NAME` is not read.
//! - *When the label is put or removed*: removed, all clusters come. Put, it applies to streams that
//!   start later, whose Envoys keep the clusters that they have: see `navarch_xds`.

mod services;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::services::{ClustersOfServices, may_be_lazy};
use crate::named_clusters::NamedClusters;
use crate::names::{ClusterName, OutboundCluster};
use crate::{clusters, listeners, patches, sidecar_scope, traffic_extension, virtual_service};
use navarch_api::learned_scope::{LABEL, LearnedHosts, LearnedWorkload, MAX_HOSTS, ScopeForm};
use navarch_api::names::{Hostname, ResourceName};
use navarch_api::object::NamespacedName;
use navarch_push::learned::{ScopedClusters, has_too_many};
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// Whether the labels of the proxy's pod, else of its namespace, select a learned scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsSelected;

/// The clusters that one listener names, as it is sent; `None` if it could not be built.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamedByListener {
    listener: ResourceName,
}

/// The clusters that are named by more than routes; `None` if that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NamedByProxy;

/// The hosts that one VirtualService mirrors requests to, and those that these are aliases of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MirrorsOf {
    name: NamespacedName,
}

/// The hosts that requests of the proxy are mirrored to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MirroredHosts;

/// The visible hosts that extension providers, token issuers and annotations of EnvoyFilters name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HostsOfExtensions;

/// The scope of a proxy of which some clusters are lazy.
struct LearnedScope {
    /// Clusters that more than routes name.
    named: Arc<Option<NamedClusters>>,
    mirrored: Arc<BTreeSet<Hostname>>,
    of_extensions: Arc<BTreeSet<Hostname>>,
    /// Its workload, if it is known.
    workload: Option<LearnedWorkload>,
    /// The hosts that the workload has used.
    used: Arc<LearnedHosts>,
}

/// The names of the clusters that the proxy gets without a request.
pub(super) fn cluster_names(view: &View<'_>) -> Vec<ResourceName> {
    match LearnedScope::of(view) {
        Some(scope) => scope.cluster_names(view),
        None => clusters::names(view),
    }
}

/// What the proxy teaches its workload by requesting these clusters: the hosts of those that exist,
/// and that it did not have.
pub(super) fn learned(
    requested: &BTreeSet<ResourceName>,
    view: &View<'_>,
) -> Option<(LearnedWorkload, LearnedHosts)> {
    let scope = LearnedScope::of(view)?;
    let hosts: LearnedHosts = requested
        .iter()
        .filter(|name| scope.is_lazy(name, view) && clusters::has_outbound(view, name))
        .filter_map(|name| OutboundCluster::parse(name.as_str()))
        .map(|cluster| cluster.host)
        .take(MAX_HOSTS + 1)
        .collect();
    if hosts.is_empty() {
        return None;
    }
    Some((scope.workload?, hosts))
}

/// How many clusters the proxy has that has requested these by name, by reason; `None` if none of its
/// clusters is lazy.
pub(super) fn scoped_clusters(
    requested: &BTreeSet<ResourceName>,
    view: &View<'_>,
) -> Option<ScopedClusters> {
    let scope = LearnedScope::of(view)?;
    let at_start: BTreeSet<ResourceName> = scope.cluster_names(view).into_iter().collect();
    let used = at_start
        .iter()
        .filter(|name| scope.is_used_alone(name, view));
    let used = used.count();
    let others = requested.difference(&at_start);
    let requested = others.filter(|name| clusters::has_outbound(view, name));

    Some(ScopedClusters {
        all: clusters::names(view).len(),
        fixed: at_start.len() - used,
        used,
        requested: requested.count(),
    })
}

impl LearnedScope {
    /// That of the view's proxy; `None` if no cluster of it is lazy.
    fn of(view: &View<'_>) -> Option<Self> {
        let proxy = view.proxy();
        if !proxy.has_learned_scope() || !*view.derived(&IsSelected) {
            return None;
        }

        if let Some(patch) = patches::outbound_filters_changed_by(view) {
            view.remark(format!(
                "{LABEL}: learned has no effect on the sidecars that {patch} applies to: it changes \
                 filters of outbound listeners, which request clusters on demand"
            ));
            return None;
        }

        let workload = proxy.learned_workload();
        let used = workload
            .as_ref()
            .and_then(|workload| view.learned_hosts(workload).cloned())
            .unwrap_or_default();
        if let Some(workload) = workload.as_ref().filter(|_| has_too_many(&used)) {
            view.remark(format!(
                "{LABEL}: learned has no effect on {workload} any more: it has used more than \
                 {MAX_HOSTS} hosts, and its sidecars get all clusters"
            ));
            return None;
        }

        let named = view.get(&NamedByProxy);
        if named.is_none() {
            return None;
        }
        Some(Self {
            named,
            mirrored: view.get(&MirroredHosts),
            of_extensions: view.get(&HostsOfExtensions),
            workload,
            used,
        })
    }

    /// The names of the clusters that the proxy gets without a request.
    fn cluster_names(&self, view: &View<'_>) -> Vec<ResourceName> {
        let Some(mut names) = clusters::names_beside_services(view) else {
            // Patches add, remove or rename clusters.
            let mut names = clusters::names(view);
            names.retain(|name| !self.is_lazy(name, view));
            return names;
        };

        let services = view.get(&ClustersOfServices);
        names.extend(services.fixed.iter().cloned());
        let mut wanted = BTreeSet::new();
        for hosts in [&self.used, &self.mirrored, &self.of_extensions] {
            wanted.extend(hosts.iter().flat_map(|host| services.of_host(host)));
        }
        for text in self.named.iter().flat_map(NamedClusters::texts) {
            wanted.extend(services.begun_by(text));
        }
        names.extend(wanted.into_iter().cloned());
        names
    }

    /// Whether the proxy gets a cluster on demand only.
    fn is_lazy(&self, name: &ResourceName, view: &View<'_>) -> bool {
        let Some(ClusterName::Outbound(cluster)) = ClusterName::parse(name.as_str()) else {
            return false;
        };
        let host = &cluster.host;
        let is_wanted = self.is_fixed(name, host) || self.used.contains(host);
        !is_wanted && may_be_lazy(view, host)
    }

    /// Whether the proxy has a cluster at its start for no other reason than that its workload has used
    /// the host.
    fn is_used_alone(&self, name: &ResourceName, view: &View<'_>) -> bool {
        let Some(ClusterName::Outbound(cluster)) = ClusterName::parse(name.as_str()) else {
            return false;
        };
        let host = &cluster.host;
        self.used.contains(host) && !self.is_fixed(name, host) && may_be_lazy(view, host)
    }

    /// Whether more than routes needs a cluster of this host.
    fn is_fixed(&self, name: &ResourceName, host: &Hostname) -> bool {
        let named = self.named.as_ref().as_ref();
        named.is_none_or(|named| named.contains(name.as_str()))
            || self.mirrored.contains(host)
            || self.of_extensions.contains(host)
    }
}

impl Query for IsSelected {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let proxy = view.proxy();
        let own = proxy.labels().get(LABEL).cloned();
        let value = own.or_else(|| {
            let labels = view.namespace_labels(&proxy.namespace())?;
            labels.get(LABEL).cloned()
        });
        value.and_then(|value| ScopeForm::parse(&value)) == Some(ScopeForm::Learned)
    }
}

impl ProxyQuery for IsSelected {}

impl Query for NamedByListener {
    type Value = Option<NamedClusters>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let listener = listeners::resource(&self.listener, view).unwrap_or_default();
        Some(NamedClusters::in_bytes(&listener))
    }

    fn fallback(&self, previous: Option<&Self::Value>) -> Option<Self::Value> {
        Some(previous.cloned().flatten())
    }
}

impl Query for NamedByProxy {
    type Value = Option<NamedClusters>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut named = patches::named_clusters(view);
        for listener in listeners::names(view) {
            let of_listener = view.get(&NamedByListener { listener });
            named.extend(of_listener.as_ref().as_ref()?);
        }
        for module in traffic_extension::module_names(view) {
            let module = traffic_extension::resource(&module, view).unwrap_or_default();
            named.extend(&NamedClusters::in_bytes(&module));
        }
        Some(named)
    }
}

impl Query for MirrorsOf {
    type Value = BTreeSet<Hostname>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut hosts = virtual_service::mirrored_hosts(view, &self.name);
        let aliased: Vec<Hostname> = hosts
            .iter()
            .filter_map(|host| sidecar_scope::host_service(view, host))
            .filter(|service| !service.kubernetes.external_name.is_empty())
            .map(|service| Hostname::new(&service.kubernetes.external_name))
            .collect();
        hosts.extend(aliased);
        hosts
    }
}

impl Query for MirroredHosts {
    type Value = BTreeSet<Hostname>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut hosts = BTreeSet::new();
        for egress in 0..sidecar_scope::egress_listeners(view).len() {
            for name in sidecar_scope::listener_virtual_services(view, egress).iter() {
                let mirrors = view.get(&MirrorsOf { name: name.clone() });
                hosts.extend(mirrors.iter().cloned());
            }
        }
        hosts
    }
}

impl Query for HostsOfExtensions {
    type Value = BTreeSet<Hostname>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let named = clusters::named_by_extensions(view);
        sidecar_scope::visible_services(view)
            .iter()
            .filter(|service| named.contains(service))
            .map(|service| service.hostname.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests;

//! Clusters after EnvoyFilter patches.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_proto::envoy::config::cluster::v3::Cluster;

use super::http::upstream_version;
use super::inbound;
use super::metadata::correct_alpn;
use crate::names::ClusterName;
use crate::patches::clusters::{added_clusters, names_change, patch_cluster, patched_name};
use crate::patches::{PatchClass, Patches, patches};
use navarch_api::istio::PatchContext;
use navarch_api::names::{Hostname, ResourceName};
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The origins of the clusters of a proxy, by name, if patches add, remove or rename clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Origins;

/// The origin of a cluster.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    /// Generated under this name, which is its own unless a patch renames it.
    Generated(ResourceName),
    /// Added by a patch.
    Added(Box<Cluster>),
}

/// The names of the clusters; `None` if they are the generated ones.
pub(super) fn names(view: &View<'_>) -> Option<Vec<ResourceName>> {
    has_other_names(view).then(|| view.get(&Origins).keys().cloned().collect())
}

/// Whether patches add, remove or rename clusters.
pub(super) fn has_other_names(view: &View<'_>) -> bool {
    patches(view, PatchClass::Clusters).is_some_and(|patches| names_change(&patches))
}

pub(super) fn build(view: &View<'_>, name: &ResourceName) -> Option<Cluster> {
    let Some(patches) = patches(view, PatchClass::Clusters) else {
        return super::build(name, view);
    };
    if !names_change(&patches) {
        return patched(view, &patches, name);
    }
    match view.get(&Origins).get(name)? {
        Origin::Generated(name) => patched(view, &patches, name),
        Origin::Added(cluster) => Some((**cluster).clone()),
    }
}

/// A generated cluster with its patches.
fn patched(view: &View<'_>, patches: &Patches, name: &ResourceName) -> Option<Cluster> {
    let cluster = super::build(name, view)?;
    match context(view, name) {
        Some(context) => {
            let mut cluster = patch_cluster(view, patches, context, &hosts(view, name), cluster)?;
            correct_version(&mut cluster);
            Some(cluster)
        }
        None => Some(cluster),
    }
}

/// A patch may change the HTTP version, on which the ALPN protocols depend.
fn correct_version(cluster: &mut Cluster) {
    if let Some(mut metadata) = cluster.metadata.take() {
        correct_alpn(&mut metadata, upstream_version(cluster));
        cluster.metadata = Some(metadata);
    }
}

/// The patch context of a generated cluster; `None` if it is for the proxy itself, and not patched.
fn context(view: &View<'_>, name: &ResourceName) -> Option<PatchContext> {
    let inbound = match ClusterName::parse(name.as_str())? {
        ClusterName::Inbound(_) | ClusterName::InboundPassthrough => true,
        ClusterName::Outbound(_)
        | ClusterName::SniRouted(_)
        | ClusterName::BlackHole
        | ClusterName::Passthrough
        | ClusterName::AllowAnyDynamicDns => false,
        ClusterName::ExternalSds | ClusterName::InboundVip(_) | ClusterName::Tunnel(_) => {
            return None;
        }
    };
    Some(match (view.proxy().kind(), inbound) {
        (ProxyKind::Router, _) => PatchContext::Gateway,
        (_, true) => PatchContext::SidecarInbound,
        (_, false) => PatchContext::SidecarOutbound,
    })
}

/// The hosts of the services of an inbound cluster, whose name does not contain them.
fn hosts(view: &View<'_>, name: &ResourceName) -> Vec<Hostname> {
    match ClusterName::parse(name.as_str()) {
        Some(ClusterName::Inbound(port)) => inbound::hosts(view, port),
        Some(_) | None => Vec::new(),
    }
}

impl Query for Origins {
    type Value = BTreeMap<ResourceName, Origin>;

    /// If patches result in two clusters of the same name, generated ones take precedence, then
    /// those that are added first.
    fn compute(&self, view: &View<'_>) -> Self::Value {
        let patches = patches(view, PatchClass::Clusters).unwrap_or_else(|| Arc::new(Vec::new()));
        let mut origins = BTreeMap::new();

        for name in super::generated_names(view) {
            let now = match context(view, &name) {
                Some(context) => {
                    patched_name(&patches, context, &hosts(view, &name), name.as_str())
                }
                None => Some(name.as_str().to_owned()),
            };
            if let Some(now) = now {
                origins
                    .entry(ResourceName::new(now))
                    .or_insert(Origin::Generated(name));
            }
        }

        let contexts: &[PatchContext] = match view.proxy().kind() {
            ProxyKind::Sidecar => &[PatchContext::SidecarOutbound, PatchContext::SidecarInbound],
            ProxyKind::Router => &[PatchContext::Gateway],
            ProxyKind::Waypoint => &[PatchContext::SidecarInbound],
            ProxyKind::Ztunnel | ProxyKind::AgentGateway => &[],
        };

        for cluster in contexts
            .iter()
            .flat_map(|context| added_clusters(view, &patches, *context))
        {
            let name = ResourceName::new(&cluster.name);
            origins
                .entry(name)
                .or_insert_with(|| Origin::Added(Box::new(cluster)));
        }

        origins
    }
}

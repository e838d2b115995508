//! Which kinds and objects of an API server are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::decode::served_versions;
use navarch_api::names::Namespace;
use navarch_api::object::{Kind, ObjectMeta};
use navarch_api::revision::{self, REVISION_LABEL, Revision};

/// Names of tags.
pub(crate) type Tags = Arc<BTreeSet<String>>;

/// A kind that is read, as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadKind {
    /// The `kind` of its objects.
    pub kind: Kind,
    /// Its API group; empty for the core group.
    pub group: &'static str,
    /// Its resource, such as `virtualservices`.
    pub resource: String,
    /// The supported versions, the best first.
    pub versions: &'static [&'static str],
    /// Whether it is defined by a CustomResourceDefinition, and so may be missing.
    pub is_defined: bool,
    /// The namespace in which it is read; `None` for all namespaces, and for cluster-scoped kinds.
    pub namespace: Option<Namespace>,
}

/// Which kinds are read of an API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadKinds {
    /// All.
    #[default]
    All,
    /// Kubernetes' own kinds: the configuration of the mesh comes from another source.
    Native,
    /// The configuration of the mesh, and what it refers to: no services, endpoints and workloads
    /// of Kubernetes.
    Configuration,
    /// The kinds that istiod reads in remote clusters: services, endpoints and workloads, and what
    /// proxies get from their own cluster. Kinds that configure the mesh are not among them.
    Remote(RemoteKinds),
}

/// Which of the optional kinds are read in a remote cluster: not every cluster has them or permits
/// reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteKinds {
    /// `PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER`: Secrets, which gateways in that cluster get.
    pub secrets: bool,
    /// `PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY`: WorkloadEntries, as endpoints of the mesh's
    /// services.
    pub workload_entries: bool,
    /// Gateways of the Gateway API.
    pub gateways: bool,
}

/// Which objects are read, from flags and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesScope {
    /// Depends on the purpose of the API server: everything, services, configuration, or a remote
    /// cluster.
    pub kinds: ReadKinds,
    /// `ISTIO_WATCH_NAMESPACE`: only objects of this namespace are read; empty for all.
    /// Cluster-scoped kinds are always read.
    pub namespace: Namespace,
    /// `--revision`: mesh configuration with another revision is not read; empty reads all.
    pub revision: String,
    /// The namespace of the control plane, where Services may declare tags.
    pub system_namespace: Namespace,
    /// `PILOT_IGNORE_RESOURCES`: resources that are not read, such as
    /// `sidecars.networking.istio.io` or `*.istio.io`, separated by commas.
    pub ignored: String,
    /// `PILOT_INCLUDE_RESOURCES`: exceptions from `ignored`, which are read.
    pub included: String,
    /// Whether exports and imports of services are read (`ENABLE_MCS_SERVICE_DISCOVERY`).
    pub mcs: bool,
}

impl ReadKinds {
    /// Whether a kind is included.
    fn hold(self, kind: Kind) -> bool {
        let exports = matches!(kind, Kind::ServiceExport | Kind::ServiceImport);
        match self {
            Self::All => true,
            Self::Native => !is_defined(kind) || exports,
            Self::Configuration => {
                is_defined(kind) && !exports || !is_defined(kind) && !is_of_registry(kind)
            }
            Self::Remote(kinds) => kinds.hold(kind),
        }
    }
}

impl RemoteKinds {
    /// Whether a kind is read.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only a few kinds are read in addition to those of Kubernetes"
    )]
    fn hold(self, kind: Kind) -> bool {
        match kind {
            Kind::Ingress | Kind::IngressClass => false,
            Kind::Secret => self.secrets,
            Kind::WorkloadEntry => self.workload_entries,
            Kind::KubernetesGateway => self.gateways,
            Kind::ServiceExport | Kind::ServiceImport => true,
            _ => !is_defined(kind),
        }
    }
}

impl KubernetesScope {
    /// The kinds that are read, as the API server serves them.
    #[must_use]
    pub fn read_kinds(&self) -> Vec<ReadKind> {
        let one = |kind: Kind| ReadKind {
            kind,
            group: kind.group(),
            resource: plural(kind),
            versions: versions(kind),
            is_defined: is_defined(kind),
            namespace: (!self.namespace.is_empty() && !kind.is_cluster_scoped())
                .then(|| self.namespace.clone()),
        };
        self.kinds().map(one).collect()
    }

    /// The kinds that are read.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        // ServiceAccounts are not used, and istiod's permissions do not include them.
        let kinds = Kind::ALL
            .into_iter()
            .filter(|kind| *kind != Kind::ServiceAccount);
        kinds.filter(move |kind| {
            let exports = matches!(kind, Kind::ServiceExport | Kind::ServiceImport);
            let is_wanted = !is_defined(*kind) || self.reads(&definition(*kind));
            is_wanted && (self.mcs || !exports) && self.kinds.hold(*kind)
        })
    }

    /// Whether a resource that is defined at run time, such as `sidecars.networking.istio.io`, is
    /// read.
    fn reads(&self, definition: &str) -> bool {
        !matches(&self.ignored, definition) || matches(&self.included, definition)
    }

    /// Whether an object belongs to this revision of the control plane, or to all revisions.
    pub(crate) fn is_ours(&self, kind: Kind, meta: &ObjectMeta, tags: &BTreeSet<String>) -> bool {
        let revision = Revision {
            name: &self.revision,
            tags,
        };
        let label = meta.labels.get(REVISION_LABEL).map(|label| &**label);
        revision.reads(kind.group(), kind.as_str(), label)
    }

    /// Whether the source is in sync without a kind that the server does not show: not every remote
    /// cluster permits reading all kinds.
    pub(super) fn is_optional(&self, kind: Kind) -> bool {
        let remote = matches!(self.kinds, ReadKinds::Remote(_));
        remote && (is_defined(kind) || matches!(kind, Kind::Secret | Kind::ConfigMap))
    }

    /// The field selector of a kind; empty for all objects. Of the ConfigMaps of remote clusters,
    /// only the one with the mesh config is read.
    pub(super) fn selector(&self, kind: Kind) -> String {
        if kind != Kind::ConfigMap || !matches!(self.kinds, ReadKinds::Remote(_)) {
            return field_selector(kind).to_owned();
        }
        match self.revision.as_str() {
            "" | "default" => "metadata.name=istio".to_owned(),
            revision => format!("metadata.name=istio-{revision}"),
        }
    }

    pub(super) fn path(&self, kind: Kind, version: &str) -> String {
        let group = match kind.group() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        if kind == Kind::ConfigMap && matches!(self.kinds, ReadKinds::Remote(_)) {
            return format!(
                "{group}/namespaces/{}/{}",
                self.system_namespace,
                plural(kind)
            );
        }
        if self.namespace.is_empty() || kind.is_cluster_scoped() {
            format!("{group}/{}", plural(kind))
        } else {
            format!("{group}/namespaces/{}/{}", self.namespace, plural(kind))
        }
    }
}

/// Whether a kind declares services, endpoints and workloads of Kubernetes, or how they are reached
/// from outside.
fn is_of_registry(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Node
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Pod
            | Kind::Ingress
            | Kind::IngressClass
    )
}

/// Whether a list of resources contains one. An item that starts with `*.` matches the names that
/// end in its rest.
fn matches(list: &str, definition: &str) -> bool {
    let is_it = |item: &str| match item.strip_prefix("*.") {
        Some(end) => definition.ends_with(end),
        None => definition == item,
    };
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .any(is_it)
}

/// Whether a kind is not one of Kubernetes' own: it can be missing, added and removed.
pub(super) fn is_defined(kind: Kind) -> bool {
    revision::is_defined(kind.group())
}

/// The name of the definition of a kind, such as `sidecars.networking.istio.io`.
pub(super) fn definition(kind: Kind) -> String {
    format!("{}.{}", plural(kind), kind.group())
}

/// The supported versions of a kind, the best first.
pub(super) fn versions(kind: Kind) -> &'static [&'static str] {
    served_versions(kind)
}

/// The field selector that excludes the objects of a kind that are never needed; empty if all may
/// be.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a few kinds have many unused objects"
)]
pub(super) fn field_selector(kind: Kind) -> &'static str {
    match kind {
        // Failed pods get no traffic, and can be many.
        Kind::Pod => "status.phase!=Failed",
        // Helm releases and tokens are most of the Secrets in a cluster, and never certificates.
        Kind::Secret => "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token",
        _ => "",
    }
}

/// The plural of a kind, as in paths.
pub(super) fn plural(kind: Kind) -> String {
    let lower = kind.as_str().to_lowercase();
    match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if lower.ends_with('s') => format!("{lower}es"),
        _ => format!("{lower}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn paths_are_kubernetes_own() {
        let scope = KubernetesScope::default();
        assert_eq!(scope.path(Kind::Pod, "v1"), "/api/v1/pods");
        assert_eq!(
            scope.path(Kind::EndpointSlice, "v1"),
            "/apis/discovery.k8s.io/v1/endpointslices"
        );
        assert_eq!(
            scope.path(Kind::ServiceEntry, "v1beta1"),
            "/apis/networking.istio.io/v1beta1/serviceentries"
        );

        assert_eq!(plural(Kind::Gateway), "gateways");
        let scope = KubernetesScope {
            namespace: Namespace::new("shop"),
            ..scope
        };
        assert_eq!(
            scope.path(Kind::Gateway, "v1"),
            "/apis/networking.istio.io/v1/namespaces/shop/gateways"
        );

        assert_eq!(scope.path(Kind::Node, "v1"), "/api/v1/nodes");
    }

    #[test]
    fn ignored_resources_are_not_read_unless_included() {
        let scope = |ignored: &str, included: &str| KubernetesScope {
            ignored: ignored.to_owned(),
            included: included.to_owned(),
            ..KubernetesScope::default()
        };
        let reads = |scope: KubernetesScope, kind| scope.kinds().any(|read| read == kind);
        assert!(!reads(scope("*.istio.io", ""), Kind::Sidecar));
        assert!(reads(
            scope("*.istio.io", "sidecars.networking.istio.io"),
            Kind::Sidecar
        ));

        assert!(reads(
            scope("gateways.networking.istio.io, x", ""),
            Kind::Sidecar
        ));
        assert!(
            reads(scope("*.istio.io, *.k8s.io, pods", ""), Kind::Pod),
            "only what is defined at run time"
        );

        let without_services = || KubernetesScope {
            kinds: ReadKinds::Configuration,
            ..KubernetesScope::default()
        };
        assert!(
            !reads(without_services(), Kind::Service)
                && reads(without_services(), Kind::ServiceEntry)
        );
    }

    #[test]
    fn objects_of_another_revision_are_not_ours() {
        let mut meta = ObjectMeta::default();
        let canary = KubernetesScope {
            revision: "canary".to_owned(),
            ..KubernetesScope::default()
        };
        let none = BTreeSet::new();
        assert!(canary.is_ours(Kind::Sidecar, &meta, &none));
        meta.labels
            .insert(Arc::from(REVISION_LABEL), Arc::from("default"));

        assert!(!canary.is_ours(Kind::Sidecar, &meta, &none));
        assert!(
            canary.is_ours(
                Kind::Sidecar,
                &meta,
                &BTreeSet::from(["default".to_owned()])
            ),
            "its tag"
        );

        assert!(
            canary.is_ours(Kind::Namespace, &meta, &none),
            "a namespace's label is about injection"
        );
        assert!(
            canary.is_ours(Kind::KubernetesGateway, &meta, &none),
            "waypoints of all revisions take part in the mesh"
        );

        assert!(
            !canary.is_ours(Kind::GatewayClass, &meta, &none)
                && !canary.is_ours(Kind::HttpRoute, &meta, &none)
        );
        assert!(
            KubernetesScope::default().is_ours(Kind::Sidecar, &meta, &none),
            "without a revision all are read"
        );
    }
}

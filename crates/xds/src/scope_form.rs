//! The form of a sidecar's scope: whole, or learned, with other clusters on demand. It is settled
//! when a stream starts ([`Proxy::has_learned_scope`]).
//!
//! - *Opt-in*: the label `navarch.io/scope: learned` of the pod, else of its namespace.
//! - *Who*: sidecars on delta streams with a verified identity, as what is learned belongs to an
//!   identity; Envoy from 1.40 on, which lists the filter. Earlier ones lack fixes: up to 1.37 the
//!   filter starts the stream anew after it has a cluster, which runs all filters twice and can crash
//!   Envoy if the client resets the stream meanwhile (envoyproxy/envoy #43163); before
//!   #45084 later filters do not see the cluster of that request, which the ALPN filter needs.
//! - *Not with virtual hosts that are sent one by one*: with these the same filter requests the host
//!   of a request for which there is no route, too, and the request waits for an answer that never
//!   comes. A proxy with the label therefore gets whole tables, whatever their size, unless virtual
//!   hosts one by one are set for it or for all, or its Envoy has them already.
//! - *Why it is settled at the start*: while Envoy replaces a listener, open connections keep their
//!   old filters until they are drained. If the label is put while the proxy runs, clusters would
//!   leave under connections without the filter. Removed, it has an effect at once: all clusters
//!   come, and the filter stays.
//! - *A new stream takes no cluster from an Envoy*: one that comes back keeps those in its
//!   `initial_resource_versions` ([`Bounds::keeps_clusters`]), as if it requested them by name, also
//!   at another replica, and if the label was put meanwhile: such an Envoy has less to hold only once
//!   it starts again. It gets the filter with that stream; connections that are older do not reach
//!   services that are added from then on, until Envoy has drained them.
//! - *The same on its stream* (`Session::keep_clusters`): if a cluster is no longer sent without a
//!   request, as when an EnvoyFilter goes that needed all of them, or an operator makes the workload
//!   forget, the session requests it by name for the Envoy that has it. Otherwise all Envoys of many
//!   workloads would request what they use at one moment, and those that wait for more than 5 seconds
//!   would fail requests.
//! - *A name that does not exist* is reported as removed at once, and nothing is learned from it.
//!   Since 1.38 Envoy keeps one subscription for each name and does not request it again
//!   (envoyproxy/envoy #47201); the session keeps it, too, and sends the cluster once there is one.
//!
//! [`Bounds::keeps_clusters`]: crate::session::Bounds::keeps_clusters

use navarch_api::learned_scope::{LABEL, ScopeForm};
use navarch_api::object::NamespacedName;
use navarch_api::settings::Settings;
use navarch_net::log_limit::LogLimit;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_push::context::PushContext;
use navarch_push::proxy::{Proxy, ProxyKind};

use crate::{node, route_form};

/// The extension that requests clusters.
const EXTENSION: &str = "envoy.filters.http.on_demand";
/// The first version of Envoy (major, minor) with a learned scope.
const MIN_ENVOY: (u32, u32) = (1, 40);

/// The longest value of a label.
const MAX_VALUE_CHARS: usize = 63;

/// Why a sidecar with the label is served whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Unfit {
    #[error("its stream is not delta xDS")]
    StateOfTheWorld,
    #[error("its client has no verified identity")]
    NoIdentity,
    #[error("its Envoy is older than {}.{}", MIN_ENVOY.0, MIN_ENVOY.1)]
    OldEnvoy,
    #[error("its Envoy does not list the extension {EXTENSION}")]
    NoExtension,
    #[error("its virtual hosts are sent one by one")]
    FineGrainedRoutes,
}

/// Whether Envoy, by its version, has a learned scope.
pub(crate) fn takes_clusters(node: &Node) -> bool {
    node::envoy_version(node).is_some_and(|version| version >= MIN_ENVOY)
}

/// Whether the label selects a learned scope for a proxy that can have one, as far as its routes
/// allow it ([`settle`]). The labels are known: no stream starts before all objects are read.
pub(crate) fn is_wanted(proxy: &Proxy, takes_clusters: bool, context: &PushContext) -> bool {
    let is_envoy = proxy.meta("GENERATOR").is_none_or(|name| name.is_empty());
    if proxy.kind != ProxyKind::Sidecar || !is_envoy {
        return false;
    }
    let Some(value) = label(proxy, context) else {
        return false;
    };

    match (ScopeForm::parse(&value), unfit(proxy, takes_clusters)) {
        (None, _) => {
            let known = format!("the value {value:?} is not known; there are learned and whole");
            warn(proxy, &known);
            false
        }
        (Some(ScopeForm::Learned), Some(reason)) => {
            warn(proxy, &reason.to_string());
            false
        }
        (Some(ScopeForm::Learned), None) => true,
        (Some(ScopeForm::Whole), _) => false,
    }
}

/// The proxy, whose route form is settled, with the form of its scope.
pub(crate) fn settle(proxy: Proxy, is_wanted: bool, settings: &Settings) -> Proxy {
    let is_excluded = is_wanted && route_form::is_one_by_one(settings, &proxy);
    if is_excluded {
        warn(&proxy, &Unfit::FineGrainedRoutes.to_string());
    }
    Proxy {
        has_learned_scope: is_wanted && !is_excluded,
        ..proxy
    }
}

/// Why a sidecar cannot have a learned scope, whatever its routes; `None` if it can.
fn unfit(proxy: &Proxy, takes_clusters: bool) -> Option<Unfit> {
    let lists = proxy.extensions.as_ref();
    if !proxy.uses_delta {
        Some(Unfit::StateOfTheWorld)
    } else if proxy.identity.is_none() {
        Some(Unfit::NoIdentity)
    } else if !takes_clusters {
        Some(Unfit::OldEnvoy)
    } else if !lists.is_some_and(|extensions| extensions.contains(EXTENSION)) {
        Some(Unfit::NoExtension)
    } else {
        None
    }
}

/// The value of the label of the proxy's pod, else of its namespace. Until the pod is read its
/// labels are those that the proxy has sent.
fn label(proxy: &Proxy, context: &PushContext) -> Option<String> {
    let own = match context.workload_of(proxy) {
        Some(workload) => workload.own_labels.get(LABEL),
        None => proxy.labels.get(LABEL),
    };

    let of_namespace = || {
        let name = NamespacedName::new("", proxy.namespace.as_str());
        let object = context.objects.namespaces.get(&name)?;
        object.meta.labels.get(LABEL)
    };
    // What a proxy sends is not bounded as labels of objects are.
    let value = own.or_else(of_namespace)?;
    Some(value.chars().take(MAX_VALUE_CHARS).collect())
}

/// Logs why the label has no effect on a proxy.
fn warn(proxy: &Proxy, reason: &str) {
    static LIMIT: LogLimit = LogLimit::new();
    if let Some(suppressed) = LIMIT.admit() {
        tracing::warn!(
            proxy = &*proxy.name,
            reason,
            suppressed,
            "the label navarch.io/scope has no effect on a sidecar, which gets all clusters"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use navarch_api::identity::Identity;
    use navarch_api::names::ClusterId;
    use navarch_api::testing::objects;
    use navarch_push::mesh_state::{Change, RemoteChange};
    use navarch_push::proxy::Locality;
    use navarch_push::testing::{NoResources, changes};
    use navarch_push::worker::{self, Debounce, PushHandle};
    use serde_json::{Value, json};

    use super::*;

    fn proxy(kind: &str, metadata: Value) -> Proxy {
        let id = format!("{kind}~10.1.2.3~web-1.shop~shop.svc.cluster.local");
        let mut proxy = Proxy::parse(&id, metadata, Locality::default()).unwrap();
        proxy.uses_delta = true;
        proxy.identity = Identity::parse("spiffe://cluster.local/ns/shop/sa/web").ok();
        proxy.extensions = Some(Arc::new(BTreeSet::from([Arc::from(EXTENSION)])));
        proxy
    }

    fn labelled(value: &str) -> Proxy {
        proxy("sidecar", json!({ "LABELS": { LABEL: value } }))
    }

    /// A push thread with these changes in force.
    async fn push_of(changes: Vec<Change>, settings: Settings) -> PushHandle {
        let (push, _) =
            worker::start(settings, Debounce::default(), Arc::new(NoResources)).unwrap();
        push.change(changes).await.unwrap();
        push.full_sync().await.unwrap();
        push.wait_synced().await.unwrap();
        push
    }

    /// The same with objects.
    async fn push(yaml: &str, settings: Settings) -> PushHandle {
        let changes = match yaml {
            "" => Vec::new(),
            yaml => changes(yaml),
        };
        push_of(changes, settings).await
    }

    fn is_learned(proxy: Proxy, takes_clusters: bool, push: &PushHandle) -> bool {
        let context = push.context();
        let is_wanted = is_wanted(&proxy, takes_clusters, &context);
        settle(proxy, is_wanted, &context.mesh.settings).has_learned_scope
    }

    #[tokio::test]
    async fn only_sidecars_that_are_known_to_request_clusters_have_a_learned_scope() {
        let push = push("", Settings::default()).await;
        assert!(is_learned(labelled("learned"), true, &push));
        assert!(!is_learned(labelled("learned"), false, &push));

        let on_plaintext = Proxy {
            identity: None,
            ..labelled("learned")
        };
        let in_whole_states = Proxy {
            uses_delta: false,
            ..labelled("learned")
        };
        let without_list = Proxy {
            extensions: None,
            ..labelled("learned")
        };
        let without_filter = Proxy {
            extensions: Some(Arc::default()),
            ..labelled("learned")
        };
        let labels = json!({ LABEL: "learned" });
        for other in [
            on_plaintext,
            in_whole_states,
            without_list,
            without_filter,
            labelled("whole"),
            labelled("lerned"),
            labelled(""),
            proxy("sidecar", json!({})),
            proxy("router", json!({ "LABELS": labels })),
            proxy("sidecar", json!({ "LABELS": labels, "GENERATOR": "grpc" })),
            proxy(
                "sidecar",
                json!({ "LABELS": labels, "FINE_GRAINED_ROUTES": true }),
            ),
        ] {
            let shown = format!("{other:?}");
            assert!(!is_learned(other, true, &push), "{shown}");
        }
    }

    #[tokio::test]
    async fn virtual_hosts_one_by_one_exclude_a_learned_scope() {
        let settings = Settings {
            fine_grained_routes: true,
            ..Settings::default()
        };
        let push = push("", settings).await;
        assert!(!is_learned(labelled("learned"), true, &push));
    }

    #[tokio::test]
    async fn the_label_is_that_of_the_pod_else_of_its_namespace() {
        let namespace = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {navarch.io/scope: learned}}
";
        let of_namespace = push(namespace, Settings::default()).await;
        let unlabelled = || proxy("sidecar", json!({}));
        assert!(is_learned(unlabelled(), true, &of_namespace));
        assert!(!is_learned(labelled("whole"), true, &of_namespace));

        // The labels of the pod in the registry precede those that the proxy sends.
        let pod = "
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {navarch.io/scope: whole}}
spec: {serviceAccountName: web}
status: {phase: Running, podIP: 10.1.2.3}
";
        let of_pod = push(&format!("{namespace}{pod}"), Settings::default()).await;
        assert!(!is_learned(labelled("learned"), true, &of_pod));
    }

    #[tokio::test]
    async fn the_label_of_a_pod_is_read_in_its_cluster_which_may_have_an_alias() {
        let pod = |value: &str| {
            objects(&format!(
                "
apiVersion: v1
kind: Pod
metadata: {{name: web-1, namespace: shop, labels: {{navarch.io/scope: {value}}}}}
spec: {{serviceAccountName: web}}
status: {{phase: Running, podIP: 10.1.2.3}}
"
            ))
        };
        let own = pod("whole").into_iter().map(Change::Put);
        let remote = RemoteChange::Reset(pod("learned"));
        let remote = Change::Remote(ClusterId::new("east"), remote);
        let mut settings = Settings::default();
        let alias = ClusterId::new("former-name");
        let aliases = &mut settings.clusters.aliases;
        aliases.insert(alias, ClusterId::new("east"));
        let push = push_of(own.chain([remote]).collect(), settings).await;

        let of_cluster = |cluster: &str| proxy("sidecar", json!({ "CLUSTER_ID": cluster }));
        for cluster in ["east", "former-name"] {
            assert!(is_learned(of_cluster(cluster), true, &push), "{cluster}");
        }
        assert!(!is_learned(of_cluster("Kubernetes"), true, &push));
    }
}

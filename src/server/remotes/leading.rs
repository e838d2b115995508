//! The work of a control plane for a remote cluster that it leads: it publishes the CA's roots, as
//! in its own cluster, and registers the webhooks' CA at the API server. ServiceExports are created
//! in all remote clusters, if permitted.
//!
//! A control plane outside of all clusters (`EXTERNAL_ISTIOD`) leads those remote clusters whose
//! system namespace names its own cluster in an annotation; every other one leads none (Istio's
//! `checkShouldLead`).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::publishing::{Published, PublishedObjects, Publisher};
use super::super::until;
use super::super::webhooks::WebhookConfig;
use navarch_api::names::ClusterId;
use navarch_kubernetes::InWords;
use navarch_status::{
    Candidate, Cluster, DefaultRevision, Election, Location, Lock, NamespaceScope, ServiceExports,
    StaysLocal,
};
use navarch_webhook::Metrics;
use navarch_webhook::registration::{Announcements, HookKind, Registration};

/// The annotation of a system namespace with the clusters whose control planes lead this cluster.
const LEADERS_ANNOTATION: &str = "topology.istio.io/controlPlaneClusters";

/// Delays between attempts to read it.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];
/// The delay after these.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The contents that are written to remote clusters that are led.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct WrittenRemotes {
    /// Those of the CA, if it signs for workloads.
    pub(in crate::server) published: Option<Published>,
    /// Those of the webhooks, if they are served with TLS.
    pub(in crate::server) webhooks: Option<HookRoots>,
}

#[derive(Clone, Debug)]
pub(in crate::server) struct HookRoots {
    /// The roots in PEM.
    pub(in crate::server) roots: watch::Receiver<Arc<str>>,
    /// The announcements of roots that are registered.
    pub(in crate::server) announcements: Announcements,
    pub(in crate::server) metrics: Metrics,
}

/// Leads remote clusters.
#[derive(Clone)]
pub(super) struct Leading {
    /// `EXTERNAL_ISTIOD`: whether it leads remote clusters.
    pub(super) external: bool,
    /// The cluster that this control plane belongs to.
    pub(super) cluster: ClusterId,
    /// The system namespace.
    pub(super) namespace: String,
    /// The identity in leader locks.
    pub(super) identity: String,
    pub(super) revision: String,
    /// `ENABLE_LEADER_ELECTION`: whether there may be other control planes.
    pub(super) elects: bool,
    /// The objects that contain the roots and revocation lists.
    pub(super) objects: PublishedObjects,
    /// The webhook configurations of this control plane.
    pub(super) webhooks: WebhookConfig,
    /// The contents that are written to remote clusters, once known.
    pub(super) written: watch::Receiver<Option<WrittenRemotes>>,
    /// Selects the namespaces.
    pub(super) scope: watch::Receiver<NamespaceScope>,
    /// `ENABLE_MCS_AUTO_EXPORT`: whether ServiceExports are created, and for which Services not.
    pub(super) exports: Option<StaysLocal>,
}

impl Leading {
    /// Runs the controllers of a remote cluster until shutdown.
    pub(super) async fn run(
        self,
        remote: ClusterId,
        client: kube::Client,
        stop: CancellationToken,
    ) {
        let export = self
            .clone()
            .export(remote.clone(), client.clone(), stop.clone());
        tokio::join!(self.lead(remote, client, stop), export);
    }

    async fn lead(mut self, remote: ClusterId, client: kube::Client, stop: CancellationToken) {
        if !self.external || until(&stop, self.should_lead(&client)).await != Some(true) {
            return;
        }

        let written = until(&stop, self.written.wait_for(Option::is_some)).await;
        let Some(WrittenRemotes {
            published,
            webhooks,
        }) = written.and_then(|written| written.ok()?.clone())
        else {
            return;
        };

        tracing::info!(cluster = %remote, "writing root certificates and webhook caBundles to a remote cluster");
        let publish = async {
            if let Some(published) = published {
                self.publish(published, &client, &stop).await;
            }
        };

        let register = async {
            if let Some(webhooks) = webhooks {
                self.register(webhooks, &remote, &client, &stop).await;
            }
        };
        tokio::join!(publish, register);
    }

    /// Publishes the CA's roots in the cluster, as its leader.
    async fn publish(&self, published: Published, client: &kube::Client, stop: &CancellationToken) {
        let objects = self.objects.clone();
        let scope = self.scope.clone();
        let publisher = Publisher {
            cluster: Cluster(client.clone()),
            objects,
            published,
            scope,
        };
        let lock = publisher.lock();
        self.elected(client, lock, stop, move |stop| publisher.clone().run(stop))
            .await;
    }

    /// Creates ServiceExports for the cluster's Services, as its leader. Unlike the rest, this is
    /// done in every remote cluster, as in istiod.
    async fn export(self, remote: ClusterId, client: kube::Client, stop: CancellationToken) {
        let Some(stays_local) = self.exports.clone() else {
            return;
        };

        if self.elects {
            match until(&stop, self.may_lock(&client)).await {
                Some(true) => {}
                Some(false) => {
                    tracing::info!(cluster = %remote, "not authorized to create ConfigMaps in a remote cluster; its ServiceExports are not managed here");
                    return;
                }
                None => return,
            }
        }

        let controller = ServiceExports {
            cluster: Cluster(client.clone()),
            scope: self.scope.clone(),
            stays_local,
        };
        self.elected(&client, Lock::ServiceExport, &stop, move |stop| {
            controller.clone().run(stop)
        })
        .await;
    }

    /// Whether this control plane may hold locks in a cluster. If not, as with the rights of
    /// `istio-reader` only, the cluster's own control plane creates the exports.
    async fn may_lock(&self, client: &kube::Client) -> bool {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(self.namespace.clone()),
                    resource: Some("configmaps".to_owned()),
                    verb: Some("create".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };

        let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
        let parameters = PostParams::default();
        let answer = retried("check own permissions", || {
            reviews.create(&parameters, &review)
        })
        .await;

        answer.status.is_some_and(|status| status.allowed)
    }

    /// Runs work in a cluster while this control plane holds a lock there.
    async fn elected<W: Future<Output = ()> + Send + 'static>(
        &self,
        client: &kube::Client,
        lock: Lock,
        stop: &CancellationToken,
        work: impl Fn(CancellationToken) -> W,
    ) {
        if !self.elects {
            return work(stop.clone()).await;
        }

        let cluster = Cluster(client.clone());
        let (sender, default_revision) = watch::channel(String::new());
        let follow = DefaultRevision {
            cluster: cluster.clone(),
            namespace: self.namespace.clone(),
        };
        let revision = if self.revision.is_empty() {
            "default".to_owned()
        } else {
            self.revision.clone()
        };

        let candidate = Candidate {
            identity: self.identity.clone(),
            revision,
            location: Location::Remote,
        };
        let election = Election::new(&cluster, &self.namespace, lock, candidate, default_revision);
        tokio::join!(
            follow.run(sender, stop.clone()),
            election.run(stop.clone(), work)
        );
    }

    /// Keeps the CA in the injection webhooks of the cluster. Each revision has its own webhooks,
    /// so there is no leader. Validation webhooks are not changed, as the mesh's objects are in the
    /// config cluster.
    async fn register(
        &self,
        hooks: HookRoots,
        remote: &ClusterId,
        client: &kube::Client,
        stop: &CancellationToken,
    ) {
        if self.webhooks.injection.is_empty() {
            return;
        }
        let registration = Registration {
            client: client.clone(),
            kind: HookKind::Mutating,
            revision: self.webhooks.revision.clone(),
            namespace: self.namespace.clone(),
            roots: hooks.roots.clone(),
            grace: self.webhooks.grace,
            metrics: hooks.metrics,
        };
        // Dropped with the cluster, so that no one waits for it afterwards.
        let registered = hooks.announcements.add(remote.as_str(), Arc::default());
        registration.run(registered, stop.clone()).await;
    }

    /// Whether the annotation of the system namespace names this control plane's cluster, or all.
    /// False without the namespace.
    async fn should_lead(&self, client: &kube::Client) -> bool {
        let namespaces = Api::<Namespace>::all(client.clone());
        let found = retried("read the system namespace", || {
            namespaces.get_opt(&self.namespace)
        })
        .await;
        let Some(namespace) = found else { return false };
        let annotations = namespace.metadata.annotations.unwrap_or_default();
        let leaders = annotations
            .get(LEADERS_ANNOTATION)
            .map(String::as_str)
            .unwrap_or_default();
        leaders
            .split(',')
            .any(|leader| leader == "*" || leader == self.cluster.as_str())
    }
}

/// The response of a remote cluster, with retries until it succeeds.
async fn retried<T, F: Future<Output = Result<T, kube::Error>>>(
    what: &str,
    ask: impl Fn() -> F,
) -> T {
    let mut waits = RETRY_DELAYS.into_iter();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => {
                tracing::debug!(error = %InWords(&error), what, "remote cluster does not respond")
            }
        }
        tokio::time::sleep(waits.next().unwrap_or(MAX_RETRY_DELAY)).await;
    }
}

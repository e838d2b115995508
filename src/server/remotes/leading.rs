//! What a control plane does for a remote cluster that it leads: it tells it of the CA as it tells its own, and the API server
//! there how to know the webhooks.
//!
//! A control plane outside of all clusters (`EXTERNAL_ISTIOD`) leads those remote clusters whose system namespace names its own
//! cluster in an annotation; every other one leads none (Istio's `checkShouldLead`).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::publishing::{Published, PublishedObjects, Publisher};
use super::super::until;
use super::super::webhooks::WebhookConfig;
use navarch_api::names::ClusterId;
use navarch_status::{Candidate, Cluster, DefaultRevision, Election, Location, NamespaceScope};
use navarch_webhook::Metrics;
use navarch_webhook::registration::{HookKind, Registration};

/// The annotation of a system namespace that names the clusters whose control planes lead here.
const LEADERS: &str = "topology.istio.io/controlPlaneClusters";

/// The waits between attempts to read it.
const RETRY: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];
/// The wait after these.
const LONGEST: Duration = Duration::from_secs(30);

/// What clusters that are led are told.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct ToldRemotes {
    /// Of the CA, if it signs for workloads.
    pub(in crate::server) published: Option<Published>,
    /// Of the webhooks, if they are served by TLS.
    pub(in crate::server) webhooks: Option<HookRoots>,
}

/// By which roots the webhooks are known.
#[derive(Clone, Debug)]
pub(in crate::server) struct HookRoots {
    /// The roots in PEM.
    pub(in crate::server) roots: watch::Receiver<Arc<str>>,
    /// What is counted.
    pub(in crate::server) metrics: Metrics,
}

/// Leads remote clusters.
#[derive(Clone)]
pub(super) struct Leading {
    /// `EXTERNAL_ISTIOD`: it does.
    pub(super) external: bool,
    /// The cluster that this control plane belongs to.
    pub(super) cluster: ClusterId,
    /// The system namespace.
    pub(super) namespace: String,
    /// Under which name locks are held.
    pub(super) identity: String,
    pub(super) revision: String,
    /// `ENABLE_LEADER_ELECTION`: there may be others.
    pub(super) elects: bool,
    /// The objects that hold the roots and revocation lists.
    pub(super) objects: PublishedObjects,
    /// Which configurations of webhooks are this control plane's.
    pub(super) webhooks: WebhookConfig,
    /// What clusters are told, once it is known.
    pub(super) told: watch::Receiver<Option<ToldRemotes>>,
    /// Which namespaces count.
    pub(super) scope: watch::Receiver<NamespaceScope>,
}

impl Leading {
    /// Leads a cluster until told to stop, if it is this one's to lead.
    pub(super) async fn run(mut self, remote: ClusterId, client: kube::Client, stop: CancellationToken) {
        if !self.external || until(&stop, self.should_lead(&client)).await != Some(true) {
            return;
        }
        let told = until(&stop, self.told.wait_for(Option::is_some)).await;
        let Some(ToldRemotes { published, webhooks }) = told.and_then(|told| told.ok()?.clone()) else { return };
        tracing::info!(cluster = %remote, "this control plane writes the root certificates and webhook caBundles of a remote cluster");
        let publish = async {
            if let Some(published) = published {
                self.publish(published, &client, &stop).await;
            }
        };
        let register = async {
            if let Some(webhooks) = webhooks {
                self.register(webhooks, &client, &stop).await;
            }
        };
        tokio::join!(publish, register);
    }

    /// Tells the cluster of the CA, as its leader.
    async fn publish(&self, published: Published, client: &kube::Client, stop: &CancellationToken) {
        let cluster = Cluster(client.clone());
        let (objects, scope) = (self.objects.clone(), self.scope.clone());
        let publisher = Publisher { cluster: cluster.clone(), objects, published, scope };
        if !self.elects {
            return publisher.run(stop.clone()).await;
        }
        let (told, default_revision) = watch::channel(String::new());
        let follow = DefaultRevision { cluster: cluster.clone(), namespace: self.namespace.clone() };
        let revision = if self.revision.is_empty() { "default".to_owned() } else { self.revision.clone() };
        let candidate = Candidate { identity: self.identity.clone(), revision, location: Location::Remote };
        let election = Election::new(&cluster, &self.namespace, publisher.lock(), candidate, default_revision);
        let work = move |stop: CancellationToken| publisher.clone().run(stop);
        tokio::join!(follow.run(told, stop.clone()), election.run(stop.clone(), work));
    }

    /// Keeps the CA in the webhooks that inject there. Each revision has webhooks of its own, so there is no leader; those that check
    /// objects are not touched, for objects of the mesh are the configuring cluster's.
    async fn register(&self, hooks: HookRoots, client: &kube::Client, stop: &CancellationToken) {
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
        // Who waits for the roots to be registered waits for the own cluster alone: another one may be away.
        let (registered, _) = watch::channel(hooks.roots.borrow().clone());
        registration.run(registered, stop.clone()).await;
    }

    /// Whether the annotation of the system namespace names this control plane's cluster, or all. Without the namespace: no.
    async fn should_lead(&self, client: &kube::Client) -> bool {
        let namespaces = Api::<Namespace>::all(client.clone());
        let mut waits = RETRY.into_iter();
        loop {
            match namespaces.get_opt(&self.namespace).await {
                Ok(None) => return false,
                Ok(Some(namespace)) => {
                    let annotations = namespace.metadata.annotations.unwrap_or_default();
                    let leaders = annotations.get(LEADERS).map(String::as_str).unwrap_or_default();
                    return leaders.split(',').any(|leader| leader == "*" || leader == self.cluster.as_str());
                }
                Err(error) => tracing::debug!(%error, "failed to read the system namespace of a remote cluster"),
            }
            tokio::time::sleep(waits.next().unwrap_or(LONGEST)).await;
        }
    }
}

//! What a control plane does for a remote cluster that it leads: the roots of the mesh are written into its namespaces.
//!
//! A control plane outside of all clusters (`EXTERNAL_ISTIOD`) leads those remote clusters whose system namespace names its own
//! cluster in an annotation; every other one leads none (Istio's `checkShouldLead`).

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::controllers::Published;
use super::super::until;
use navarch_api::names::ClusterId;
use navarch_status::{
    Candidate, Cluster, DefaultRevision, Election, Location, Lock, NamespaceScope, ROOTS_KEY, RootCertificates,
};

/// The annotation of a system namespace that names the clusters whose control planes lead here.
const LEADERS: &str = "topology.istio.io/controlPlaneClusters";

/// The waits between attempts to read it.
const RETRY: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];
/// The wait after these.
const LONGEST: Duration = Duration::from_secs(30);

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
    /// The ConfigMap with the roots.
    pub(super) roots: String,
    /// What is told of the CA, once there is one.
    pub(super) published: watch::Receiver<Option<Published>>,
    /// Which namespaces count.
    pub(super) scope: watch::Receiver<NamespaceScope>,
}

impl Leading {
    /// Leads a cluster until told to stop, if it is this one's to lead.
    pub(super) async fn run(mut self, remote: ClusterId, client: kube::Client, stop: CancellationToken) {
        if !self.external || until(&stop, self.should_lead(&client)).await != Some(true) {
            return;
        }
        let Some(Ok(published)) = until(&stop, self.published.wait_for(Option::is_some))
            .await
            .map(|found| found.map(|published| published.clone()))
        else {
            return;
        };
        let Some(Published { roots, .. }) = published else { return };
        tracing::info!(cluster = %remote, "leading a remote cluster: the roots are written into its namespaces");
        let cluster = Cluster(client);
        let (told, default_revision) = watch::channel(String::new());
        let follow = DefaultRevision { cluster: cluster.clone(), namespace: self.namespace.clone() };
        let certificates = RootCertificates {
            cluster: cluster.clone(),
            name: self.roots.clone(),
            key: ROOTS_KEY,
            roots,
            scope: self.scope.clone(),
        };
        let revision = if self.revision.is_empty() { "default".to_owned() } else { self.revision.clone() };
        let candidate = Candidate { identity: self.identity.clone(), revision, location: Location::Remote };
        let election = Election::new(&cluster, &self.namespace, Lock::Namespaces, candidate, default_revision);
        let work = move |stop: CancellationToken| certificates.clone().run(stop);
        tokio::join!(follow.run(told, stop.clone()), election.run(stop.clone(), work));
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

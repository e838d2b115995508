//! The mesh's roots as a ClusterTrustBundle, which pods mount instead of a ConfigMap.
//!
//! Agrees with `pilot/pkg/config/kube/clustertrustbundle` in names.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use navarch_kubernetes::InWords;

/// The name of the object.
const NAME: &str = "istio.io:istiod-ca:root-cert";
/// The signer name.
const SIGNER: &str = "istio.io/istiod-ca";
/// Retry delay.
const RETRY: Duration = Duration::from_secs(5);

/// Maintains the ClusterTrustBundle, also when another writer edits or deletes it.
#[derive(Clone, Debug)]
pub struct TrustBundleObject {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The roots as PEM; nothing is written while there are none.
    pub roots: watch::Receiver<Arc<str>>,
}

impl TrustBundleObject {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let all = Api::<PartialObjectMeta<ClusterTrustBundle>>::all(self.cluster.0.clone());
        let mine = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let mut events = std::pin::pin!(watcher(all, mine).default_backoff());
        let mut failed = false;

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::warn!(error = %InWords(&error), "failed to watch the ClusterTrustBundle");
                        continue;
                    }
                    None => return,
                },
                Ok(()) = self.roots.changed() => {}
                () = tokio::time::sleep(RETRY), if failed => {}
            }

            let roots = self.roots.borrow_and_update().clone();
            if roots.is_empty() {
                continue;
            }

            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.write(&roots) => outcome,
            };
            failed = outcome.is_err();
            if let Err(error) = outcome {
                tracing::warn!(name = NAME, error = %InWords(&error), "failed to write the ClusterTrustBundle");
            }
        }
    }

    /// Writes the roots if they differ.
    async fn write(&self, roots: &str) -> Result<(), kube::Error> {
        let api = Api::<ClusterTrustBundle>::all(self.cluster.0.clone());
        let parameters = PostParams::default();
        let Some(mut bundle) = api.get_opt(NAME).await? else {
            let metadata = ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            };
            let spec = ClusterTrustBundleSpec {
                signer_name: Some(SIGNER.to_owned()),
                trust_bundle: roots.to_owned(),
            };
            return api
                .create(&parameters, &ClusterTrustBundle { metadata, spec })
                .await
                .map(drop);
        };

        if bundle.spec.trust_bundle == roots {
            return Ok(());
        }

        roots.clone_into(&mut bundle.spec.trust_bundle);
        api.replace(NAME, &parameters, &bundle).await.map(drop)
    }
}

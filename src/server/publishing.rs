//! Publishes the CA's roots and revocation lists in a cluster: in a ConfigMap of each namespace, or
//! in a ClusterTrustBundle.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use navarch_status::{
    Cluster, Lock, NamespaceScope, REVOCATIONS, REVOCATIONS_KEY, ROOTS_KEY, RootCertificates,
    TrustBundleObject,
};

/// The contents that are published.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// The roots in PEM.
    pub(super) roots: watch::Receiver<Arc<str>>,
    /// The CRLs in PEM, if they are published.
    pub(super) revocations: Option<watch::Receiver<Arc<str>>>,
}

/// The objects that contain them.
#[derive(Clone, Debug)]
pub struct PublishedObjects {
    /// `PILOT_CA_CERT_CONFIGMAP`: the ConfigMap with the roots. Default `istio-ca-root-cert`.
    pub roots: String,
    /// `PILOT_CRL_CONFIGMAP`: the ConfigMap with the lists of revoked certificates. Default
    /// `istio-ca-crl`.
    pub revocations: String,
    /// `ENABLE_CLUSTER_TRUST_BUNDLE_API`: the roots are in a ClusterTrustBundle, and in no
    /// ConfigMaps. Default false.
    pub trust_bundle: bool,
}

impl Default for PublishedObjects {
    fn default() -> Self {
        Self {
            roots: "istio-ca-root-cert".to_owned(),
            revocations: REVOCATIONS.to_owned(),
            trust_bundle: false,
        }
    }
}

/// Writes them to a cluster.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    pub(super) cluster: Cluster,
    pub(super) objects: PublishedObjects,
    pub(super) published: Published,
    /// The namespaces that get ConfigMaps.
    pub(super) scope: watch::Receiver<NamespaceScope>,
}

impl Publisher {
    /// The leader lock for this work.
    pub(super) fn lock(&self) -> Lock {
        if self.objects.trust_bundle {
            Lock::TrustBundle
        } else {
            Lock::Namespaces
        }
    }

    /// Runs until `stop` is cancelled.
    pub(super) async fn run(self, stop: CancellationToken) {
        let Self {
            cluster,
            objects,
            published,
            scope,
        } = self;

        let Published { roots, revocations } = published;
        if objects.trust_bundle {
            return TrustBundleObject { cluster, roots }.run(stop).await;
        }

        let roots = RootCertificates {
            cluster,
            name: objects.roots,
            key: ROOTS_KEY,
            roots,
            scope,
        };

        let name = objects.revocations;
        let key = REVOCATIONS_KEY;
        let lists = revocations.map(|lists| RootCertificates {
            name,
            key,
            roots: lists,
            ..roots.clone()
        });

        let lists = async {
            if let Some(lists) = lists {
                lists.run(stop.clone()).await;
            }
        };
        tokio::join!(roots.run(stop.clone()), lists);
    }
}

//! The roots that callers get with their certificates.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::super::external::{DistributionRules, ExternalLimits};
use super::super::signer::{SignedChain, Signer};
use super::super::{Authority, Bundle, in_force};
use super::*;
use crate::authenticate::MeshSnapshot;
use navarch_api::names::{ClusterId, TrustDomain};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A mesh without objects.
struct EmptyMesh;

impl SnapshotProvider for EmptyMesh {
    fn snapshot(&self) -> MeshSnapshot {
        MeshSnapshot {
            objects: Default::default(),
            remotes: Default::default(),
            trust_domain: TrustDomain::new("cluster.local"),
            aliases: Vec::new(),
            cluster: ClusterId::new("Kubernetes"),
        }
    }
}

/// A signer that has roots, and does not sign.
struct OnlyRoots(watch::Receiver<Arc<str>>);

#[tonic::async_trait]
impl Signer for OnlyRoots {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn sign(&self, _: &CheckedRequest) -> Result<SignedChain, SignerError> {
        Err(SignerError::NoRoots)
    }

    fn roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        Some(self.0.clone())
    }
}

fn clock() -> std::time::SystemTime {
    jiff::Timestamp::now().into()
}

#[test]
fn a_proxy_gets_the_own_roots_also_where_an_external_signer_signs_for_all() {
    let own = Bundle::self_signed("own", KeyType::P256, DAY, clock()).unwrap();
    let company = Bundle::self_signed("company", KeyType::P256, DAY, clock()).unwrap();
    let (_switch, current) = in_force(Authority::new(&own, clock()).unwrap());
    let metrics = Metrics::register(&mut Registry::default(), clock);

    let (_sender, roots) = watch::channel(Arc::from(company.roots.as_str()));
    let rules = DistributionRules {
        overlap: Duration::from_secs(1),
        wait: Duration::from_secs(1),
    };
    let external = ExternalAuthority::new(
        Arc::new(OnlyRoots(roots)),
        ExternalLimits::default(),
        rules,
        &Arc::default(),
        metrics.clone(),
        clock,
    );
    let signers = ExternalSigners::new(Some(Arc::new(external)), BTreeMap::new());
    let config = CertificateServiceConfig::default();
    let service = CertificateService::new(current, Arc::new(EmptyMesh), config, clock, metrics);

    assert_eq!(&*service.handed_roots(&own.roots), own.roots, "no signer");
    let service = service.signed_by(signers);
    let handed = service.handed_roots(&company.roots);
    for root in [&own.roots, &company.roots] {
        assert_eq!(handed.matches(root.trim()).count(), 1, "{handed}");
    }
}

//! cert-manager signs: CertificateRequests on a real API server, with the rights of `deploy/extras`
//! only. Here the test approves and signs in place of cert-manager's controllers, so that it can do
//! it wrongly; the real ones sign in [`controllers`].
//!
//! Needs the programs of `scripts/kube`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use navarch::api::identity::Identity;
use navarch::api::names::Namespace;
use navarch::pki::{KeyType, SigningRequest};
use navarch::security::ca::cert_manager::{CertManager, CertManagerConfig};
use navarch::security::ca::external::{
    DistributionRules, ExternalAuthority, ExternalLimits, ExternalSigners,
};
use navarch::security::ca::keeper::FindMissing;
use navarch::security::ca::service::{CertificateService, CertificateServiceConfig};
use navarch::security::ca::signer::{CheckedRequest, IssuedChain, SignerError};
use navarch::security::ca::{Authority, Bundle, Metrics, Subject, in_force};
use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_proto::istio::v1::auth::istio_certificate_service_server::IstioCertificateService as _;
use navarch_testkit::cluster::Cluster;
use navarch_testkit::wait::until;
use navarch_tests::chain::check_chain;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bare_mesh::Mesh;
use crate::own_authority::{WEB, csr};

mod controllers;

/// The path of the requests.
const REQUESTS: &str = "/apis/cert-manager.io/v1/namespaces/istio-system/certificaterequests";
/// The kind, with the parts that matter here.
const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificaterequests.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {kind: CertificateRequest, listKind: CertificateRequestList, plural: certificaterequests, singular: certificaterequest}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [issuerRef, request]
            properties:
              duration: {type: string}
              isCA: {type: boolean}
              issuerRef:
                type: object
                required: [name]
                properties: {name: {type: string}, kind: {type: string}, group: {type: string}}
              request: {type: string, format: byte}
              usages: {type: array, items: {type: string}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

/// What the controllers do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controllers {
    Sign,
    Deny,
    Fail,
    /// Sign with another root, and name it as `ca`.
    SignWithOtherRoot,
    /// Sign for another identity.
    SignForOther,
}

/// Navarch's client of cert-manager, for the ClusterIssuer `mesh`.
struct Manager {
    external: Arc<ExternalAuthority>,
    metrics: Metrics,
    /// Follows the objects and deletes them, and follows the pinned roots.
    _following: JoinSet<()>,
}

impl Manager {
    fn start(client: kube::Client, pinned: watch::Receiver<Arc<str>>) -> Result<Self> {
        let config = CertManagerConfig {
            namespace: None,
            issuer: "ClusterIssuer/mesh".parse()?,
        };
        let (manager, follow) = CertManager::start(
            client,
            config,
            &Namespace::new("istio-system"),
            pinned,
            ExternalLimits::default().objects(),
            SystemTime::now,
        );

        let metrics = Metrics::register(&mut Registry::default(), SystemTime::now);
        let at_once = DistributionRules {
            overlap: Duration::ZERO,
            wait: Duration::ZERO,
        };
        let external = ExternalAuthority::new(
            Arc::new(manager),
            ExternalLimits::default(),
            at_once,
            &Arc::default(),
            metrics.clone(),
            SystemTime::now,
        );
        let external = Arc::new(external);

        let mut following = JoinSet::new();
        following.spawn(follow);
        let signers = ExternalSigners::new(Some(external.clone()), BTreeMap::new());
        let all_trust: FindMissing = Arc::new(|_| Vec::new());
        following.spawn(signers.follow(external.clone(), all_trust));
        Ok(Self {
            external,
            metrics,
            _following: following,
        })
    }
}

/// A client with Navarch's rights from the file, on a cluster that gets the definitions of these
/// kinds.
async fn as_navarch(cluster: &Cluster, definitions: &str) -> Result<kube::Client> {
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}")?;
    cluster.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: istiod, namespace: istio-system}}",
    )?;
    let file = "deploy/extras/cert-manager-signs.yaml";
    let rights = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    cluster.apply(&std::fs::read_to_string(rights)?)?;
    cluster.apply(definitions)?;
    let crd = "crd/certificaterequests.cert-manager.io";
    cluster.kubectl(
        &["wait", "--for=condition=Established", "--timeout=30s", crd],
        "",
    )?;

    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_of("istio-system", "istiod").await?)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

fn authority() -> Result<Authority> {
    let now = SystemTime::now();
    let bundle = Bundle::self_signed("company", KeyType::P256, Duration::from_secs(36_000), now)?;
    Ok(Authority::new(&bundle, now)?)
}

/// The status that controllers give a request.
fn status(spec: &Value, authority: &Authority, what: Controllers) -> Result<Value> {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "as the test says",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let approved = condition("Approved", "True", "test");
    let other = self::authority()?;
    let signer = match what {
        Controllers::Deny => {
            let denied = condition("Denied", "True", "policy.cert-manager.io");
            return Ok(json!({"conditions": [denied]}));
        }
        Controllers::Fail => {
            let failed = condition("Ready", "False", "Failed");
            return Ok(json!({"conditions": [approved, failed]}));
        }
        Controllers::SignWithOtherRoot => &other,
        Controllers::Sign | Controllers::SignForOther => authority,
    };

    let csr = STANDARD.decode(spec["request"].as_str().context("a request")?)?;
    let csr = SigningRequest::parse(std::str::from_utf8(&csr)?)?;
    let identity = match what {
        Controllers::SignForOther => "spiffe://cluster.local/ns/shop/sa/admin",
        _ => WEB,
    };
    let subject = Subject::Workload(Identity::parse(identity)?);
    let hour = Duration::from_secs(3600);
    let chain = signer.sign(&csr, &subject, hour, SystemTime::now())?;
    let pem = navarch::pki::pem::encode(&chain[0]);
    Ok(json!({
        "conditions": [approved, condition("Ready", "True", "Issued")],
        "certificate": STANDARD.encode(pem),
        "ca": STANDARD.encode(signer.roots().pem()),
    }))
}

/// Approves and signs in place of cert-manager's controllers; does not return.
async fn control(cluster: &Cluster, authority: &Authority, what: Controllers) -> Result<()> {
    loop {
        let found = cluster
            .call("GET", REQUESTS, "application/json", &Value::Null)
            .await?;
        for one in found["items"].as_array().context("a list")? {
            let spec = &one["spec"];
            if one["status"]["conditions"].is_array() {
                continue;
            }
            ensure!(
                spec["issuerRef"]
                    == json!({"kind": "ClusterIssuer", "group": "cert-manager.io", "name": "mesh"})
                    && spec["duration"] == "3600s"
                    && spec["isCA"] == false
                    && one["metadata"]["annotations"]["navarch.io/spiffe-id"] == WEB,
                "{one}"
            );

            let name = one["metadata"]["name"].as_str().context("a name")?;
            let patch = json!({"status": status(spec, authority, what)?});
            let path = format!("{REQUESTS}/{name}/status");
            cluster
                .call("PATCH", &path, "application/merge-patch+json", &patch)
                .await?;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn cert_manager_signs_what_its_policy_approves() -> Result<()> {
    let cluster = Cluster::start().await?;
    let client = as_navarch(&cluster, CRD).await?;
    let authority = authority()?;
    let root = authority.roots().pem().to_owned();
    let (_sender, pinned) = watch::channel(Arc::from(root.as_str()));
    let manager = Manager::start(client, pinned)?;

    let sign = async |what: Controllers| -> Result<Result<IssuedChain, SignerError>> {
        let hour = Duration::from_secs(3600);
        let request = CheckedRequest::new(&csr(WEB)?, Identity::parse(WEB)?, hour, "")?;
        tokio::select! {
            signed = manager.external.sign(&request) => Ok(signed),
            failed = control(&cluster, &authority, what) => Err(failed.expect_err("an error")),
        }
    };

    let issued = sign(Controllers::Sign).await??;
    ensure!(*issued.roots == *root, "the pinned root");
    for (what, part) in [
        (Controllers::Deny, "policy.cert-manager.io"),
        (Controllers::Fail, "as the test says"),
        (Controllers::SignWithOtherRoot, "unusable certificate"),
        (Controllers::SignForOther, "for another identity"),
    ] {
        let error = sign(what).await?.err().context("an error")?.to_string();
        ensure!(error.contains(part), "{what:?}: {error}");
    }

    until("requests are deleted", async || {
        let left = cluster
            .call("GET", REQUESTS, "application/json", &Value::Null)
            .await;
        left.is_ok_and(|left| left["items"] == json!([]))
    })
    .await;

    tokio::select! {
        issued = by_service(&manager, authority.roots().pem()) => issued,
        failed = control(&cluster, &authority, Controllers::Sign) => failed,
    }
}

/// Certificates by the service that agents and node proxies call.
async fn by_service(manager: &Manager, root: &str) -> Result<()> {
    let own = authority()?;
    let own_roots = own.roots().pem().to_owned();
    let (_switch, own) = in_force(own);
    let signers = ExternalSigners::new(Some(manager.external.clone()), BTreeMap::new());
    let service = CertificateService::new(
        own,
        Arc::new(Mesh),
        CertificateServiceConfig::default(),
        SystemTime::now,
        manager.metrics.clone(),
    )
    .signed_by(signers);

    let mut request = tonic::Request::new(IstioCertificateRequest {
        csr: csr(WEB)?,
        validity_duration: 3600,
        ..IstioCertificateRequest::default()
    });
    request
        .extensions_mut()
        .insert(navarch::api::identity::Caller {
            identities: vec![Identity::parse(WEB)?],
            ..navarch::api::identity::Caller::default()
        });
    let response = service.create_certificate(request).await?.into_inner();
    check_chain(&response.cert_chain, WEB, root)?;

    // A proxy without PCDS has no other roots.
    let roots = response.cert_chain.last().context("roots")?;
    ensure!(roots.contains(own_roots.trim()), "the own root: {roots}");
    Ok(())
}

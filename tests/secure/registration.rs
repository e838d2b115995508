//! A real API server as registration authority and as the store of the trust bundle, with the
//! rights of `deploy/extras` only.
//!
//! Needs the programs of `scripts/kube`. The test signs the requests in place of an external
//! signer.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use navarch::api::identity::Identity;
use navarch::api::mesh::CertificateData;
use navarch::pki::{KeyType, SigningRequest};
use navarch::security::ca::external::{DistributionRules, ExternalAuthority, ExternalLimits};
use navarch::security::ca::signer::{CheckedRequest, SignerError};
use navarch::security::ca::{
    Authority, Bundle, Metrics, Registration, RegistrationConfig, RegistrationError, Subject,
    in_force,
};
use navarch::security::serving::{
    self, ServerCertificate, ServerRequest, ServingConfig, ServingError,
};
use navarch::security::tls_rules::TlsRules;
use navarch::status::{self, TrustBundleObject};
use navarch_testkit::cluster::{Cluster, ClusterConfig};
use prometheus_client::registry::Registry;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The path of CertificateSigningRequests.
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// The path of the ClusterTrustBundle.
const BUNDLE: &str =
    "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/istio.io:istiod-ca:root-cert";
/// The identity in the valid requests.
const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";

fn request(uri: &str) -> Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
    Ok(params.serialize_request(&KeyPair::generate()?)?.pem()?)
}

/// An external CA.
fn outer() -> Result<Authority> {
    let now = SystemTime::now();
    let bundle = Bundle::self_signed("outer", KeyType::P256, Duration::from_secs(36_000), now)?;
    Ok(Authority::new(&bundle, now)?)
}

/// Signs approved requests, as an external signer does; `for_whom` is the name in the certificates.
async fn sign_all(cluster: &Cluster, authority: &Authority, for_whom: &str) -> Result<()> {
    loop {
        let found = cluster
            .call("GET", REQUESTS, "application/json", &Value::Null)
            .await?;
        for one in found["items"].as_array().context("a list")? {
            let is_approved = one["status"]["conditions"][0]["type"] == "Approved";
            if !is_approved || one["status"]["certificate"].is_string() {
                continue;
            }

            ensure!(
                one["spec"]["signerName"] == "signers.example.com/blue",
                "{one}"
            );
            let csr = STANDARD.decode(one["spec"]["request"].as_str().context("a request")?)?;
            let csr = SigningRequest::parse(std::str::from_utf8(&csr)?)?;
            let subject = match for_whom.contains("://") {
                true => Subject::Workload(Identity::parse(for_whom)?),
                false => Subject::Server(for_whom.split(',').map(str::to_owned).collect()),
            };

            let lifetime = one["spec"]["expirationSeconds"].as_u64();
            ensure!(
                lifetime
                    == Some(if for_whom.contains("://") {
                        3600
                    } else {
                        864_000
                    }),
                "{one}"
            );

            let chain =
                authority.sign(&csr, &subject, Duration::from_secs(3600), SystemTime::now())?;
            let leaf = format!(
                "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
                STANDARD.encode(&chain[0])
            );
            let status = json!({"status": {"certificate": STANDARD.encode(leaf)}});
            let path = format!(
                "{REQUESTS}/{}/status",
                one["metadata"]["name"].as_str().context("a name")?
            );

            cluster
                .call("PATCH", &path, "application/merge-patch+json", &status)
                .await?;
        }

        sleep(Duration::from_millis(50)).await;
    }
}

/// A client with Navarch's rights from these files.
async fn as_navarch(cluster: &Cluster) -> Result<kube::Client> {
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}")?;
    cluster.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: istiod, namespace: istio-system}}",
    )?;
    let extras = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/extras");
    for file in ["kubernetes-signs.yaml", "cluster-trust-bundle.yaml"] {
        cluster.apply(&std::fs::read_to_string(extras.join(file))?)?;
    }
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_of("istio-system", "istiod").await?)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

#[tokio::test]
async fn kubernetes_signs_for_workloads_and_publishes_the_roots() -> Result<()> {
    let flags = [
        "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
        "--feature-gates=ClusterTrustBundle=true",
    ];
    let flags = flags.map(str::to_owned).to_vec();
    let cluster = Cluster::start_with(ClusterConfig {
        api_server_flags: flags,
        ..ClusterConfig::default()
    })
    .await?;
    let client = as_navarch(&cluster).await?;
    let authority = outer()?;
    let root = authority.roots().pem().to_owned();
    let signer = CertificateData {
        pem: Some(root.clone()),
        cert_signers: vec!["signers.example.com/blue".to_owned()],
        ..CertificateData::default()
    };

    let config = RegistrationConfig {
        signer: String::new(),
        signer_domain: "signers.example.com".to_owned(),
        roots: None,
    };
    let mesh = vec![signer];
    let registration = Registration::new(client.clone(), config, Arc::new(move || mesh.clone()), 8);
    let identity = Identity::parse(WEB)?;

    let hour = Duration::from_secs(3600);
    let external = ExternalAuthority::new(
        Arc::new(registration.clone()),
        ExternalLimits::default(),
        DistributionRules {
            overlap: Duration::ZERO,
            wait: Duration::ZERO,
        },
        &Arc::default(),
        Metrics::register(&mut Registry::default(), SystemTime::now),
        SystemTime::now,
    );
    let sign = |csr: String, signer: &'static str| {
        let external = &external;
        let identity = identity.clone();
        async move {
            let request = CheckedRequest::new(&csr, identity, hour, signer)?;
            external.sign(&request).await
        }
    };

    let issued = tokio::select! {
        issued = sign(request(WEB)?, "blue") => issued?,
        failed = sign_all(&cluster, &authority, WEB) => return failed,
    };
    ensure!(
        issued.chain.len() == 1 && *issued.roots == *root,
        "leaf and root: {issued:?}"
    );
    let left = cluster
        .call("GET", REQUESTS, "application/json", &Value::Null)
        .await?;
    ensure!(left["items"] == json!([]), "requests are deleted: {left}");

    // A request for another identity is rejected here, a certificate for another identity is not
    // delivered, and a signer without a name signs nothing.
    let stolen = sign(request("spiffe://cluster.local/ns/shop/sa/admin")?, "blue").await;
    ensure!(matches!(stolen, Err(SignerError::Beyond(_))), "{stolen:?}");
    let wrong = tokio::select! {
        wrong = sign(request(WEB)?, "blue") => wrong,
        failed = sign_all(&cluster, &authority, "spiffe://cluster.local/ns/shop/sa/admin") => return failed,
    };

    ensure!(
        matches!(wrong, Err(SignerError::Mismatch("for another identity"))),
        "{wrong:?}"
    );
    let stranger = outer()?;
    let unrooted = tokio::select! {
        unrooted = sign(request(WEB)?, "blue") => unrooted,
        failed = sign_all(&cluster, &stranger, WEB) => return failed,
    };

    ensure!(
        matches!(unrooted, Err(SignerError::Chain(_))),
        "{unrooted:?}"
    );
    let unnamed = sign(request(WEB)?, "").await;
    ensure!(
        matches!(unnamed, Err(SignerError::Request(_))),
        "{unnamed:?}"
    );

    for_the_server(&cluster, &registration, &authority).await?;
    spreads(&cluster, client, [&root, stranger.roots().pem()]).await
}

/// The same signer signs the server's own certificate; the server's ports use it, and mesh config
/// names its root.
async fn for_the_server(
    cluster: &Cluster,
    registration: &Registration,
    authority: &Authority,
) -> Result<()> {
    let names = serving::host_names("istio-system", "", "");
    let of = |signer: &str| ServingConfig {
        certificate: ServerCertificate::Requested(Box::new(ServerRequest {
            names: names.clone(),
            signer: signer.to_owned(),
            registration: registration.clone(),
        })),
        further_roots: Vec::new(),
        signer_roots: watch::channel(Arc::default()).1,
        rules: TlsRules::default(),
    };

    let (_switch, own) = in_force(outer()?);
    let start = |signer: &str| serving::start(own.clone(), of(signer), SystemTime::now);
    let all = names.join(",");
    let (tls, _renewing) = tokio::select! {
        started = start("signers.example.com/blue") => started?,
        failed = sign_all(cluster, authority, &all) => return failed,
    };
    ensure!(
        *tls.web().roots == *authority.roots().pem(),
        "the signer's root is published, not the CA's own"
    );

    // A certificate that lacks a name is not used, and without a configured root none is requested.
    let partial = tokio::select! {
        started = start("signers.example.com/blue") => started.err(),
        failed = sign_all(cluster, authority, "istiod.istio-system.svc") => return failed,
    };
    ensure!(
        matches!(
            partial,
            Some(ServingError::Request(RegistrationError::Wrong(_)))
        ),
        "{partial:?}"
    );

    let unknown = start("signers.example.com/red").await.err();
    ensure!(
        matches!(
            unknown,
            Some(ServingError::Request(RegistrationError::NoMeshRoot(_)))
        ),
        "{unknown:?}"
    );

    Ok(())
}

/// Publishes one set of roots after the other.
async fn spreads(cluster: &Cluster, client: kube::Client, sets: [&str; 2]) -> Result<()> {
    let (renew, roots) = watch::channel(Arc::<str>::from(""));
    let stop = CancellationToken::new();
    let publishing = tokio::spawn(
        TrustBundleObject {
            cluster: status::Cluster(client),
            roots,
        }
        .run(stop.clone()),
    );

    for wanted in sets {
        renew.send_replace(wanted.into());
        let end = Instant::now() + Duration::from_secs(30);

        loop {
            let found = cluster
                .call("GET", BUNDLE, "application/json", &Value::Null)
                .await
                .unwrap_or_default();
            if found["spec"]["trustBundle"] == wanted
                && found["spec"]["signerName"] == "istio.io/istiod-ca"
            {
                break;
            }
            ensure!(Instant::now() < end, "{found}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    stop.cancel();
    publishing.await?;
    Ok(())
}

//! What every authority of a company must do behind Navarch: sign for a sidecar's agent, and for
//! the node proxy of the node that a pod runs on, and nothing else.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use navarch::agent::credentials::TokenSource;
use navarch::agent::metrics::AgentMetrics;
use navarch::agent::secrets::{
    CaClient, CertificateFiles, Grace, KeyFormat, KeyKind, Secret, Secrets, SecretsConfig,
};
use navarch::agent::upstream::{Roots, Transport, Upstream, UpstreamConfig};
use navarch_net::grpc_target::Keepalive;
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use navarch_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use prost_types::value::Kind;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::client::{self, Proof};
use crate::server::Server;

/// Timeout of each step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The identity of the workload.
pub(crate) const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";

/// A workload on one node, and node proxies on two.
pub(crate) const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: ztunnel-1, namespace: istio-system, uid: z1}
spec: {nodeName: one, serviceAccountName: ztunnel, containers: [{name: app, image: app}]}
---
apiVersion: v1
kind: Pod
metadata: {name: ztunnel-2, namespace: istio-system, uid: z2}
spec: {nodeName: two, serviceAccountName: ztunnel, containers: [{name: app, image: app}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, uid: w1}
spec: {nodeName: one, serviceAccountName: web, containers: [{name: app, image: app}]}
";

/// The variable that makes ztunnel a node proxy.
pub(crate) const NODE_PROXIES: &str = "CA_TRUSTED_NODE_ACCOUNTS=istio-system/ztunnel";

/// A CSR for an identity, as agents and ztunnel write it.
pub(crate) fn csr(identity: &str) -> Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(identity.try_into()?)];
    Ok(params.serialize_request(&KeyPair::generate()?)?.pem()?)
}

/// Requests a certificate as the proxy of a node, for another identity.
async fn impersonate(
    server: &Server,
    pod: (&str, &str),
    identity: &str,
) -> Result<IstioCertificateResponse, Status> {
    let token = server.issuer.token(json!({
        "sub": "system:serviceaccount:istio-system:ztunnel",
        "kubernetes.io": {"namespace": "istio-system", "pod": {"name": pod.0, "uid": pod.1}},
    }));
    let proof = Proof::Token(token);
    let named = prost_types::Value {
        kind: Some(Kind::StringValue(identity.to_owned())),
    };
    let fields = BTreeMap::from([("ImpersonatedIdentity".to_owned(), named)]);
    let request = IstioCertificateRequest {
        csr: csr(identity).expect("a CSR"),
        validity_duration: 3600,
        metadata: Some(prost_types::Struct { fields }),
    };

    let channel = client::channel(server.secure, &server.root(), &proof);
    IstioCertificateServiceClient::new(channel)
        .create_certificate(client::signed(request, &proof))
        .await
        .map(tonic::Response::into_inner)
}

/// Checks that a chain is for an identity, and that one of the roots has signed it.
pub(crate) fn check_chain(chain: &[String], identity: &str, roots: &str) -> Result<()> {
    let ders: Vec<CertificateDer<'static>> = chain
        .iter()
        .flat_map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes()))
        .collect::<Result<_, _>>()?;
    let (_, leaf) = X509Certificate::from_der(ders.first().context("a leaf")?)?;
    let names = leaf.subject_alternative_name()?.context("names")?;
    let names: Vec<String> = names
        .value
        .general_names
        .iter()
        .map(ToString::to_string)
        .collect();
    ensure!(names == [format!("URI({identity})")], "{names:?}");

    let roots: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(roots.as_bytes()).collect::<Result<_, _>>()?;
    let mut issuer = leaf.issuer().as_raw().to_vec();
    for _ in 0..ders.len() {
        let is_issuer = |der: &&CertificateDer<'_>| {
            X509Certificate::from_der(der).is_ok_and(|(_, one)| one.subject().as_raw() == issuer)
        };
        if roots.iter().any(|root| is_issuer(&root)) {
            return Ok(());
        }
        let next = ders.iter().skip(1).find(is_issuer);
        let next = next.context("the chain has a gap")?;
        issuer = X509Certificate::from_der(next)?
            .1
            .issuer()
            .as_raw()
            .to_vec();
    }
    anyhow::bail!("the chain does not end in the company's roots")
}

/// The certificate and the roots that an agent gets with a token.
async fn by_agent(server: &Server) -> Result<(Vec<String>, String)> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("root.pem"), server.root())?;
    std::fs::write(path("token"), server.issuer.token(json!({})))?;
    let upstream = UpstreamConfig {
        address: server.secure.to_string(),
        transport: Transport::Tls {
            roots: Roots::File(path("root.pem")),
            certificate: None,
            server_name: Some("istiod.istio-system.svc".to_owned()),
        },
        token: Some(TokenSource::File(path("token"))),
        cluster: "Kubernetes".to_owned(),
        headers: BTreeMap::new(),
        keepalive: Keepalive::default(),
    };
    let config = SecretsConfig {
        identity: WEB.to_owned(),
        key: KeyKind::P256,
        key_format: KeyFormat::Pkcs8,
        lifetime: Duration::from_secs(3600),
        grace: Grace::default(),
        existing: CertificateFiles {
            chain: path("none.pem"),
            key: path("none-key.pem"),
            roots: path("none-root.pem"),
        },
        system_roots: None,
        output: None,
        debounce: Duration::from_millis(100),
    };

    let stop = CancellationToken::new();
    let ca = CaClient::new(Upstream::new(upstream), String::new());
    let (secrets, task) = Secrets::new(
        config,
        Some(ca),
        SystemTime::now,
        AgentMetrics::default(),
        stop.clone(),
    );
    let mut certificate = secrets.watch("default")?;
    let mut roots = secrets.watch("ROOTCA")?;
    let running = tokio::spawn(task.run());

    let got = async {
        certificate.changed().await?;
        roots.changed().await?;
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, got)
        .await
        .with_context(|| format!("the agent got nothing: {}", server.output()))??;
    let Some(Secret::Certificate { chain, .. }) = certificate.borrow().as_deref().cloned() else {
        anyhow::bail!("no certificate");
    };
    let Some(Secret::Roots(roots)) = roots.borrow().as_deref().cloned() else {
        anyhow::bail!("no roots");
    };

    stop.cancel();
    running.await?;
    let chain = vec![String::from_utf8(chain.to_vec())?];
    Ok((chain, String::from_utf8(roots.to_vec())?))
}

/// Checks an authority with these roots behind a server: a sidecar's agent and the proxy of the
/// pod's node get certificates of it, the proxy of another node and a CSR for another identity are
/// rejected.
pub(crate) async fn signs_for_sidecars_and_nodes(server: &Server, roots: &str) -> Result<()> {
    let (chain, trusted) = by_agent(server).await?;
    check_chain(&chain, WEB, roots).context("of the agent")?;
    for root in CertificateDer::pem_slice_iter(roots.as_bytes()) {
        let root = root?;
        let has = CertificateDer::pem_slice_iter(trusted.as_bytes())
            .any(|one| one.is_ok_and(|one| one == root));
        ensure!(has, "the agent lacks a root: {trusted}");
    }

    let answer = impersonate(server, ("ztunnel-1", "z1"), WEB).await?;
    check_chain(&answer.cert_chain, WEB, roots).context("of the node proxy")?;
    let elsewhere = impersonate(server, ("ztunnel-2", "z2"), WEB).await;
    let code = elsewhere.map_err(|status| status.code()).err();
    ensure!(code == Some(Code::Unauthenticated), "{code:?}");

    let token = Proof::Token(server.issuer.token(json!({})));
    let other = csr("spiffe://cluster.local/ns/shop/sa/admin")?;
    let stolen = server.certificate(&token, &other, 3600).await;
    let code = stolen.map_err(|status| status.code()).err();
    ensure!(code == Some(Code::InvalidArgument), "{code:?}");

    Ok(())
}

/// The signers that the debug API shows.
pub(crate) async fn signers(server: &Server) -> Result<Value> {
    let page: Value = serde_json::from_str(&server.page("ca").await?)?;
    Ok(page["signers"].clone())
}

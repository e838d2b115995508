//! What every authority of a company must do behind Navarch: sign for a sidecar's agent, and for
//! the node proxy of the node that a pod runs on, and nothing else.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use navarch_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use navarch_testkit::wait::{until_some, wanted};
use navarch_tests::chain::check_chain;
use prost_types::value::Kind;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::client::{self, Proof};
use crate::pod::Pod;
use crate::server::Server;

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

/// The certificate and the roots that a sidecar's agent writes for other programs.
async fn by_agent(server: &Server) -> Result<(String, String)> {
    let mut pod = Pod::start(server, &[("OUTPUT_CERTS", "./out")])?;
    pod.wait_ready().await.with_context(|| server.output())?;
    let chain = until_some("the certificate is written", async || {
        wanted(pod.file("out/cert-chain.pem"), |chain| !chain.is_empty())
    })
    .await;
    let roots = until_some("the roots are written", async || {
        wanted(pod.file("out/root-cert.pem"), |roots| !roots.is_empty())
    })
    .await;
    pod.stop().await?;
    Ok((chain, roots))
}

/// Checks an authority with these roots behind a server: a sidecar's agent and the proxy of the
/// pod's node get certificates of it, the proxy of another node and a CSR for another identity are
/// rejected.
pub(crate) async fn signs_for_sidecars_and_nodes(server: &Server, roots: &str) -> Result<()> {
    let (chain, trusted) = by_agent(server).await?;
    check_chain(&[chain], WEB, roots).context("of the agent")?;
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

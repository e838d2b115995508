//! A CA that is not the control plane's (`ENABLE_CA_SERVER=false`), such as istio-csr: it issues
//! the certificates, Navarch serves the configuration, and both sides trust the CA's root.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Result, ensure};
use navarch_testkit::wait::until;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;

use crate::MESH;
use crate::client::Proof;
use crate::pod::Pod;
use crate::server::Server;

/// A directory with a mesh, istiod's serving certificate from a CA with a state directory, its key,
/// and the CA's root.
fn mounted(state: &Path) -> Result<TempDir> {
    let of_ca = |name: &str| std::fs::read_to_string(state.join(name));
    let root = of_ca("ca-cert.pem")?;
    let issuer = Issuer::from_ca_cert_pem(&root, KeyPair::from_pem(&of_ca("ca-key.pem")?)?)?;
    let mut params = CertificateParams::new(vec!["istiod.istio-system.svc".to_owned()])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("mesh"))?;

    std::fs::write(folder.path().join("mesh/mesh.yaml"), MESH)?;
    let files = [
        ("tls.crt", params.signed_by(&key, &issuer)?.pem()),
        ("tls.key", key.serialize_pem()),
        ("ca.crt", root),
    ];
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text)?;
    }

    Ok(folder)
}

#[tokio::test]
async fn certificates_can_be_issued_by_a_remote_ca() -> Result<()> {
    let ca = Server::with_variables(MESH, "ISTIOD_CUSTOM_HOST=localhost").await?;
    let folder = mounted(&ca.folder().join("state"))?;
    let flags = [
        ("tlsCertFile", "tls.crt"),
        ("tlsKeyFile", "tls.key"),
        ("caCertFile", "ca.crt"),
    ];
    let flags =
        flags.map(|(flag, name)| format!("--{flag}={}", folder.path().join(name).display()));

    let variables = "ENABLE_CA_SERVER=false".to_owned();
    let here = IpAddr::from([127, 0, 0, 1]);
    let server = Server::start_in(folder, ca.issuer.clone(), variables, here, &flags).await?;

    let address = format!("localhost:{}", ca.secure.port());
    let mut pod = Pod::start(
        &server,
        &[("CA_ADDR", &address), ("OUTPUT_CERTS", "certificates")],
    )?;
    pod.wait_ready().await?;
    let clusters = pod.get(pod.admin, "/clusters").await?.1;
    ensure!(
        clusters.contains("outbound|80||bank.example"),
        "configuration arrived: {clusters}"
    );

    until("it has an identity", async || {
        pod.file("certificates/cert-chain.pem")
            .contains("BEGIN CERTIFICATE")
    })
    .await;
    until("it has the CA's root", async || {
        pod.file("certificates/root-cert.pem").trim() == ca.root().trim()
    })
    .await;
    let signed = "citadel_server_success_cert_issuance_count 1";
    ensure!(
        ca.metrics().await?.contains(signed),
        "the CA signed the certificate: {}",
        ca.metrics().await?
    );

    let token = Proof::Token(server.issuer.token(json!({})));
    let error = server
        .certificate(&token, "", 0)
        .await
        .map(drop)
        .unwrap_err();
    ensure!(
        error.code() == Code::Unimplemented,
        "the control plane does not sign: {error}"
    );

    pod.stop().await?;
    Ok(())
}

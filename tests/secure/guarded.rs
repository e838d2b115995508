//! Rights for changes, the validity of certificates on open connections, and annotations that users
//! must not forge.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use navarch_testkit::client as web;
use navarch_testkit::skip::skip;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::HandshakeKind;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tonic::{Code, Status};

use crate::client::{self, Proof};
use crate::past::own_address;
use crate::server::{MESH, SECRETS, Server, node};

/// Timeout of each step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// The HTTP/2 preface, and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn pages_with_an_effect_take_a_post_and_links_to_them_do_nothing() -> Result<()> {
    let server = Server::start().await?;
    let [http, monitoring] = server.web();

    for address in [http, monitoring] {
        for path in [
            "/debug/adsz?push=true",
            "/debug/adsz?%70ush=true",
            "/debug/cachez?clear=true",
        ] {
            for method in ["GET", "HEAD"] {
                let denied = web::send(method, address, "localhost", path, &[]).await?;
                ensure!(denied.status == 405, "{method} {path}: {denied:?}");
            }
        }

        let pushed = web::send("POST", address, "localhost", "/debug/adsz?push=true", &[]).await?;
        ensure!(pushed.status == 200, "{pushed:?}");
        let listed = web::get(address, "localhost", "/debug/adsz", &[]).await?;
        ensure!(listed.status == 200, "{listed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn ca_commands_are_accepted_only_from_loopback_and_not_from_browsers() -> Result<()> {
    let server = Server::at(IpAddr::from([0, 0, 0, 0])).await?;
    let [http, monitoring] = server
        .web()
        .map(|address| SocketAddr::from(([127, 0, 0, 1], address.port())));
    let begin = [("x-navarch-ca-command", "begin")];

    for address in [http, monitoring] {
        // A page that uses DNS rebinding sends its own host name.
        for host in [
            "rebound.example",
            "127.0.0.1.rebound.example",
            "localhost.rebound.example:8080",
        ] {
            let denied = web::send("POST", address, host, "/debug/ca", &begin).await?;
            ensure!(denied.status == 403, "{host}: {denied:?}");
            let denied = web::get(address, host, "/debug/syncz", &[]).await?;
            ensure!(denied.status == 401, "{host}: {denied:?}");
        }

        for host in ["localhost", "127.0.0.1:8080", "[::1]"] {
            ensure!(
                web::get(address, host, "/debug/syncz", &[]).await?.status == 200,
                "{host}"
            );
        }
    }

    let operator = server
        .issuer
        .token(json!({"sub": "system:serviceaccount:istio-system:istiod"}));
    let bearer = format!("Bearer {operator}");
    let ordered = [
        ("x-navarch-ca-command", "begin"),
        ("authorization", bearer.as_str()),
    ];

    match own_address() {
        Some(own) => {
            let elsewhere = SocketAddr::new(own, http.port());
            let seen = web::get(elsewhere, "istiod", "/debug/ca", &ordered).await?;
            ensure!(
                seen.status == 200,
                "operators can read the state of the rotation: {seen:?}"
            );
            let denied = web::send("POST", elsewhere, "istiod", "/debug/ca", &ordered).await?;
            ensure!(denied.status == 403, "but not change it: {denied:?}");
        }
        None => skip("the machine has only loopback addresses"),
    }

    // Under another host name a token is required, and it permits reading only.
    ensure!(
        web::get(http, "istiod", "/debug/ca", &ordered)
            .await?
            .status
            == 200
    );

    ensure!(
        web::send("POST", http, "istiod", "/debug/ca", &ordered)
            .await?
            .status
            == 403
    );

    let settled = web::get(http, "localhost", "/debug/ca", &[]).await?;
    ensure!(
        settled.body.contains("settled"),
        "no rotation was started: {settled:?}"
    );
    let done = web::send("POST", http, "localhost", "/debug/ca", &begin).await?;
    ensure!(
        done.status == 200 && done.body.contains("distributing"),
        "{done:?}"
    );

    Ok(())
}

#[tokio::test]
async fn sessions_are_not_resumed_with_an_earlier_certificate() -> Result<()> {
    let server = Server::start().await?;
    let token = Proof::Token(server.issuer.token(json!({})));
    let proof = server.prove_by_certificate(&token).await?;

    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut config = client::tls_of(&[version], &server.root(), &proof);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);

        for attempt in 0..3 {
            let name = ServerName::try_from("istiod.istio-system.svc")?;
            let stream = TcpStream::connect(server.secure).await?;
            let mut stream = TlsConnector::from(config.clone())
                .connect(name, stream)
                .await?;
            let kind = stream.get_ref().1.handshake_kind();
            ensure!(
                kind == Some(HandshakeKind::Full),
                "{version:?} {attempt}: {kind:?}"
            );

            // By its settings, tickets would have come, too.
            stream.write_all(PREFACE).await?;
            let mut settings = [0; 9];
            stream.read_exact(&mut settings).await?;
        }
    }

    Ok(())
}

/// A plugged-in CA in a directory.
struct Plugged {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Plugged {
    fn new(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "plugged in");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let certificate = issuer.pem();

        let key = issuer.key().serialize_pem();

        for (name, text) in [
            ("ca-cert.pem", &certificate),
            ("ca-key.pem", &key),
            ("cert-chain.pem", &certificate),
            ("root-cert.pem", &certificate),
        ] {
            std::fs::write(folder.join(name), text)?;
        }

        Ok(Self { issuer })
    }

    /// Revokes a certificate.
    fn revoke(&self, folder: &Path, serial: &[u8]) -> Result<()> {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };

        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };

        // An unreadable revocation list has no effect.
        let broken = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
        std::fs::write(
            folder.join("ca-crl.pem"),
            format!("{broken}{}", list.signed_by(&self.issuer)?.pem()?),
        )?;

        Ok(())
    }
}

/// Requests a certificate for a new key, with these credentials.
async fn renew(server: &Server, root: &str, proof: &Proof) -> Result<Proof, Status> {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default()
        .serialize_request(&key)
        .unwrap()
        .pem()
        .unwrap();
    let request = IstioCertificateRequest {
        csr,
        ..IstioCertificateRequest::default()
    };

    let mut service =
        IstioCertificateServiceClient::new(client::channel(server.secure, root, proof));
    let mut chain = service
        .create_certificate(client::signed(request, proof))
        .await?
        .into_inner()
        .cert_chain;
    chain.pop();

    Ok(Proof::Certificate(chain.concat(), key.serialize_pem()))
}

#[tokio::test]
async fn revoked_certificates_are_rejected_and_others_accepted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let plugged = Plugged::new(folder.path())?;
    let root = plugged.issuer.pem();
    let server =
        Server::with_variables(MESH, &format!("ROOT_CA_DIR={}", folder.path().display())).await?;
    let token = Proof::Token(server.issuer.token(json!({})));
    let bad = renew(&server, &root, &token).await?;
    let good = renew(&server, &root, &token).await?;

    renew(&server, &root, &bad).await?;
    let Proof::Certificate(chain, _) = &bad else {
        anyhow::bail!("no certificate")
    };

    let leaf = CertificateDer::from_pem_slice(chain.as_bytes())?;
    let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).context("a certificate")?;
    plugged.revoke(folder.path(), leaf.raw_serial())?;
    let end = Instant::now() + TIMEOUT;

    while renew(&server, &root, &bad).await.is_ok() {
        ensure!(
            Instant::now() < end,
            "the revoked certificate is still accepted: {}",
            server.output()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    renew(&server, &root, &good)
        .await
        .context("the other certificate is accepted")?;
    ensure!(
        server
            .output()
            .contains("failed to parse a certificate revocation list"),
        "{}",
        server.output()
    );

    Ok(())
}

#[tokio::test]
async fn a_certificate_that_expires_during_its_connection_is_rejected() -> Result<()> {
    let server = Server::start().await?;
    let token = Proof::Token(server.issuer.token(json!({})));
    let key = KeyPair::generate()?;
    let csr = CertificateParams::default()
        .serialize_request(&key)?
        .pem()?;
    let mut chain = server.certificate(&token, &csr, 8).await?.cert_chain;
    chain.pop();

    let proof = Proof::Certificate(chain.concat(), key.serialize_pem());
    let mut service =
        IstioCertificateServiceClient::new(client::channel(server.secure, &server.root(), &proof));
    let request = IstioCertificateRequest {
        csr,
        ..IstioCertificateRequest::default()
    };
    service.create_certificate(request.clone()).await?;

    let end = Instant::now() + TIMEOUT;

    // Either the call is rejected, or the server has closed the connection, which may interrupt a
    // call, and then the next handshake fails.
    let is_expired = |error: &Status| {
        error.code() == Code::Unauthenticated && error.message().contains("expired")
            || format!("{error:?}").contains("CertificateExpired")
    };

    loop {
        match service.create_certificate(request.clone()).await {
            Err(error) if is_expired(&error) => return Ok(()),
            outcome => ensure!(Instant::now() < end, "{outcome:?}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn objects_cannot_forge_annotations_of_the_control_plane() -> Result<()> {
    let mesh = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata:\n  name: edge\n  namespace: shop\n  \
        annotations:\n    internal.istio.io/gateway-semantics: gateway\n    internal.istio.io/gateway-service: \
        istio-ingressgateway.istio-system.svc.cluster.local\n    kept.example/one: two\nspec:\n  selector: {app: edge}\n  \
        servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]\n";
    let server = Server::with_mesh(mesh).await?;
    let shown = server.page("configz").await?;
    ensure!(
        shown.contains("kept.example/one") && !shown.contains("internal.istio.io"),
        "{shown}"
    );
    ensure!(
        server.output().contains("generated objects only"),
        "the rejection is logged: {}",
        server.output()
    );
    Ok(())
}

#[tokio::test]
async fn without_xds_auth_the_identity_of_a_client_neither_denies_nor_permits_access() -> Result<()>
{
    let server = Server::with_variables(MESH, "XDS_AUTH=false").await?;
    let as_other = Proof::Token(
        server
            .issuer
            .token(json!({ "sub": "system:serviceaccount:other:other" })),
    );
    let as_itself = Proof::Token(
        server
            .issuer
            .token(json!({ "sub": "system:serviceaccount:shop:edge" })),
    );

    // A certificate of files may have one fixed name, as in Istio's suite file_mounted_certs.
    for proof in [&as_other, &Proof::Nothing] {
        let clusters = server
            .resources(proof, node("shop", "edge"), CLUSTERS, &[])
            .await?;
        ensure!(!clusters.is_empty());
    }

    // Nobody is asked who he is, so nobody gets secrets.
    let secret = server
        .resources(
            &as_itself,
            node("shop", "edge"),
            SECRETS,
            &["kubernetes://tls"],
        )
        .await;
    ensure!(secret.is_ok_and(|secrets| secrets.is_empty()));
    Ok(())
}

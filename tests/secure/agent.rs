//! The agent's CA client: it gets a certificate with a token, renews it in time, and renews it with
//! the certificate itself if the token is missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use navarch::agent::credentials::TokenSource;
use navarch::agent::metrics::AgentMetrics;
use navarch::agent::secrets::{
    CaClient, CertificateFiles, Grace, KeyFormat, KeyKind, OutputFiles, Secret, SecretWatch,
    Secrets, SecretsConfig,
};
use navarch::agent::upstream::{KeyFiles, Roots, Transport, Upstream, UpstreamConfig};
use navarch_net::grpc_target::Keepalive;
use navarch_testkit::wait::{until, until_some, wanted};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::Server;

/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The next value of a secret.
async fn next(watch: &mut SecretWatch) -> Result<Arc<Secret>> {
    tokio::time::timeout(TIMEOUT, watch.changed())
        .await
        .context("no secret arrived")??;
    watch.borrow_and_update().clone().context("a value")
}

/// The chain of a certificate.
fn chain(secret: &Secret) -> Result<String> {
    match secret {
        Secret::Certificate { chain, .. } => Ok(String::from_utf8(chain.to_vec())?),
        Secret::Roots(_) => bail!("roots"),
    }
}

#[tokio::test]
async fn the_agent_renews_its_certificate_by_token_and_by_certificate() -> Result<()> {
    renews(KeyFormat::Pkcs8, "-----BEGIN PRIVATE KEY-----").await
}

#[tokio::test]
async fn the_agent_renews_its_certificate_with_a_key_in_the_traditional_format() -> Result<()> {
    renews(KeyFormat::Traditional, "-----BEGIN EC PRIVATE KEY-----").await
}

/// Has an agent get and renew certificates with keys of this format, which begin with `header`.
async fn renews(key_format: KeyFormat, header: &str) -> Result<()> {
    let server = Server::start().await?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("root.pem"), server.root())?;
    let upstream = UpstreamConfig {
        address: server.secure.to_string(),
        transport: Transport::Tls {
            roots: Roots::File(path("root.pem")),
            certificate: Some(KeyFiles {
                chain: path("out/cert-chain.pem"),
                key: path("out/key.pem"),
            }),
            server_name: Some("istiod.istio-system.svc".to_owned()),
        },
        token: Some(TokenSource::File(path("token"))),
        cluster: "Kubernetes".to_owned(),
        headers: BTreeMap::new(),
        keepalive: Keepalive::default(),
    };

    let config = SecretsConfig {
        identity: "spiffe://cluster.local/ns/shop/sa/web".to_owned(),
        key: KeyKind::P256,
        key_format,
        lifetime: Duration::from_secs(4),
        grace: Grace::default(),
        existing: CertificateFiles {
            chain: path("out/cert-chain.pem"),
            key: path("out/key.pem"),
            roots: path("out/root-cert.pem"),
        },
        system_roots: None,
        output: Some(OutputFiles::new(path("out"), false)),
        debounce: Duration::from_millis(100),
    };

    let stop = CancellationToken::new();
    let ca = CaClient::new(Upstream::new(upstream), String::new());
    let metrics = AgentMetrics::default();
    let (secrets, task) = Secrets::new(
        config,
        Some(ca),
        SystemTime::now,
        metrics.clone(),
        stop.clone(),
    );

    let mut certificate = secrets.watch("default")?;
    let mut roots = secrets.watch("ROOTCA")?;
    let running = tokio::spawn(task.run());

    // Without a token there is no certificate, and the agent keeps trying.
    let mut registry = Registry::default();
    let retries = "istio_agent_num_outgoing_retries{request_type=\"csr\"}";
    metrics.register(&mut registry);
    until_some("it tries again", async || {
        let mut counted = String::new();
        encode(&mut counted, &registry).map_err(|error| error.to_string())?;
        wanted(counted, |counted| counted.contains(retries))
    })
    .await;
    ensure!(!certificate.has_changed()?, "no certificate is issued");
    std::fs::write(path("token"), server.issuer.token(json!({})))?;
    let first = chain(&*next(&mut certificate).await?)?;
    ensure!(
        next(&mut roots).await?.as_ref() == &Secret::Roots(server.root().into()),
        "the root is the CA's"
    );

    // The token is missing, as on a rebooted machine: the agent uses the certificate files.
    let written = async || {
        std::fs::read_to_string(path("out/cert-chain.pem")).is_ok_and(|written| written == first)
    };
    until("the certificate is written", written).await;
    let key = std::fs::read_to_string(path("out/key.pem"))?;
    ensure!(key.starts_with(header), "the key is in another format");
    std::fs::remove_file(path("token"))?;
    let second = chain(&*next(&mut certificate).await?)?;
    ensure!(second != first, "another one");

    let log = server.output();
    ensure!(!log.contains("PRIVATE KEY"), "no key in the log");
    stop.cancel();
    running.await?;

    Ok(())
}

//! A machine without a token in a file: it authenticates by a token of the cloud's metadata server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use axum::Router;
use axum::extract::Request;
use navarch_testkit::wait::until;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

/// A metadata server of Google, which has a token for everyone that asks as its clients do.
struct MetadataServer {
    address: SocketAddr,
    /// Path and query of each request with the header of its clients.
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl MetadataServer {
    async fn start(token: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let taken = requests.clone();

        let app = Router::new().fallback(move |request: Request| {
            let is_client = request
                .headers()
                .get("metadata-flavor")
                .is_some_and(|flavor| flavor == "Google");
            let body = if is_client {
                taken.lock().push(request.uri().to_string());
                token.clone()
            } else {
                String::new()
            };
            async move { body }
        });

        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Ok(Self {
            address,
            requests,
            task,
        })
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_machine_without_a_token_file_authenticates_by_its_metadata_server() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let metadata = MetadataServer::start(server.issuer.token(json!({}))).await?;
    let address = metadata.address.to_string();
    let mut pod = Pod::start_without_token(
        &server,
        &[
            ("CREDENTIAL_FETCHER_TYPE", "GoogleComputeEngine"),
            ("GCE_METADATA_HOST", &address),
            ("NAVARCH_CREDENTIAL_AUDIENCE", "istio-ca"),
            ("OUTPUT_CERTS", "certificates"),
        ],
    )?;

    pod.wait_ready().await?;
    let clusters = pod.get(pod.admin, "/clusters").await?.1;
    ensure!(
        clusters.contains("outbound|80||bank.example"),
        "configuration arrived: {clusters}"
    );
    until("the CA has signed a certificate", async || {
        pod.file("certificates/cert-chain.pem")
            .contains("BEGIN CERTIFICATE")
    })
    .await;

    let path = "/computeMetadata/v1/instance/service-accounts/default/identity";
    let expected = [format!("{path}?audience=istio-ca&format=full")];
    let requests = metadata.requests.lock().clone();
    ensure!(requests == expected, "one token for both: {requests:?}");

    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn the_agent_does_not_start_with_credentials_that_it_cannot_get() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let rejected = [
        (
            "CREDENTIAL_FETCHER_TYPE",
            "GoogleComputEngine",
            "is unknown",
        ),
        ("CREDENTIAL_FETCHER_TYPE", "AmazonEC2", "is not a JWT"),
        ("XDS_AUTH_PROVIDER", "other", "is unknown"),
        ("CA_PROVIDER", "GoogleCAS", "Google's own API"),
    ];

    for (name, value, reason) in rejected {
        let variables = [(name, value), ("CLOUD_PLATFORM", "none")];
        let mut pod = Pod::start_without_token(&server, &variables)?;
        let code = pod.end().await?;
        let log = pod.log();
        ensure!(code != 0, "{name}={value}: {log}");
        ensure!(log.contains(name) && log.contains(reason), "{log}");
    }
    Ok(())
}

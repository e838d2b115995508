//! The agent's token service, with a token server that requires a client certificate and basic
//! authentication.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use navarch::agent::local_http::{LocalRequest, LocalResponse};
use navarch_testkit::{ports, wait};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

const TIMEOUT: Duration = Duration::from_secs(20);
/// The kind of tokens that the server issues.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// What a token server received.
#[derive(Clone, Debug)]
struct Received {
    authorization: String,
    form: String,
}

/// What a server has received.
type Kept<T> = Arc<Mutex<Vec<T>>>;

/// A server with TLS on loopback, and what it has received.
struct TlsServer<T> {
    port: u16,
    received: Kept<T>,
    _tasks: JoinSet<()>,
}

impl<T: Clone + Send + 'static> TlsServer<T> {
    /// Starts it. `respond` answers each request, and keeps what it received.
    async fn start<F>(
        config: ServerConfig,
        respond: fn(Request<Incoming>, Kept<T>) -> F,
    ) -> Result<Self>
    where
        F: Future<Output = Result<Response<Full<Bytes>>>> + Send + 'static,
    {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let received: Kept<T> = Arc::default();
        let kept = received.clone();
        let mut tasks = JoinSet::new();

        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let kept = kept.clone();
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| respond(request, kept.clone()));
                    let server = auto::Builder::new(TokioExecutor::new());
                    drop(server.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });

        Ok(Self {
            port,
            received,
            _tasks: tasks,
        })
    }

    fn received(&self) -> Vec<T> {
        self.received.lock().clone()
    }
}

/// Starts a token server, which rejects the audience `nobody`, and writes the files for its clients
/// into a folder.
async fn start_token_server(folder: &Path) -> Result<TlsServer<Received>> {
    TlsServer::start(server_config(folder)?, respond).await
}

/// The response to an exchange.
async fn respond(
    request: Request<Incoming>,
    kept: Kept<Received>,
) -> Result<Response<Full<Bytes>>> {
    let authorization = request
        .headers()
        .get("authorization")
        .context("no authentication")?
        .to_str()?
        .to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let form = String::from_utf8(body.to_vec())?;

    let is_rejected = form.contains("audience=nobody");
    let number = {
        let mut kept = kept.lock();
        kept.push(Received {
            authorization,
            form,
        });
        kept.len()
    };
    let (status, body) = if is_rejected {
        (400_u16, json!({"error": "invalid_target"}))
    } else {
        let token = json!({"access_token": format!("issued-{number}"), "issued_token_type": ACCESS_TOKEN,
            "token_type": "Bearer", "expires_in": 3600});
        (200, token)
    };
    Ok(Response::builder()
        .status(status)
        .body(Full::new(Bytes::from(body.to_string())))?)
}

/// TLS for `localhost`, for clients with a certificate of the same CA. Writes the CA's root, a
/// client's certificate and key, and its secret.
fn server_config(folder: &Path) -> Result<ServerConfig> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let root = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(vec!["agent".to_owned()])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let client = params.signed_by(&key, &issuer)?;
    fs::write(folder.join("ca.pem"), root.pem())?;
    fs::write(folder.join("client.pem"), client.pem())?;
    fs::write(folder.join("client.key"), key.serialize_pem())?;
    fs::write(folder.join("secret"), "s3cret\n")?;

    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let own = params.signed_by(&key, &issuer)?;
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone())?;
    let provider = navarch_net::cryptography::provider();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
    Ok(builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own.der().clone()], key)?)
}

/// Requests a token of the agent.
async fn request_token(port: u16, subject: &str, audience: &str) -> Result<LocalResponse> {
    let mut request = LocalRequest::post("127.0.0.1", port, "/token", TIMEOUT);
    request
        .headers
        .insert("content-type", "application/x-www-form-urlencoded".parse()?);
    request.body = format!(
        "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&audience={audience}\
         &subject_token={subject}&subject_token_type=urn:ietf:params:oauth:token-type:jwt"
    )
    .into();
    Ok(request.send().await?)
}

#[tokio::test]
async fn the_agent_exchanges_tokens_at_a_server_that_authenticates_it() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let folder = tempfile::tempdir()?;
    let tokens = start_token_server(folder.path()).await?;
    let url = format!("https://localhost:{}/token", tokens.port);
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let variables: [(&str, &str); 7] = [
        ("DISABLE_ENVOY", "true"),
        ("NAVARCH_STS_URL", &url),
        ("NAVARCH_STS_CA_FILE", &file("ca.pem")),
        ("NAVARCH_STS_CLIENT_CERTIFICATE", &file("client.pem")),
        ("NAVARCH_STS_CLIENT_KEY", &file("client.key")),
        ("NAVARCH_STS_CLIENT_ID", "agent"),
        ("NAVARCH_STS_CLIENT_SECRET_FILE", &file("secret")),
    ];
    let port = ports::free()?;
    let flag = format!("--stsPort={port}");
    let mut pod = Pod::start_with_flags(
        &server,
        "sidecar",
        &[],
        &variables,
        &json!({}),
        &[&flag, "--tokenManagerPlugin=TokenExchange"],
    )?;

    let first = wait::until_some("the token service listens", async || {
        request_token(port, "e30.c3ViamVjdA.c2ln", "bank").await
    })
    .await;
    let second = request_token(port, "e30.c3ViamVjdA.c2ln", "bank").await?;
    for response in [&first, &second] {
        let body: Value = serde_json::from_slice(&response.body)?;
        ensure!(
            response.status == 200 && body["access_token"] == "issued-1",
            "{}: {body}\n{}",
            response.status,
            pod.log()
        );
    }

    let received = tokens.received();
    ensure!(received.len() == 1, "one exchange: {received:?}");
    let basic = format!("Basic {}", STANDARD.encode("agent:s3cret"));
    ensure!(received[0].authorization == basic, "{received:?}");
    for part in ["subject_token=e30.c3ViamVjdA.c2ln", "audience=bank"] {
        ensure!(received[0].form.contains(part), "{received:?}");
    }

    let rejected = request_token(port, "e30.c3ViamVjdA.c2ln", "nobody").await?;
    let body: Value = serde_json::from_slice(&rejected.body)?;
    ensure!(
        rejected.status == 400 && body["error"] == "invalid_target",
        "{}: {body}",
        rejected.status
    );

    let (_, status) = pod.get(port, "/stsStatus").await?;
    ensure!(
        status.contains(ACCESS_TOKEN) && status.contains("\"target\":\"bank\""),
        "{status}"
    );
    for secret in ["issued-1", "c3ViamVjdA", "s3cret"] {
        ensure!(!status.contains(secret), "{status}");
        ensure!(!pod.log().contains(secret), "the log: {}", pod.log());
    }

    pod.stop().await?;
    Ok(())
}

/// Starts a gRPC server that keeps the `authorization` of each call, and writes the file that
/// verifies it.
async fn start_receiver(root: &Path) -> Result<TlsServer<String>> {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    fs::write(root, own.cert.pem())?;
    let key = PrivateKeyDer::from_pem_slice(own.signing_key.serialize_pem().as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(navarch_net::cryptography::provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];

    TlsServer::start(config, keep_authorization).await
}

/// Keeps the credentials of a call, and ends it.
async fn keep_authorization(
    request: Request<Incoming>,
    kept: Kept<String>,
) -> Result<Response<Full<Bytes>>> {
    let value = request.headers().get("authorization");
    let text = value.map_or("none", |value| value.to_str().unwrap_or("not text"));
    kept.lock().push(text.to_owned());

    let response = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", "12");
    Ok(response.body(Full::new(Bytes::new()))?)
}

#[tokio::test]
async fn a_real_envoy_gets_its_call_credentials_from_the_agent() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let folder = tempfile::tempdir()?;
    let tokens = start_token_server(folder.path()).await?;
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let receiver = start_receiver(Path::new(&file("receiver.pem"))).await?;
    let port = ports::free()?;

    let sts_service = json!({
        "tokenExchangeServiceUri": format!("http://127.0.0.1:{port}/token"),
        "subjectTokenPath": "var/run/secrets/tokens/istio-token",
        "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
        "audience": "bank",
    });
    let google_grpc = json!({
        "targetUri": format!("127.0.0.1:{}", receiver.port),
        "statPrefix": "receiver",
        "channelCredentials": {"sslCredentials": {"rootCerts": {"filename": file("receiver.pem")}}},
        "callCredentials": [{"stsService": sts_service}],
    });
    let sink = json!({
        "@type": "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig",
        "transportApiVersion": "V3",
        "grpcService": {"googleGrpc": google_grpc},
    });
    let name = "envoy.stat_sinks.metrics_service";
    let over = json!({"statsSinks": [{"name": name, "typedConfig": sink}]});
    fs::write(file("override.json"), over.to_string())?;

    let url = format!("https://localhost:{}/token", tokens.port);
    let variables: [(&str, &str); 7] = [
        ("ISTIO_BOOTSTRAP_OVERRIDE", &file("override.json")),
        ("NAVARCH_STS_URL", &url),
        ("NAVARCH_STS_CA_FILE", &file("ca.pem")),
        ("NAVARCH_STS_CLIENT_CERTIFICATE", &file("client.pem")),
        ("NAVARCH_STS_CLIENT_KEY", &file("client.key")),
        ("NAVARCH_STS_CLIENT_ID", "agent"),
        ("NAVARCH_STS_CLIENT_SECRET_FILE", &file("secret")),
    ];
    let flag = format!("--stsPort={port}");
    let flags = [flag.as_str(), "--tokenManagerPlugin=TokenExchange"];
    let mut pod = Pod::start_with_flags(&server, "sidecar", &[], &variables, &json!({}), &flags)?;
    pod.wait_ready().await?;

    let authorization = wait::until_some("Envoy calls with a token", async || {
        let first = receiver.received().first().cloned();
        first.with_context(|| format!("no call yet:\n{}", pod.log()))
    })
    .await;
    ensure!(authorization == "Bearer issued-1", "{authorization}");
    let received = tokens.received();
    ensure!(received[0].form.contains("audience=bank"), "{received:?}");

    pod.stop().await?;
    Ok(())
}

#[tokio::test]
async fn the_agent_does_not_start_with_an_unknown_plugin_for_tokens() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let flag = format!("--stsPort={}", ports::free()?);
    let mut pod = Pod::start_with_flags(
        &server,
        "sidecar",
        &[],
        &[("DISABLE_ENVOY", "true")],
        &json!({}),
        &[&flag, "--tokenManagerPlugin=Vault"],
    )?;
    let code = pod.end().await?;
    ensure!(
        code == 1
            && pod
                .log()
                .contains("--tokenManagerPlugin=\"Vault\" is unknown"),
        "{code}: {}",
        pod.log()
    );
    Ok(())
}

//! Clients of the Kubernetes API.

use std::path::Path;
use std::task::{self, Poll};
use std::time::Duration;

use anyhow::Context;
use futures_util::TryFutureExt;
use futures_util::future::ErrInto;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Builder, Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower_service::Service;

use super::api_rate::{ApiRate, Limited};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Read buffer of a connection: several TLS records.
const READ_BUFFER_BYTES: usize = 32 << 10;

/// A client of a kubeconfig, or of the cluster that this process runs in. Sends no request yet.
///
/// # Errors
/// If the file cannot be read, or there is none and this process does not run in a pod.
pub(super) async fn client(
    kubeconfig: Option<&Path>,
    rate: Option<ApiRate>,
) -> anyhow::Result<kube::Client> {
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("--kubeconfig {}", path.display()))?;
            let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            config.with_context(|| format!("--kubeconfig {}", path.display()))?
        }
        None => kube::Config::incluster().context(
            "not running in a cluster: set --kubeconfig FILE, or --config-dir DIR to read the configuration from files",
        )?,
    };
    client_of(config, rate)
}

/// A client of this configuration. Sends no request yet.
///
/// # Errors
/// If its certificates are invalid.
pub(super) fn client_of(
    mut config: kube::Config,
    rate: Option<ApiRate>,
) -> anyhow::Result<kube::Client> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // The caller decides about timeouts and retries.
    config.default_retry = false;
    connect(config, rate).context("failed to use the Kubernetes API")
}

/// A client for a command, with the user's configuration.
///
/// # Errors
/// As [`client_of`].
pub(crate) fn api_client(config: kube::Config) -> anyhow::Result<kube::Client> {
    client_of(config, None)
}

/// A client whose connections have small buffers. By default they grow to a megabyte each during
/// the initial lists, and there is one connection per kind.
fn connect(config: kube::Config, rate: Option<ApiRate>) -> kube::Result<kube::Client> {
    if config.proxy_url.is_some() {
        // Only the general client supports proxies.
        if rate.is_some() {
            tracing::warn!(
                "--kubernetesApiQPS and --kubernetesApiBurst have no effect, because the kubeconfig has a proxy"
            );
        }
        return kube::Client::try_from(config);
    }

    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);

    // Disables Nagle's algorithm, which would delay the end of a small request.
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let mut http = Builder::new(TokioExecutor::new());
    let http = http
        .http1_max_buf_size(READ_BUFFER_BYTES)
        .build::<_, Body>(connector);

    let client = ClientBuilder::new(
        Limited::new(Http(http), rate),
        config.default_namespace.clone(),
    );
    let client = client.with_layer(&config.extra_headers_layer()?);
    let base = config.base_uri_layer();

    Ok(match config.auth_layer()? {
        Some(auth) => client.with_layer(&auth).with_layer(&base).build(),
        None => client.with_layer(&base).build(),
    })
}

/// The HTTP client, with the error type that the layers around it require.
#[derive(Clone)]
struct Http<C>(Client<C, Body>);

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<Body>> for Http<C> {
    type Response = Response<Incoming>;
    type Error = AnyError;
    type Future = ErrInto<ResponseFuture, AnyError>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), AnyError>> {
        self.0.poll_ready(context).map_err(AnyError::from)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request).err_into()
    }
}

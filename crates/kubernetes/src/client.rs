//! Clients of the Kubernetes API.

use std::path::Path;
use std::sync::OnceLock;
use std::task::{self, Poll};
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::ErrInto;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Builder, Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower_service::Service;

use crate::api_rate::{ApiRate, Limited};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Read buffer of a connection: several TLS records.
const READ_BUFFER_BYTES: usize = 32 << 10;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read.
    #[error("--kubeconfig {path}")]
    Kubeconfig {
        /// The value of the flag.
        path: String,
        /// Why not.
        source: KubeconfigError,
    },
    /// There is no kubeconfig, and the process does not run in a pod.
    #[error(
        "not running in a cluster: set --kubeconfig FILE, or --config-dir DIR to read the configuration from files"
    )]
    NotInCluster(#[from] InClusterError),
    /// The configuration is invalid, such as its certificates.
    #[error("failed to use the Kubernetes API")]
    Unusable(#[from] kube::Error),
}

/// A client of a kubeconfig, or of the cluster that this process runs in. Sends no request yet.
///
/// # Errors
/// If the file cannot be read, or there is none and this process does not run in a pod.
pub async fn client(
    kubeconfig: Option<&Path>,
    rate: Option<ApiRate>,
) -> Result<kube::Client, ClientError> {
    let config = match kubeconfig {
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig {
                path: path.display().to_string(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(failed)?
        }
        None => kube::Config::incluster()?,
    };
    client_of(config, rate)
}

/// How clients connect, if not over TCP; `None` for an API server that it does not know.
pub type Connector = Box<dyn Fn(&kube::Config) -> Option<kube::Client> + Send + Sync>;

/// Set by [`connect_by`].
static CONNECT: OnceLock<Connector> = OnceLock::new();

/// Connects all later clients of this process so, for simulations. Only the first call has an
/// effect.
pub fn connect_by(connect: Connector) {
    // A process runs one simulation.
    let _ = CONNECT.set(connect);
}

/// A client of this configuration. Sends no request yet.
///
/// # Errors
/// If its certificates are invalid.
pub fn client_of(
    mut config: kube::Config,
    rate: Option<ApiRate>,
) -> Result<kube::Client, ClientError> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // The caller decides about timeouts and retries.
    config.default_retry = false;
    let simulated = CONNECT.get().and_then(|connect| connect(&config));
    if let Some(client) = simulated {
        return Ok(client);
    }
    Ok(connect(config, rate)?)
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

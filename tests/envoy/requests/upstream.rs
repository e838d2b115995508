//! Servers behind Envoy: one for HTTP, one for TCP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A response's body.
type Body = BoxBody<Bytes, Infallible>;

/// A server with its connections. All end when it is dropped.
pub(crate) struct Upstream {
    /// The number of requests, or of TCP connections.
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Upstream {
    /// Starts an HTTP/1 and HTTP/2 server that responds with its name. Paths select a behaviour:
    /// `/slow` takes 1.5 seconds, `/flaky` fails every other time.
    pub(crate) async fn http(name: &'static str, address: &str) -> Result<Self> {
        Self::start(address, move |stream, served| async move {
            let answer =
                hyper::service::service_fn(move |request| answer(name, served.clone(), request));
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            drop(
                builder
                    .serve_connection_with_upgrades(TokioIo::new(stream), answer)
                    .await,
            );
        })
        .await
    }

    /// Starts a TCP server that sends its name on each connection.
    pub(crate) async fn bytes(name: &'static str, address: &str) -> Result<Self> {
        Self::start(address, move |mut stream, served| async move {
            served.fetch_add(1, Ordering::Relaxed);
            drop(stream.write_all(name.as_bytes()).await);
            // Closing first could discard bytes in flight.
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await
    }

    /// The number of requests.
    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    async fn start<F, T>(address: &str, talk: F) -> Result<Self>
    where
        F: Fn(TcpStream, Arc<AtomicUsize>) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let address: SocketAddr = address.parse()?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("an upstream at {address}"))?;
        let served = Arc::new(AtomicUsize::new(0));
        let count = served.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(talk(stream, count.clone()));
            }
        });
        Ok(Self { served, task })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers a request.
async fn answer(
    name: &'static str,
    served: Arc<AtomicUsize>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let count = served.fetch_add(1, Ordering::Relaxed);
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };

    let path = request.uri().path().to_owned();
    let host = request
        .uri()
        .authority()
        .map_or(header("host"), |authority| authority.as_str())
        .to_owned();
    let added = header("x-added").to_owned();
    let secret = header("x-secret").to_owned();

    if header("upgrade").eq_ignore_ascii_case("websocket") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(stream) = upgrade.await else { return };
            let (mut from, mut to) = tokio::io::split(TokioIo::new(stream));
            drop(tokio::io::copy(&mut from, &mut to).await);
        });
        let response = Response::builder()
            .status(101)
            .header("upgrade", "websocket")
            .header("connection", "upgrade");
        return Ok(response.body(Full::default().boxed()).unwrap());
    }

    if header("content-type").starts_with("application/grpc") {
        let message = request
            .into_body()
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();

        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let body = Full::new(message)
            .with_trailers(async move { Some(Ok(trailers)) })
            .boxed();
        return Ok(Response::builder()
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap());
    }

    if path.starts_with("/slow") {
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }

    let failing = path.starts_with("/flaky") && count.is_multiple_of(2);
    let status = if failing {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };

    let response = Response::builder()
        .status(status)
        .header("x-seen-path", path)
        .header("x-seen-host", host);
    let response = response
        .header("x-seen-added", added)
        .header("x-seen-secret", secret);

    Ok(response.body(Full::new(Bytes::from(name)).boxed()).unwrap())
}

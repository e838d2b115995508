//! Well-behaved clients: an API server that sends pods for injection, workloads that request
//! certificates, kubelet and Prometheus.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::issuer::Issuer;
use crate::network::{self, channel, connect, connect_tls, tls_config};
use crate::plane::{self, HTTP, HTTPS, MONITORING};
use crate::series::Series;

/// The maximum timeout of webhooks at an API server; workloads and kubelets use the same here.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a request with a timeout.
async fn within(what: impl Future<Output = Result<()>>) -> Result<()> {
    timeout(TIMEOUT, what)
        .await
        .with_context(|| format!("no response in {TIMEOUT:?}"))?
}

/// An AdmissionReview of a pod.
fn review() -> Bytes {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "labels": {"app": "p"}},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]},
    });
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "shop", "object": pod,
        "userInfo": {"username": "admin", "groups": ["system:authenticated"]}, "oldObject": null,
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into()
}

/// Opens a connection as an API server.
async fn open(from: Ipv4Addr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = connect_tls(from, HTTPS, tls_config("h2")).await?;
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Posts a pod to the injection webhook.
async fn inject(mut client: SendRequest<Full<Bytes>>) -> Result<()> {
    let request =
        Request::post(format!("https://{HTTPS}/inject")).header("content-type", "application/json");
    let response = client
        .send_request(request.body(Full::new(review()))?)
        .await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    let body = String::from_utf8_lossy(&body);
    ensure!(
        status == 200 && body.contains("\"patch\""),
        "not injected: {status} {body}"
    );
    Ok(())
}

/// Waits until injection works.
pub(crate) async fn injection_is_on() -> Result<()> {
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while let Err(error) = within(async { inject(open(network::client(3, 1)).await?).await }).await
    {
        ensure!(tokio::time::Instant::now() < end, "{error:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Twenty pods per second; every fourth uses a new connection, the others a persistent one.
pub(crate) async fn create_pods(series: Arc<Series>) -> Result<()> {
    let from = network::client(3, 1);
    let mut kept = open(from).await?;
    let mut pods = JoinSet::new();
    let mut ticks = interval(Duration::from_millis(50));

    for number in 0_usize.. {
        ticks.tick().await;

        if kept.is_closed() {
            series.lost("the API server lost its connection".to_owned());
            kept = open(from).await?;
        }

        let question = series.ask();
        let kept = kept.clone();
        pods.spawn(async move {
            let ask = async {
                match number % 4 {
                    0 => inject(open(from).await?).await,
                    _ => inject(kept).await,
                }
            };
            question.end(within(ask).await);
        });

        while pods.try_join_next().is_some() {}
    }

    Ok(())
}

/// Two certificates per second, each for another workload and on a new connection.
pub(crate) async fn sign(issuer: &Issuer, series: Arc<Series>) -> Result<()> {
    let csr = CertificateParams::default()
        .serialize_request(&KeyPair::generate()?)?
        .pem()?;
    let mut workloads = JoinSet::new();
    let mut ticks = interval(Duration::from_millis(500));

    for number in 0_usize.. {
        ticks.tick().await;
        let token =
            issuer.token(json!({"sub": format!("system:serviceaccount:shop:w{}", number % 50)}));
        let question = series.ask();
        let csr = csr.clone();
        workloads.spawn(async move {
            let ask = certificate(network::client(4, number), &token, csr);
            question.end(within(ask).await);
        });
        while workloads.try_join_next().is_some() {}
    }

    Ok(())
}

/// Requests a certificate.
pub(crate) async fn certificate(from: Ipv4Addr, token: &str, csr: String) -> Result<()> {
    let channel = channel(from, plane::SECURE, true).await?;
    let mut request = tonic::Request::new(IstioCertificateRequest {
        csr,
        validity_duration: 3600,
        ..Default::default()
    });
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse()?);
    let answer = IstioCertificateServiceClient::new(channel)
        .create_certificate(request)
        .await?;
    ensure!(answer.into_inner().cert_chain.len() >= 2, "no chain");
    Ok(())
}

/// Status and body of a page, requested from an address.
pub(crate) async fn page(
    from: Ipv4Addr,
    to: std::net::SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(u16, String)> {
    send(from, to, "GET", path, headers).await
}

/// As [`page`], with a method.
pub(crate) async fn send(
    from: Ipv4Addr,
    to: std::net::SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(u16, String)> {
    let stream = connect(from, to).await?;
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", to.to_string());
    }

    for (name, value) in headers {
        request = request.header(*name, *value);
    }

    let response = client
        .send_request(request.body(Full::new(Bytes::new()))?)
        .await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    driver.abort();

    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// A kubelet's readiness probe, five times per second; every tenth time a scrape by Prometheus.
pub(crate) async fn probe(series: Arc<Series>) {
    let mut probes = JoinSet::new();
    let mut ticks = interval(Duration::from_millis(200));

    for number in 0_usize.. {
        ticks.tick().await;
        let question = series.ask();
        probes.spawn(async move {
            let ask = async {
                let (status, body) = page(network::client(5, 1), HTTP, "/ready", &[]).await?;
                ensure!(status == 200, "/ready: {status} {body}");
                if number.is_multiple_of(10) {
                    let (status, _) =
                        page(network::client(5, 2), MONITORING, "/metrics", &[]).await?;
                    ensure!(status == 200, "/metrics: {status}");
                }
                Ok(())
            };
            question.end(within(ask).await);
        });

        while probes.try_join_next().is_some() {}
    }
}

//! The root is rotated while two Envoys with agents communicate, with a new handshake for each
//! request.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_testkit::backend::Backend;
use navarch_testkit::wait::{until_some, wanted};
use navarch_testkit::{client, ports};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client::{Proof, channel, signed};
use crate::pod::Pod;
use crate::server::{self, Server};
use crate::web;

/// Timeout of each step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The address of the server's pod.
const POD: &str = "127.0.31.1";

/// A service whose sidecar accepts mTLS only, and a client whose sidecar opens a connection for
/// each request.
fn mesh(port: u16, inbound: u16, application: SocketAddr) -> String {
    let web = web::strict(POD, port, inbound, application);
    format!(
        r"{web}  egress: [{{hosts: ['none/*']}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: client, namespace: shop}}
spec:
  workloadSelector: {{labels: {{app: client}}}}
  egress:
  - port: {{number: {port}, protocol: HTTP, name: http}}
    bind: 127.0.0.1
    captureMode: NONE
    hosts: ['shop/*']
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: web, namespace: shop}}
spec:
  host: web.shop.svc.cluster.local
  trafficPolicy: {{connectionPool: {{http: {{maxRequestsPerConnection: 1}}}}}}
"
    )
}

/// Runs `navarch ca`; returns its output, and whether it succeeded.
fn ca(server: &Server, words: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_navarch"))
        .arg("ca")
        .args(words)
        .args(["--address", &server.http().to_string()])
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// Waits until the status meets a condition.
async fn wait_status(server: &Server, what: impl Fn(&Value) -> bool) -> Result<Value> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let (good, text) = ca(server, &["status", "--json"])?;
        let status = serde_json::from_str(&text)?;
        if good && what(&status) {
            return Ok(status);
        }
        ensure!(Instant::now() < end, "{text}\n{}", server.output());
        sleep(Duration::from_millis(100)).await;
    }
}

/// Whether openssl verifies a pod's certificate with this root.
fn is_signed_by(server: &Server, pod: &Pod, root: &str) -> bool {
    let write = |name: &str, text: &str| std::fs::write(server.folder().join(name), text).unwrap();
    write("pod.pem", &pod.file("out/cert-chain.pem"));
    write("one-root.pem", root);
    let args = ["verify", "-CAfile", "one-root.pem", "pod.pem"];
    let output = Command::new("openssl")
        .args(args)
        .current_dir(server.folder())
        .output()
        .unwrap();
    output.status.success()
}

/// In a cluster the kubelet mounts the ConfigMap; here its content is copied from the agent's roots
/// for Envoy.
async fn take_over(pod: &Pod) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let roots = pod.file("out/root-cert.pem");
        if roots.matches("BEGIN CERTIFICATE").count() == 2 {
            return pod.replace("var/run/secrets/istio/root-cert.pem", &roots);
        }
        ensure!(
            Instant::now() < end,
            "the next root did not arrive: {}",
            pod.log()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// A pod trusts only the new root, also in the mounted file.
async fn retired(pod: &Pod, new: &str) -> Result<()> {
    pod.replace("var/run/secrets/istio/root-cert.pem", new)?;
    let end = Instant::now() + TIMEOUT;
    loop {
        let roots = pod.file("out/root-cert.pem");
        if roots.trim() == new.trim() {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "the old root is still trusted:\n{roots}\n{}",
            pod.log()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a pod's Envoy trusts only this root: it gets it a moment after the file.
async fn is_trusted_alone(pod: &Pod, root: &str) -> Result<()> {
    let (_, root) = x509_parser::pem::parse_x509_pem(root.as_bytes())?;
    let serial = root
        .parse_x509()?
        .raw_serial()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();

    let serial = serial.trim_start_matches('0').to_owned();
    until_some("Envoy trusts the new root alone", async || {
        let page = pod
            .get(pod.admin, "/certs")
            .await
            .map(|answer| answer.1)
            .unwrap_or_default();
        let seen: Value = serde_json::from_str(&page).unwrap_or_default();
        let all = seen["certificates"].as_array().into_iter().flatten();
        let roots: Vec<_> = all
            .flat_map(|one| one["ca_cert"].as_array().cloned().unwrap_or_default())
            .collect();

        let is_root = |one: &Value| {
            one["serial_number"]
                .as_str()
                .is_some_and(|text| text.trim_start_matches('0') == serial)
        };

        wanted(roots, |roots| {
            !roots.is_empty() && roots.iter().all(is_root)
        })
    })
    .await;
    Ok(())
}

/// A pod's Envoy has rejected no certificate.
async fn verified(pod: &Pod) -> Result<()> {
    let filter = "/stats?filter=ssl.(fail_verify_error|fail_verify_san|connection_error)";
    let seen = pod.get(pod.admin, filter).await?.1;
    let bad = seen
        .lines()
        .any(|line| !line.ends_with(": 0") && line.contains("fail_verify"));
    ensure!(!bad, "{seen}");
    Ok(())
}

/// Sends requests one after the other.
struct Traffic {
    stop: Arc<AtomicBool>,
    /// Returns the number of successful requests, and the failures.
    task: JoinHandle<(usize, Vec<String>)>,
}

impl Traffic {
    /// Requests a host at an address until it is stopped.
    fn start(front: SocketAddr, host: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut answered = 0;
            let mut failed = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match client::get(front, &host, "/", &[]).await {
                    Ok(reply) if reply.status == 200 => answered += 1,
                    other => failed.push(format!("{other:?}")),
                }
                sleep(Duration::from_millis(10)).await;
            }
            (answered, failed)
        });
        Self { stop, task }
    }

    /// Stops it; fails if there was no traffic, or a request failed.
    async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let (answered, failed) = self.task.await?;
        ensure!(
            failed.is_empty(),
            "{} failed, {answered} succeeded: {:?}",
            failed.len(),
            failed.first()
        );
        ensure!(answered > 50, "enough requests succeeded: {answered}");
        Ok(())
    }
}

/// A proxy with an identity that subscribes to clusters only.
struct Late {
    /// Keeps the stream open.
    _requests: tokio::sync::mpsc::Sender<DeltaDiscoveryRequest>,
    /// The responses.
    _answers: tonic::Streaming<DeltaDiscoveryResponse>,
}

impl Late {
    async fn connect(server: &Server) -> Result<Self> {
        let (late, requests) = tokio::sync::mpsc::channel(1);
        let id = "router~10.0.0.9~late-1.shop~shop.svc.cluster.local".to_owned();
        let node = Node {
            id,
            ..server::node("shop", "late")
        };
        let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
        late.send(DeltaDiscoveryRequest {
            node: Some(node),
            type_url,
            ..DeltaDiscoveryRequest::default()
        })
        .await?;
        let proof = Proof::Token(
            server
                .issuer
                .token(json!({"sub": "system:serviceaccount:shop:late"})),
        );
        let mut ads =
            AggregatedDiscoveryServiceClient::new(channel(server.secure, &server.root(), &proof));

        let requests = signed(
            tokio_stream::wrappers::ReceiverStream::new(requests),
            &proof,
        );
        let mut answers = ads.delta_aggregated_resources(requests).await?.into_inner();
        answers.message().await?;

        Ok(Self {
            _requests: late,
            _answers: answers,
        })
    }
}

#[tokio::test]
async fn the_root_is_replaced_under_traffic_and_no_request_fails() -> Result<()> {
    let application = Backend::start("web", SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let port = ports::free()?;
    let inbound = ports::free()?;
    let mesh = mesh(port, inbound, application.address);

    // The old root is removed once the last certificate signed by it has expired, that is, after
    // the longest lifetime.
    let server = Server::with_variables(
        &mesh,
        "NAVARCH_ROOT_OVERLAP=1s DEFAULT_WORKLOAD_CERT_TTL=20s MAX_WORKLOAD_CERT_TTL=20s",
    )
    .await?;
    let old = server.root();

    let common = [("SECRET_TTL", "20s"), ("OUTPUT_CERTS", "./out")];
    let mut web = Pod::start_labelled(
        &server,
        "web",
        &[&common[..], &[("INSTANCE_IP", POD)]].concat(),
    )?;

    let mut caller = Pod::start_labelled(
        &server,
        "client",
        &[&common[..], &[("POD_NAME", "client-1")]].concat(),
    )?;
    web.wait_ready().await?;
    caller.wait_ready().await?;
    let front = SocketAddr::from(([127, 0, 0, 1], port));

    let host = format!("web.shop.svc.cluster.local:{port}");
    let end = Instant::now() + TIMEOUT;
    while !client::get(front, &host, "/", &[])
        .await
        .is_ok_and(|reply| reply.status == 200)
    {
        ensure!(
            Instant::now() < end,
            "no answer:\n{}\n{}",
            caller.log(),
            web.log()
        );
        sleep(Duration::from_millis(50)).await;
    }

    let traffic = Traffic::start(front, host);

    // A proxy that does not subscribe to roots delays the rotation, and is reported by name.
    let late = Late::connect(&server).await?;
    let (good, text) = ca(&server, &["rotate"])?;
    ensure!(good && text.contains("distributing"), "{text}");
    let names = |status: &Value| -> Vec<String> {
        let missing = status["missing"].as_array().cloned().unwrap_or_default();
        missing
            .iter()
            .map(|one| one["who"].as_str().unwrap_or_default().to_owned())
            .collect()
    };

    take_over(&web).await?;
    take_over(&caller).await?;
    let status = wait_status(&server, |status| {
        let names = names(status);
        names.len() == 1 && names[0].starts_with("late-1.shop")
    });
    ensure!(status.await?["phase"] == "distributing");
    let (good, text) = ca(&server, &["rotate", "--now"])?;
    ensure!(!good && text.contains("late-1.shop"), "{text}");

    ensure!(server.root() == old, "the old root still signs");
    drop(late);

    let status = wait_status(&server, |status| status["phase"] == "retiring").await?;
    ensure!(
        status["roots"]
            .as_array()
            .is_some_and(|roots| roots.len() == 2),
        "{status}"
    );

    ensure!(status["roots"][1]["role"] == "former", "{status}");
    let new = server.root();
    ensure!(new != old, "the new root signs");
    let end = Instant::now() + TIMEOUT;

    while !is_signed_by(&server, &web, &new) || !is_signed_by(&server, &caller, &new) {
        ensure!(
            Instant::now() < end,
            "not renewed:\n{}\n{}",
            caller.log(),
            web.log()
        );
        sleep(Duration::from_millis(200)).await;
    }

    let status = wait_status(&server, |status| status["phase"] == "settled").await?;
    ensure!(
        status["roots"]
            .as_array()
            .is_some_and(|roots| roots.len() == 1),
        "{status}"
    );

    tokio::try_join!(retired(&web, &new), retired(&caller, &new))?;
    tokio::try_join!(
        is_trusted_alone(&web, &new),
        is_trusted_alone(&caller, &new)
    )?;
    traffic.end().await?;
    verified(&web).await?;

    verified(&caller).await
}

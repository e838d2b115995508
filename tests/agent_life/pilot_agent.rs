//! Istio's own pilot-agent in place of this project's, with a stock Envoy and Navarch as control
//! plane: certificates, configuration in both protocols, a gateway's secret, and both agents in one
//! mesh.
//!
//! Needs the program of `scripts/pilot-agent`, or a folder `NAVARCH_ISTIO_PILOT_AGENT` with that of another
//! version of Istio, which `scripts/compatibility run pilot-agent VERSION` makes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::backend::Backend;
use navarch_testkit::istio::{NO_PILOT_AGENT, PilotAgent, pilot_agent};
use navarch_testkit::skip::skip;
use navarch_testkit::wait::{Verbatim, until, until_some, wanted};
use navarch_testkit::{client, ports};
use navarch_tests::chain::check_chain;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::pod::{OUTPUT, Pod};
use crate::server::Server;
use crate::web;

/// Timeout of each step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The address of the server's pod.
const POD: &str = "127.0.34.1";
const HOST: &str = "web.shop.svc.cluster.local";
/// The host of a gateway.
const EDGE: &str = "edge.example";
/// The identity of both pods.
const IDENTITY: &str = "spiffe://cluster.local/ns/shop/sa/web";
/// Of the server's pod.
const SERVER: &[(&str, &str)] = &[("INSTANCE_IP", POD)];
/// Of the client's pod.
const CLIENT: &[(&str, &str)] = &[("POD_NAME", "client-1")];

/// A control plane with a service that takes requests of this identity alone, and the application
/// behind it.
struct World {
    server: Server,
    /// The client's outbound listener.
    front: SocketAddr,
    mesh: String,
    application: Backend,
}

impl World {
    async fn start() -> Result<Self> {
        let application = Backend::start("web", SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let http = ports::free()?;
        let service = web::strict(POD, http, ports::free()?, application.address);
        let mesh = format!(
            r"{service}---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: web, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  rules: [{{from: [{{source: {{principals: [cluster.local/ns/shop/sa/web]}}}}]}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: client, namespace: shop}}
spec:
  workloadSelector: {{labels: {{app: client}}}}
  egress:
  - port: {{number: {http}, protocol: HTTP, name: http}}
    bind: 127.0.0.1
    captureMode: NONE
    hosts: ['shop/*']
"
        );

        let server = Server::with_mesh(&mesh).await?;
        Ok(Self {
            server,
            front: SocketAddr::from(([127, 0, 0, 1], http)),
            mesh,
            application,
        })
    }

    /// Waits until the service responds to requests through the client with this status.
    async fn responds(&self, what: &str, status: u16, pods: [&Pod; 2]) {
        let host = format!("{HOST}:{}", self.front.port());
        until_some(what, async || {
            let reply = client::get(self.front, &host, "/", &[]).await;
            match reply {
                Ok(reply) if reply.status == status => Ok(()),
                other => Err((format!("{other:?}"), pods.map(|pod| Verbatim(pod.log())))),
            }
        })
        .await;
    }

    /// Has the service's route respond with a status by itself.
    fn respond_directly(&self, status: u16) -> Result<()> {
        let route = format!(
            r"---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec: {{hosts: [{HOST}], http: [{{directResponse: {{status: {status}}}}}]}}
"
        );
        self.server.write_mesh(&format!("{}{route}", self.mesh))
    }
}

/// Istio's pilot-agent; a test without it is skipped.
fn istio() -> Option<PilotAgent> {
    let found = pilot_agent();
    if found.is_none() {
        skip(NO_PILOT_AGENT);
    }
    found
}

/// The serial number of the workload's certificate in Envoy.
async fn serial(pod: &Pod) -> Result<String> {
    let page: Value = serde_json::from_str(&pod.get(pod.admin, "/certs").await?.1)?;
    let all = page["certificates"].as_array().into_iter().flatten();
    let chains = all.filter_map(|one| one["cert_chain"].as_array()).flatten();
    let mut own = chains.filter(|one| one["subject_alt_names"].to_string().contains(IDENTITY));
    let serial = own
        .next()
        .and_then(|certificate| certificate["serial_number"].as_str());
    Ok(serial.context("Envoy has no certificate")?.to_owned())
}

#[tokio::test]
async fn istios_agent_gets_certificates_and_configuration() -> Result<()> {
    let Some(istio) = istio() else {
        return Ok(());
    };
    let world = World::start().await?;

    // The server has the older protocol.
    let of_server = [SERVER, &[("ISTIO_DELTA_XDS", "false")]].concat();
    let mut web = Pod::start_istio(&world.server, &istio, "sidecar", "web", &of_server)?;
    let mut caller = Pod::start_istio(&world.server, &istio, "sidecar", "client", CLIENT)?;
    for pod in [&mut web, &mut caller] {
        pod.wait_ready().await?;
        let ready = pod.get(pod.envoy_status, "/healthz/ready").await?.0;
        ensure!(ready == 200, "readiness also through Envoy's port");
    }

    let both = [&caller, &web];
    world.responds("a request arrives", 200, both).await;
    ensure!(world.application.served() > 0, "it was the application");
    let clusters = caller.get(caller.admin, "/clusters").await?.1;
    let endpoint = format!("outbound|{}||{HOST}::{POD}:", world.front.port());
    ensure!(clusters.contains(&endpoint), "{endpoint}: {clusters}");

    world.respond_directly(418)?;
    world.responds("an edit is obeyed", 418, both).await;
    world.server.write_mesh(&world.mesh)?;
    world.responds("and the next", 200, both).await;

    for pod in [&mut caller, &mut web] {
        ensure!(pod.stop().await? == 0, "it drains and exits with 0");
        until("Envoy has ended", async || pod.processes() == 0).await;
        ensure!(!pod.log().contains("PRIVATE KEY"), "no key in the log");
    }

    Ok(())
}

#[tokio::test]
async fn istios_agent_renews_its_certificate_under_requests() -> Result<()> {
    let Some(istio) = istio() else {
        return Ok(());
    };
    let world = World::start().await?;

    let short = [
        ("SECRET_TTL", "20s"),
        ("OUTPUT_CERTS", OUTPUT),
        ("ECC_SIGNATURE_ALGORITHM", "ECDSA"),
    ];
    let mut web = Pod::start_istio(
        &world.server,
        &istio,
        "sidecar",
        "web",
        &[SERVER, &short].concat(),
    )?;
    let mut caller = Pod::start_istio(
        &world.server,
        &istio,
        "sidecar",
        "client",
        &[CLIENT, &short].concat(),
    )?;
    web.wait_ready().await?;
    caller.wait_ready().await?;
    world
        .responds("a request arrives", 200, [&caller, &web])
        .await;

    let first = serial(&caller).await?;
    let served = world.application.served();
    let end = Instant::now() + TIMEOUT;
    while serial(&caller).await? == first {
        let host = format!("{HOST}:{}", world.front.port());
        let reply = client::get(world.front, &host, "/", &[]).await?;
        ensure!(reply.status == 200, "{reply:?}\n{}", caller.log());
        ensure!(Instant::now() < end, "not renewed:\n{}", caller.log());
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(world.application.served() > served, "requests went on");

    check_chain(
        &[caller.file(&format!("{OUTPUT}/cert-chain.pem"))],
        IDENTITY,
        &world.server.root(),
    )?;
    let root = caller.file(&format!("{OUTPUT}/root-cert.pem"));
    ensure!(root.trim() == world.server.root().trim(), "{root}");
    Ok(())
}

#[tokio::test]
async fn agents_of_both_projects_serve_each_other() -> Result<()> {
    let Some(istio) = istio() else {
        return Ok(());
    };

    let world = World::start().await?;
    let mut web = Pod::start_labelled(&world.server, "web", SERVER)?;
    let mut caller = Pod::start_istio(&world.server, &istio, "sidecar", "client", CLIENT)?;
    web.wait_ready().await?;
    caller.wait_ready().await?;
    world
        .responds("from Istio's to this one", 200, [&caller, &web])
        .await;

    let world = World::start().await?;
    let mut web = Pod::start_istio(&world.server, &istio, "sidecar", "web", SERVER)?;
    let mut caller = Pod::start_labelled(&world.server, "client", CLIENT)?;
    web.wait_ready().await?;
    caller.wait_ready().await?;
    world
        .responds("from this one to Istio's", 200, [&caller, &web])
        .await;
    Ok(())
}

#[tokio::test]
async fn istios_agent_serves_a_gateway_with_a_secret() -> Result<()> {
    let Some(istio) = istio() else {
        return Ok(());
    };

    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![EDGE.to_owned()])?.self_signed(&key)?;
    let certificate = json!(certificate.pem());
    let key = json!(key.serialize_pem());
    let port = ports::free()?;
    let mesh = format!(
        r"
apiVersion: v1
kind: Secret
metadata: {{name: edge, namespace: shop}}
stringData: {{tls.crt: {certificate}, tls.key: {key}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: shop}}
spec:
  selector: {{app: edge}}
  servers:
  - port: {{number: {port}, name: https, protocol: HTTPS}}
    hosts: [{EDGE}]
    tls: {{mode: SIMPLE, credentialName: edge}}
"
    );

    let server = Server::with_mesh(&mesh).await?;
    let mut gateway = Pod::start_istio(&server, &istio, "router", "edge", &[])?;
    gateway.wait_ready().await?;
    until_some("the secret is served", async || {
        let page = gateway.get(gateway.admin, "/certs").await;
        let page = page.map(|page| page.1).map_err(|error| error.to_string())?;
        wanted(page, |page| page.contains(EDGE))
    })
    .await;
    Ok(())
}

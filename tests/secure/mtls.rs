//! Real Envoys with certificates from Navarch's CA use mTLS between each other, and reject plain
//! text where STRICT demands it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::backend::Backend;
use navarch_testkit::envoy::{AdsProtocol, Envoy, EnvoyConfig};
use navarch_testkit::{client, ports};
use serde_json::json;
use tokio::time::Instant;

use crate::client::Proof;
use crate::server::Server;
use crate::web;
use crate::workload_sds::{self, Workload};

/// The address of the pod of `web`.
const POD: &str = "127.0.30.1";
const SIDECAR_PORT: u16 = 18_443;

/// A service whose sidecar accepts mTLS only, and a gateway in front of it.
fn mesh(gateway: u16, application: SocketAddr) -> String {
    let web = web::strict(POD, 80, SIDECAR_PORT, application);
    format!(
        r"{web}
---
apiVersion: v1
kind: Namespace
metadata: {{name: shop}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: shop}}
spec:
  selector: {{app: edge}}
  servers: [{{port: {{number: {gateway}, name: http, protocol: HTTP}}, hosts: ['*']}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec:
  hosts: ['*']
  gateways: [edge]
  http: [{{route: [{{destination: {{host: web.shop.svc.cluster.local, port: {{number: 80}}}}}}]}}]
"
    )
}

/// A certificate for a service account of `shop`, from the CA.
pub(crate) async fn workload(server: &Server, account: &str) -> Result<Workload> {
    let subject = format!("system:serviceaccount:shop:{account}");
    let token = Proof::Token(server.issuer.token(json!({ "sub": subject })));
    let Proof::Certificate(chain, key) = server.prove_by_certificate(&token).await? else {
        anyhow::bail!("no certificate");
    };
    Ok(Workload {
        chain,
        key,
        roots: server.root(),
    })
}

/// An Envoy with a certificate of its service account.
pub(crate) async fn envoy(
    server: &Server,
    kind: &str,
    account: &str,
    ip: &str,
    metadata: serde_json::Value,
) -> Result<Envoy> {
    let sds = workload_sds::serve(workload(server, account).await?).await?;
    let config = EnvoyConfig {
        kind: kind.to_owned(),
        pod: format!("{account}-1"),
        namespace: "shop".to_owned(),
        ip: ip.to_owned(),
        metadata,
        xds: server.plain(),
        protocol: AdsProtocol::Delta,
        sds: Some(sds),
        token: None,
    };
    Envoy::start(&config).await
}

#[tokio::test]
async fn envoys_with_certificates_of_the_ca_use_mtls_and_strict_rejects_plain_text() -> Result<()> {
    let application = Backend::start("web", SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let _sidecar = ports::take(&[SIDECAR_PORT]).await?;
    let port = ports::free()?;
    let server = Server::with_mesh(&mesh(port, application.address)).await?;
    let metadata =
        json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "web"}, "SERVICE_ACCOUNT": "web"});
    let mut sidecar = envoy(&server, "sidecar", "web", POD, metadata).await?;
    let metadata = json!({"LABELS": {"app": "edge"}, "SERVICE_ACCOUNT": "edge"});
    let mut gateway = envoy(&server, "router", "edge", "127.0.30.2", metadata).await?;

    sidecar.wait_ready().await?;
    gateway.wait_ready().await?;
    let front = SocketAddr::from(([127, 0, 0, 1], port));
    let end = Instant::now() + Duration::from_secs(20);

    loop {
        let reply = client::get(front, "web.example.com", "/", &[]).await;
        if reply
            .as_ref()
            .is_ok_and(|reply| reply.status == 200 && reply.body == "web")
        {
            break;
        }
        ensure!(
            Instant::now() < end,
            "no response through both: {reply:?}\n{}\n{}",
            gateway.output(),
            sidecar.output()
        );

        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    ensure!(
        sidecar.stats().await?.sum("ssl.handshake") > 0,
        "the sidecar has terminated TLS"
    );
    let served = application.served();
    let direct = client::get(
        SocketAddr::new(POD.parse()?, SIDECAR_PORT),
        "web.shop",
        "/",
        &[],
    )
    .await;
    ensure!(
        !direct.as_ref().is_ok_and(|reply| reply.status == 200),
        "plain text was accepted: {direct:?}"
    );
    ensure!(
        application.served() == served,
        "the request did not reach the application"
    );

    for envoy in [&sidecar, &gateway] {
        let rejected = envoy.stats().await?.rejected();
        ensure!(
            rejected == 0,
            "{rejected} updates were rejected:\n{}",
            envoy.output()
        );
    }

    Ok(())
}

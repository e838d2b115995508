//! A stock Envoy accepts configuration that depends on the control plane's settings: QUIC, and TLS
//! with a compliance policy.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::MeshConfig;
use navarch::api::names::ResourceName;
use navarch::api::settings::Settings;
use navarch::push::mesh_state::Change;
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::ResourceType;
use navarch_base::compliance::CompliancePolicy;
use navarch_proto::json::Codec;
use serde_json::json;

use super::ONE_AT_A_TIME;
use super::accepts::{Feeder, Snapshot, all_of};

/// A gateway with HTTPS in two modes, whose service has the port for UDP as well, and a service
/// that is reached over TLS.
const EDGE: &str = "
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: default}
spec:
  clusterIP: 10.96.0.9
  selector: {istio: router}
  ports: [{name: https, port: 8443, targetPort: 8443}, {name: http3, port: 8443, targetPort: 8443, protocol: UDP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: default}
spec: {hosts: [web.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.1.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: default}
spec: {host: web.example, trafficPolicy: {tls: {mode: SIMPLE, credentialName: out, sni: web.example}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  selector: {istio: router}
  servers:
  - {port: {number: 8443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {mode: SIMPLE, credentialName: a}}
  - {port: {number: 8443, name: mutual, protocol: HTTPS}, hosts: [b.example], tls: {mode: MUTUAL, credentialName: b}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: default}
spec: {hosts: ['*.example'], gateways: [edge], http: [{route: [{destination: {host: web.example}}]}]}
";

/// The snapshots of the gateway and of a sidecar with these settings.
fn snapshots(
    settings: &Settings,
    feeder_extensions: &Arc<std::collections::BTreeSet<Arc<str>>>,
) -> Result<[Snapshot; 2]> {
    let mut changes = vec![Change::Mesh(Arc::new(MeshConfig::istio_defaults()))];

    for decoded in decode_documents(EDGE, Format::Yaml) {
        let Outcome::Read { object, .. } = decoded.outcome else {
            anyhow::bail!("a document cannot be read")
        };
        changes.push(Change::Put(object));
    }

    let codec = Codec::new();
    let make = |kind: &str, ip: &str| {
        let metadata = json!({
            "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip, "LABELS": {"istio": kind},
        });
        let node = format!("{kind}~{ip}~a-0.default~default.svc.cluster.local");
        let mut proxy = Proxy::parse(&node, metadata, Locality::default())?;
        proxy.extensions = Some(feeder_extensions.clone());
        anyhow::Ok(all_of(settings.clone(), changes.clone(), proxy, &codec)?.0)
    };

    Ok([make("router", "10.1.0.9")?, make("sidecar", "10.1.0.1")?])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_envoy_serves_quic_and_holds_tls_to_each_policy() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (mut feeder, envoy) = Feeder::with_envoy().await?;
    let extensions = feeder.extensions().await?;
    let mut counted = envoy.stats().await?.rejected();
    let quic = Settings {
        quic_listeners: true,
        ..Settings::default()
    };

    let held = |compliance| Settings {
        compliance,
        ..quic.clone()
    };
    let policies = [
        CompliancePolicy::None,
        CompliancePolicy::Fips140v2,
        CompliancePolicy::Fips140v3,
        CompliancePolicy::PostQuantum,
    ];

    for policy in policies {
        let [gateway, sidecar] = snapshots(&held(policy), &extensions)?;
        let udp = (
            ResourceType::Listener,
            ResourceName::new("udp_0.0.0.0_8443"),
        );
        ensure!(
            gateway.contains_key(&udp),
            "the gateway has a QUIC listener"
        );

        for (kind, snapshot) in [("router", gateway), ("sidecar", sidecar)] {
            let nacks = feeder
                .feed(snapshot)
                .await
                .with_context(|| format!("{policy:?} {kind}"))?;
            let count = envoy.stats().await?.rejected();
            ensure!(
                nacks.is_empty() && count == counted,
                "{policy:?} {kind}: Envoy rejects it: {nacks:?}"
            );
            counted = count;
            feeder.feed(Snapshot::new()).await?;
        }
    }

    feeder.end();
    Ok(())
}

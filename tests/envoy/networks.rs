//! A stock Envoy accepts the configuration of gateways between the networks of an ambient mesh, and
//! of waypoints and ingress gateways that send to other networks.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::MeshConfig;
use navarch::api::settings::Settings;
use navarch::push::mesh_state::Change;
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::ResourceType;
use navarch_proto::json::Codec;
use serde_json::json;

use super::ONE_AT_A_TIME;
use super::accepts::{Feeder, all_of};

/// The proxies: type of node, label, controller, and names of resources that they must get.
const PROXIES: [(&str, &str, &str, &[&str]); 3] = [
    (
        "waypoint",
        "ways",
        "istio.io-eastwest-controller",
        &["forward_inner_connect", "0.0.0.0_6443"],
    ),
    (
        "waypoint",
        "wp",
        "istio.io-mesh-controller",
        &["inner_connect_originate", "outer_connect_originate"],
    ),
    (
        "router",
        "gate",
        "istio.io-gateway-controller",
        &["inner_connect_originate", "0.0.0.0_8080"],
    ),
];

/// A mesh with services for all of them.
fn state() -> Result<Vec<Change>> {
    let mesh =
        "serviceScopeConfigs: [{servicesSelector: {matchLabels: {far: 'yes'}}, scope: GLOBAL}]";
    let mut changes = vec![Change::Mesh(Arc::new(
        MeshConfig::istio_defaults().apply(mesh)?.value,
    ))];

    for decoded in decode_documents(include_str!("testdata/networks.yaml"), Format::Yaml) {
        match decoded.outcome {
            Outcome::Read {
                object,
                unknown_fields,
            } => {
                ensure!(
                    unknown_fields.is_empty(),
                    "unknown fields: {unknown_fields:?}"
                );
                changes.push(Change::Put(object));
            }
            Outcome::Ignored => {}
            Outcome::Rejected(error) => anyhow::bail!("{error}"),
        }
    }

    Ok(changes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_envoy_joins_networks() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let mut settings = Settings {
        ambient: true,
        ..Settings::default()
    };
    settings.gateway_api.east_west = true;
    settings.hbone.sends = true;
    settings.hbone.waypoints_leave_network = true;

    settings.hbone.gateways_leave_network = true;
    let (mut feeder, envoy) = Feeder::with_envoy().await?;
    let extensions = feeder.extensions().await?;
    let codec = Codec::new();

    for (kind, app, controller, expected) in PROXIES {
        let metadata = json!({
            "NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes", "NETWORK": "n1", "INSTANCE_IPS": "10.1.9.9",
            "LABELS": { "app": app, "gateway.istio.io/managed": controller },
        });
        let node = format!("{kind}~10.1.9.9~{app}-0.shop~shop.svc.cluster.local");
        let mut proxy = Proxy::parse(&node, metadata, Locality::default())?;
        proxy.extensions = Some(extensions.clone());
        let (snapshot, remarks) = all_of(settings.clone(), state()?, proxy, &codec)?;

        for name in expected {
            let is_there = snapshot
                .keys()
                .any(|(of, own)| *of == ResourceType::Listener && own.as_str() == *name);
            ensure!(
                is_there,
                "{app} gets no listener {name}: {:?}, {remarks:?}",
                snapshot.keys()
            );
        }

        let is_far =
            |bytes: &bytes::Bytes| bytes.windows(12).any(|window| window == b"double_hbone");
        let double = snapshot
            .iter()
            .any(|((of, _), body)| *of == ResourceType::Endpoint && is_far(body));
        ensure!(
            double != (app == "ways"),
            "{app}: endpoints in the other network are wrong"
        );

        let nacks = feeder
            .feed(snapshot)
            .await
            .with_context(|| app.to_owned())?;
        ensure!(nacks.is_empty(), "{app}: Envoy rejects {nacks:?}");
        ensure!(
            envoy.stats().await?.rejected() == 0,
            "{app}: {}",
            envoy.output()
        );
    }

    feeder.end();
    Ok(())
}

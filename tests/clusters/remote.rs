//! One control plane for both clusters: the other cluster's control plane is removed, and the
//! remaining one serves its pods through its gateway.

use anyhow::{Result, ensure};
use navarch_testkit::mesh;
use serde_json::{Value, json};

use crate::pair::{GATEWAY, Pair, Side};
use crate::shop::{NAMESPACE, Shop};

/// The ports and the host of the control plane that the gateway forwards, for proxies and for the
/// API server.
const PORTS: [(&str, u16, u16); 2] = [
    ("tls-istiod", 15012, 15012),
    ("tls-istiodwebhook", 15017, 443),
];

/// Exposes the control plane through the gateway.
fn expose(side: &Side) -> Result<()> {
    let host = format!("istiod.{}.svc.cluster.local", mesh::NAMESPACE);
    let metadata = json!({"name": "istiod-gateway", "namespace": mesh::NAMESPACE});
    let servers = PORTS.map(|(name, port, _)| {
        json!({"port": {"name": name, "number": port, "protocol": "tls"}, "tls": {"mode": "PASSTHROUGH"}, "hosts": ["*"]})
    });
    let routes = PORTS.map(|(_, port, to)| {
        json!({
            "match": [{"port": port, "sniHosts": ["*"]}],
            "route": [{"destination": {"host": host, "port": {"number": to}}}],
        })
    });

    side.mesh.apply(&[
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": metadata,
            "spec": {"selector": {"istio": "eastwestgateway"}, "servers": servers},
        }),
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": metadata,
            "spec": {"hosts": ["*"], "gateways": ["istiod-gateway"], "tls": routes},
        }),
    ])
}

/// The roots of the mesh in a namespace of a cluster.
fn roots(side: &Side) -> Result<String> {
    side.kubectl(
        NAMESPACE,
        &[
            "get",
            "configmap",
            "istio-ca-root-cert",
            "--output=jsonpath={.data.root-cert\\.pem}",
        ],
    )
}

/// The control plane in the east is removed, and the one in the west takes over its pods while they
/// serve.
pub(crate) async fn one_control_plane_for_both(pair: &Pair, shop: &mut Shop) -> Result<()> {
    let west = &pair.west;
    let east = &pair.east;
    east.mesh.uninstall("navarch")?;

    // It would restore the roots as long as it runs.
    east.settled(mesh::NAMESPACE)?;
    east.kubectl(
        mesh::NAMESPACE,
        &[
            "delete",
            "secret",
            &navarch_testkit::joined::secret_name(west.name),
        ],
    )?;

    east.kubectl(NAMESPACE, &["delete", "configmap", "istio-ca-root-cert"])?;
    shop.count("a cluster without a control plane").await?;

    expose(west)?;
    west.install(&["global.externalIstiod=true".to_owned()])?;
    east.place(&json!({"topology.istio.io/controlPlaneClusters": west.name}))?;
    let path = format!("/inject/cluster/{}/net/{}", east.name, east.network());
    east.install(&[
        "profile=remote".to_owned(),
        format!("global.remotePilotAddress={}", west.mesh.node.address()?),
        format!("istiodRemote.injectionPath={path}"),
    ])?;

    west.reads(east, "remote").await?;
    pair.until(
        "the roots are written into the remote cluster",
        async || roots(east).is_ok(),
    )
    .await;
    ensure!(
        roots(east)? == roots(west)?,
        "the roots of the remote cluster differ"
    );

    pair.until("the remote cluster's webhook has a CA", async || {
        let configuration = east.mesh.node.get(
            "",
            &["mutatingwebhookconfiguration", "istio-sidecar-injector"],
        );
        configuration.is_ok_and(|configuration| {
            let hooks = configuration["webhooks"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            !hooks.is_empty()
                && hooks
                    .iter()
                    .all(|hook| hook["clientConfig"]["caBundle"].is_string())
        })
    })
    .await;

    for (namespace, deployment) in [(mesh::NAMESPACE, GATEWAY), (NAMESPACE, "reviews-v1")] {
        east.kubectl(
            namespace,
            &["rollout", "restart", &format!("deployment/{deployment}")],
        )?;
        east.settled(namespace)?;
    }

    belongs_to(east, "app=reviews")?;
    shop.all_local(pair, "injected from afar").await
}

/// Fails unless the pods of a selector have the ids of their own cluster and network.
fn belongs_to(side: &Side, selector: &str) -> Result<()> {
    let list = side
        .mesh
        .node
        .get(NAMESPACE, &["pods", "--selector", selector])?;
    let spec = &list["items"][0]["spec"];

    // Native sidecars are injected only if the control plane reads the nodes of the remote cluster.
    let containers = spec["initContainers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let env = containers
        .iter()
        .filter_map(|container| container["env"].as_array())
        .flatten();

    let value = |name: &str| -> Vec<&Value> {
        env.clone()
            .filter(|variable| variable["name"] == name)
            .map(|variable| &variable["value"])
            .collect()
    };

    let cluster = value("ISTIO_META_CLUSTER_ID");
    let network = value("ISTIO_META_NETWORK");
    ensure!(
        cluster == [side.name] && network == [side.network().as_str()],
        "{cluster:?} {network:?}: {spec}"
    );

    Ok(())
}

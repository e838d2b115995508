//! A machine outside of the cluster, with the files of `istioctl x workload entry configure` at the
//! paths in Istio's documentation. Traffic is captured, and the agent started, as Istio's packages
//! for machines do it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Result, ensure};
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use crate::pod::{Environment, Launch, PORT, PROXY, Pod, PodInputs};
use crate::world::World;
use crate::{LONG, missing};

/// The machine's objects in the cluster: its account, its group, and a service that selects it.
pub(crate) fn objects() -> [Value; 4] {
    let networking = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": kind,
            "metadata": { "name": "machines", "namespace": "shop" }, "spec": spec,
        })
    };

    let probe = json!({ "periodSeconds": 1, "httpGet": { "path": "/well", "port": PORT } });
    let template = json!({ "serviceAccount": "machine", "ports": { "http": PORT } });
    [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "machine", "namespace": "shop" } }),
        networking(
            "WorkloadGroup",
            json!({ "metadata": { "labels": { "app": "machines" } }, "template": template, "probe": probe }),
        ),
        networking(
            "ServiceEntry",
            json!({
                "hosts": ["machines.example"], "addresses": ["10.96.7.9"], "location": "MESH_INTERNAL", "resolution": "STATIC",
                "workloadSelector": { "labels": { "app": "machines" } },
                "ports": [{ "number": PORT, "name": "http", "protocol": "HTTP" }],
            }),
        ),
        // Envoy treats a connection as opaque TCP if it was opened before Envoy had the listener of
        // the service.
        networking(
            "DestinationRule",
            json!({
                "host": "machines.example",
                "trafficPolicy": { "connectionPool": { "http": { "maxRequestsPerConnection": 1 } } },
            }),
        ),
    ]
}

/// The settings of the group that are part of both files of istioctl.
fn metadata() -> Environment {
    let labels = json!({
        "app": "machines", "service.istio.io/canonical-name": "machines", "service.istio.io/canonical-revision": "latest",
    });
    [
        ("CANONICAL_REVISION", "latest".to_owned()),
        ("CANONICAL_SERVICE", "machines".to_owned()),
        ("ISTIO_METAJSON_LABELS", labels.to_string()),
        ("ISTIO_META_AUTO_REGISTER_GROUP", "machines".to_owned()),
        ("ISTIO_META_CLUSTER_ID", "Kubernetes".to_owned()),
        ("ISTIO_META_DNS_CAPTURE", "true".to_owned()),
        ("ISTIO_META_MESH_ID", String::new()),
        ("ISTIO_META_NETWORK", String::new()),
        (
            "ISTIO_META_POD_PORTS",
            json!([{ "name": "http", "containerPort": PORT }]).to_string(),
        ),
        ("ISTIO_META_WORKLOAD_NAME", "machines".to_owned()),
        ("POD_NAMESPACE", "shop".to_owned()),
        ("SERVICE_ACCOUNT", "machine".to_owned()),
        ("TRUST_DOMAIN", "cluster.local".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// istioctl's `mesh.yaml`: the mesh config and the group's settings. The path of Envoy is this
/// test's.
pub(crate) fn mesh_config(envoy: &Path) -> Value {
    let metadata: BTreeMap<_, _> = metadata().into_iter().collect();
    json!({ "defaultConfig": {
        "discoveryAddress": "istiod.istio-system.svc:15012", "binaryPath": envoy, "concurrency": 1,
        "terminationDrainDuration": "1s", "proxyMetadata": metadata,
        "readinessProbe": { "periodSeconds": 1, "httpGet": { "path": "/well", "port": PORT } },
    } })
}

/// istioctl's `cluster.env`.
pub(crate) fn cluster_variables(ip: Ipv4Addr) -> Environment {
    let own = [
        ("ISTIO_INBOUND_PORTS", PORT.to_string()),
        (
            "ISTIO_LOCAL_EXCLUDE_PORTS",
            "22,15090,15021,15020".to_owned(),
        ),
        ("ISTIO_NAMESPACE", "shop".to_owned()),
        ("ISTIO_SERVICE", "machines.shop".to_owned()),
        ("ISTIO_SERVICE_CIDR", "*".to_owned()),
        ("ISTIO_SVC_IP", ip.to_string()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    metadata().into_iter().chain(own).collect()
}

/// istioctl's files for that group, with the settings that Istio's start script adds.
pub(crate) fn launch(inputs: PodInputs) -> Result<Launch> {
    let PodInputs {
        ip,
        envoy,
        token,
        root,
        ..
    } = inputs;

    let config = mesh_config(&envoy);
    let cluster = cluster_variables(ip);

    // Settings that istio-start.sh adds.
    let started = [
        ("CA_ADDR", "istiod.istio-system.svc:15012".to_owned()),
        ("INSTANCE_IP", ip.to_string()),
        ("OUTPUT_CERTS", "./etc/certs".to_owned()),
        ("POD_NAME", "machine-1".to_owned()),
        ("PROV_CERT", "./etc/certs".to_owned()),
        (
            "PROXY_CONFIG",
            "serviceCluster: machines.shop\ncontrolPlaneAuthPolicy: MUTUAL_TLS\n".to_owned(),
        ),
        // No metadata server is reachable.
        ("CLOUD_PLATFORM", "none".to_owned()),
    ];

    let started = started.map(|(name, value)| (name.to_owned(), value));
    let files = [
        ("etc/certs/root-cert.pem", Some(root)),
        ("var/run/secrets/tokens/istio-token", Some(token)),
        ("etc/istio/config/mesh", Some(config.to_string())),
        ("etc/istio/proxy", None),
        ("var/lib/istio/data", None),
    ];

    Ok(Launch {
        capture: Some((vec!["istio-iptables".to_owned()], cluster.clone())),
        args: vec!["proxy".to_owned()],
        env: cluster.into_iter().chain(started).collect(),
        user: (PROXY, PROXY),
        rights: &[],
        files: files.map(|(path, text)| (path.to_owned(), text)).to_vec(),
    })
}

/// The machine's health in a WorkloadEntry.
fn health(entry: &Value) -> Option<&str> {
    let conditions = entry["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == "Healthy")?["status"]
        .as_str()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_joins_by_the_files_of_istioctl() -> Result<()> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let mut world = World::start().await?;
    for object in objects() {
        world.writer().put(&object).await?;
    }

    let client = world.pod("client", LONG).await?;
    let web = world.pod("web", LONG).await?;
    let mut machine = world.machine(launch).await?;
    for pod in [&client, &web, &machine] {
        pod.wait_ready().await?;
    }

    wait_registered(&world, &machine).await?;
    until("its certificate is stored for the next start", async || {
        machine.has("etc/certs/cert-chain.pem")
    })
    .await;

    check_calls(&client, &machine).await?;

    let path = entry_path(&machine);
    let entry = async || world.writer().get(&path).await.unwrap_or_default();
    machine.stop_app()?;
    until("it is unhealthy", async || {
        health(&entry().await) == Some("False")
    })
    .await;
    until("it gets no more requests", async || {
        let answer = client.get("machines.example", "/open").await;
        answer.is_ok_and(|answer| answer["status"] == 503)
    })
    .await;
    drop(machine);
    until("its entry is deleted", async || entry().await.is_null()).await;
    Ok(())
}

/// The path of a machine's WorkloadEntry.
pub(crate) fn entry_path(machine: &Pod) -> String {
    format!(
        "/apis/networking.istio.io/v1/namespaces/shop/workloadentries/machines-{}",
        machine.ip
    )
}

/// Waits until a machine has a WorkloadEntry of its group that is healthy.
pub(crate) async fn wait_registered(world: &World, machine: &Pod) -> Result<()> {
    let path = entry_path(machine);
    let entry = async || world.writer().get(&path).await.unwrap_or_default();
    until("it is registered and healthy", async || {
        health(&entry().await) == Some("True")
    })
    .await;

    let found = entry().await;
    let spec = &found["spec"];
    ensure!(
        spec["address"] == machine.ip.to_string() && spec["serviceAccount"] == "machine",
        "{found}"
    );
    ensure!(
        spec["labels"]["app"] == "machines" && spec["ports"]["http"] == PORT,
        "{found}"
    );
    Ok(())
}

/// Fails unless a machine can be called and can call services, with mutual TLS in mode STRICT
/// everywhere.
pub(crate) async fn check_calls(client: &Pod, machine: &Pod) -> Result<()> {
    // Until Envoy has the listener of the service, inbound traffic is opaque TCP, and the
    // application does not see the client's identity.
    until("it gets requests with the client's identity", async || {
        let answer = client.get("machines.example", "/open").await;
        let answer = answer.unwrap_or_default();
        let body = answer["body"].as_str().unwrap_or_default();
        answer["status"] == 200
            && body.starts_with("machine")
            && body.contains("spiffe://cluster.local/ns/shop/sa/client")
    })
    .await;

    let answer = machine.get("web.shop", "/open").await?;
    ensure!(
        answer["body"]
            .as_str()
            .is_some_and(|body| body.contains("sa/machine")),
        "its DNS queries are answered: {answer}"
    );
    Ok(())
}

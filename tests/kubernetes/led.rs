//! If the annotation `topology.istio.io/controlPlaneClusters` of a remote cluster names this
//! control plane's cluster, it gets the root certificates, and the caBundle in its injection
//! webhooks. The CA's Secret may be in the cluster that configures the mesh.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use navarch_pki::KeyType;
use navarch_security::ca::Bundle;
use navarch_testkit::cluster::{Cluster, ClusterConfig, Writer};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait;
use serde_json::{Value, json};

use super::{cluster, program};

/// The path of the ClusterTrustBundle.
const BUNDLE: &str =
    "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/istio.io:istiod-ca:root-cert";
/// Flags of an API server with ClusterTrustBundles.
const BUNDLES: [&str; 2] = [
    "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
    "--feature-gates=ClusterTrustBundle=true",
];

/// The path of the ServiceExport of a remote cluster's Service.
const EXPORT: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/default/serviceexports/web";

/// Creates the CRD of ServiceExports, and a Service that could be exported.
async fn defines_exports(cluster: &Cluster, writer: &Writer) -> Result<()> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "serviceexports.multicluster.x-k8s.io"},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "ServiceExport", "plural": "serviceexports", "singular": "serviceexport"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}],
        },
    });
    cluster.apply(&definition.to_string())?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    });
    writer.put(&service).await
}

/// A webhook configuration for a revision, as `istiodRemote.injectionURL` creates it, and one that
/// belongs to another program.
fn configuration(kind: &str, name: &str, revision: &str) -> Value {
    let webhook = |name: &str| {
        json!({
            "name": name,
            "clientConfig": {"url": "https://192.0.2.1:15017/inject"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "rules": [{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["none"]}],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"istio.io/rev": revision}},
        "webhooks": [webhook("rev.namespace.sidecar-injector.istio.io"), webhook("other.example.com")],
    })
}

/// The CAs in the webhooks of a configuration, in order; empty without a configuration.
async fn authorities(writer: &Writer, plural: &str, name: &str) -> Result<Vec<String>> {
    let found = writer
        .get(&format!(
            "/apis/admissionregistration.k8s.io/v1/{plural}/{name}"
        ))
        .await?;
    let hooks = found["webhooks"].as_array().context("webhooks")?;
    let decoded = hooks.iter().map(|hook| {
        let encoded = hook["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default();
        String::from_utf8_lossy(&BASE64_STANDARD.decode(encoded).unwrap_or_default())
            .trim()
            .to_owned()
    });
    Ok(decoded.collect())
}

/// A remote cluster with webhooks; `leaders` is the annotation of its system namespace.
async fn remote(leaders: &str) -> Result<(Cluster, Writer)> {
    let api_server_flags = BUNDLES.map(str::to_owned).to_vec();
    let remote = Cluster::start_with(ClusterConfig {
        api_server_flags,
        ..ClusterConfig::default()
    })
    .await?;
    let there = remote.writer().await?;
    let annotations = json!({"topology.istio.io/controlPlaneClusters": leaders});
    let metadata = json!({"name": "istio-system", "annotations": annotations});

    there
        .put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        .await?;

    for (kind, name, revision) in [
        ("MutatingWebhookConfiguration", "injector", "default"),
        ("MutatingWebhookConfiguration", "canary", "canary"),
        ("ValidatingWebhookConfiguration", "validator", "default"),
    ] {
        there.put(&configuration(kind, name, revision)).await?;
    }

    Ok((remote, there))
}

/// The Secret with the kubeconfig of a remote cluster.
fn secret(name: &str, remote: &Cluster) -> Result<Value> {
    let kubeconfig = std::fs::read_to_string(remote.admin_kubeconfig())?;
    let labels = json!({"istio/multiCluster": "true"});
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "istio-system", "labels": labels},
        "stringData": {name: kubeconfig},
    }))
}

/// Starts Navarch with the primary cluster, and its ports.
async fn start(primary: &Cluster, more: &[(&str, &str)]) -> Result<Navarch> {
    let flags = ["--secure-grpc-addr=127.0.0.1:0", "--https-addr=127.0.0.1:0"];
    let environment = [&[("EXTERNAL_ISTIOD", "true")], more].concat();
    Navarch::start_on_kubernetes(program(), &primary.admin_kubeconfig(), &flags, &environment).await
}

/// A text in a ConfigMap of a namespace.
async fn text(writer: &Writer, map: &str, key: &str) -> String {
    let map = writer
        .get(&format!("/api/v1/namespaces/default/configmaps/{map}"))
        .await
        .unwrap_or_default();
    map["data"][key]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn ca_roots_are_written_only_to_led_remote_clusters() -> Result<()> {
    let guard = cluster().await?;
    let primary = guard.as_ref().context("a cluster")?;
    let here = primary.writer().await?;
    here.put(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}}),
    )
    .await?;
    let ((led, there), (other, elsewhere)) =
        tokio::try_join!(remote("Kubernetes"), remote("west"))?;
    here.put(&secret("other", &other)?).await?;

    here.put(&secret("led", &led)?).await?;

    let navarch = start(primary, &[]).await?;
    wait::until(
        "the roots are in the remote cluster's namespaces",
        || async {
            !text(&there, "istio-ca-root-cert", "root-cert.pem")
                .await
                .is_empty()
        },
    )
    .await;
    let root = text(&there, "istio-ca-root-cert", "root-cert.pem").await;
    let injects = || authorities(&there, "mutatingwebhookconfigurations", "injector");
    let none = String::new;
    wait::until("the injection webhook has the roots", || async {
        injects()
            .await
            .is_ok_and(|found| found == [root.clone(), none()])
    })
    .await;

    // Navarch reverts an edit; it does not change webhooks of another revision or validating ones.
    there
        .put(&configuration(
            "MutatingWebhookConfiguration",
            "injector",
            "default",
        ))
        .await?;

    wait::until("the edit is reverted", || async {
        injects()
            .await
            .is_ok_and(|found| found == [root.clone(), none()])
    })
    .await;

    for (plural, name) in [
        ("mutatingwebhookconfigurations", "canary"),
        ("validatingwebhookconfigurations", "validator"),
    ] {
        ensure!(
            authorities(&there, plural, name).await? == [none(), none()],
            "{name}"
        );
    }

    // By now the cluster that another control plane leads has been read as well.
    ensure!(
        authorities(&elsewhere, "mutatingwebhookconfigurations", "injector").await?
            == [none(), none()]
    );
    ensure!(
        text(&elsewhere, "istio-ca-root-cert", "root-cert.pem")
            .await
            .is_empty()
    );

    ensure!(
        there.get(BUNDLE).await.is_err(),
        "with roots in ConfigMaps there is no ClusterTrustBundle"
    );
    navarch.stop().await?;

    defines_exports(&other, &elsewhere).await?;
    let more = [
        ("ENABLE_CLUSTER_TRUST_BUNDLE_API", "true"),
        ("ENABLE_MCS_AUTO_EXPORT", "true"),
    ];
    let navarch = start(primary, &more).await?;
    wait::until(
        "the roots are in the remote cluster's ClusterTrustBundle",
        || async {
            let found = there.get(BUNDLE).await.unwrap_or_default();
            found["spec"]["trustBundle"]
                .as_str()
                .is_some_and(|bundle| bundle.trim() == root)
        },
    )
    .await;
    ensure!(
        elsewhere.get(BUNDLE).await.is_err(),
        "a cluster that another control plane leads has none"
    );
    wait::until("its Services are exported as well", || async {
        elsewhere.get(EXPORT).await.is_ok()
    })
    .await;
    navarch.stop().await?;
    here.delete(&secret("led", &led)?).await?;
    here.delete(&secret("other", &other)?).await
}

/// A new CA, and its `cacerts` Secret.
fn plugged_in() -> Result<(Bundle, Value)> {
    let ca = Bundle::self_signed(
        "cluster.local",
        KeyType::P256,
        Duration::from_hours(24),
        SystemTime::now(),
    )?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cacerts", "namespace": "istio-system"},
        "stringData": {
            "ca-cert.pem": ca.certificate, "ca-key.pem": std::str::from_utf8(ca.key.expose())?,
            "cert-chain.pem": ca.certificate, "root-cert.pem": ca.roots,
        },
    });
    Ok((ca, secret))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_in_the_cluster_that_configures_the_mesh_signs_and_is_replaced_there() -> Result<()> {
    let primary = Cluster::start_with(ClusterConfig::default()).await?;
    let here = primary.writer().await?;
    here.put(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}}),
    )
    .await?;
    let (first, secret) = plugged_in()?;
    here.put(&secret).await?;

    let folder = tempfile::tempdir()?;
    let folder = folder.path().display().to_string();
    let roots = || text(&here, "istio-ca-root-cert", "root-cert.pem");

    let navarch = start(
        &primary,
        &[("USE_REMOTE_CERTS", "true"), ("ROOT_CA_DIR", &folder)],
    )
    .await?;
    wait::until("its root is in every namespace", || async {
        roots().await == first.roots.trim()
    })
    .await;
    let (second, secret) = plugged_in()?;
    here.put(&secret).await?;
    wait::until("the next one is distributed", || async {
        let roots = roots().await;
        roots.contains(first.roots.trim()) && roots.contains(second.roots.trim())
    })
    .await;

    ensure!(
        std::fs::read_dir(&folder)?.next().is_none(),
        "no file contains the key"
    );
    navarch.stop().await?;

    Ok(())
}

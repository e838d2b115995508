//! Settings that select configuration in a cluster: namespaces, revisions, resources; and the mesh
//! config that contains them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::Writer;
use navarch_testkit::navarch::Navarch;
use serde_json::json;

use super::edge::{self, Edge};
use super::{cluster, program};

/// Creates a namespace with a label.
async fn namespace(writer: &Writer, name: &str, label: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    writer.put(&edge::labelled(object, "mesh", label)).await
}

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn istio_61563_mesh_config_is_reloaded_and_an_invalid_one_rejected() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    namespace(&edge.writer, "edge", "in").await?;
    edge.answer("a", 201).await?;
    edge.writer
        .put(&edge::mesh("shared", "rootNamespace: shared\n"))
        .await?;

    edge.writer
        .put(&edge::mesh("istio-blue", "connectTimeout: 3s\n"))
        .await?;
    let kubeconfig = cluster.admin_kubeconfig();
    let environment = [("SHARED_MESH_CONFIG", "shared")];
    let navarch =
        Navarch::start_on_kubernetes(program(), &kubeconfig, &["--revision=blue"], &environment)
            .await?;
    let gateway = edge::start_gateway(navarch.xds).await?;

    edge::expect("a", 201).await;
    let says = async |text: &str| {
        navarch
            .page("/debug/mesh")
            .await
            .is_ok_and(|page| page.contains(text))
    };

    ensure!(
        says("\"shared\"").await && says("\"3s\"").await,
        "both ConfigMaps take effect: {}",
        navarch.page("/debug/mesh").await?
    );
    edge.writer
        .put(&edge::mesh("istio-blue", "connectTimeout: 4s\n"))
        .await?;

    edge::eventually("the edited mesh config", async || says("\"4s\"").await).await;
    edge.writer
        .put(&edge::mesh("istio-blue", "connectTimeout: [broken\n"))
        .await?;
    let is_named = async || {
        navarch
            .page("/debug/push_status")
            .await
            .is_ok_and(|page| page.contains("ConfigMap/istio-system/istio-blue"))
    };

    edge::eventually("the broken mesh config is named", is_named).await;
    ensure!(
        says("\"4s\"").await,
        "the last valid mesh config stays in force"
    );
    let metrics = navarch.metrics().await?;
    ensure!(
        metrics.contains("navarch_refused_configs{kind=\"MeshConfig\"} 1"),
        "it is counted: {metrics}"
    );
    ensure!(
        navarch
            .output()
            .contains("ConfigMap/istio-system/istio-blue"),
        "the log contains the error"
    );

    // A file replaces the mesh config of the ConfigMap, but not the shared ConfigMap; networks
    // still come from the ConfigMap.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("mesh");
    std::fs::write(&file, "connectTimeout: 7s\n")?;
    let flag = format!("--meshConfig={}", file.display());
    let with_file = Navarch::start_on_kubernetes(
        program(),
        &kubeconfig,
        &["--revision=blue", &flag],
        &environment,
    )
    .await?;
    let page = with_file.page("/debug/mesh").await?;
    ensure!(
        page.contains("\"7s\"") && page.contains("\"shared\"") && !page.contains("\"4s\""),
        "{page}"
    );
    std::fs::write(&file, "connectTimeout: 8s\n")?;
    let edited = async || {
        with_file
            .page("/debug/mesh")
            .await
            .is_ok_and(|page| page.contains("\"8s\""))
    };

    edge::eventually("the edited file", edited).await;
    edge.writer
        .put(&edge::mesh("shared", "rootNamespace: other\n"))
        .await?;
    let edited = async || {
        with_file
            .page("/debug/mesh")
            .await
            .is_ok_and(|page| page.contains("\"8s\"") && page.contains("\"other\""))
    };

    edge::eventually("the edited shared map", edited).await;
    ensure!(with_file.stop().await?, "navarch exits on SIGTERM");

    // Namespaces are included and excluded as their labels change.
    edge.writer
        .put(&edge::mesh(
            "istio-blue",
            "discoverySelectors:\n- matchLabels:\n    mesh: in\n",
        ))
        .await?;

    edge::eventually("selectors are in force", async || {
        says("discoverySelectors").await
    })
    .await;
    edge::expect("a", 201).await;
    namespace(&edge.writer, "edge", "out").await?;
    edge::eventually("a namespace is no longer selected", async || {
        edge::ask("a").await != 201
    })
    .await;
    namespace(&edge.writer, "edge", "in").await?;

    edge::expect("a", 201).await;
    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

/// Objects labelled with a tag belong to the tag's revision, which may change.
async fn tags_stand_for_revisions(edge: &Edge) -> Result<()> {
    edge.writer
        .put(&edge::labelled(
            edge::answer("tagged", 201),
            "istio.io/rev",
            "prod",
        ))
        .await?;

    edge::expect("theirs", 201).await;
    ensure!(edge::ask("tagged").await == 404, "an unknown tag");
    let webhook = |revision: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {
                "name": "istio-revision-tag-prod-istio-system",
                "labels": {"istio.io/tag": "prod", "istio.io/rev": revision},
            },
        })
    };

    edge.writer.put(&webhook("blue")).await?;
    edge::expect("tagged", 201).await;
    edge.writer.put(&webhook("green")).await?;
    edge::expect("tagged", 404).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "istiod-revision-tag-prod", "namespace": "istio-system",
            "labels": {"istio.io/tag": "prod", "istio.io/rev": "blue"},
        },
        "spec": {"ports": [{"port": 443}]},
    });

    edge.writer.put(&service).await?;
    edge::expect("tagged", 201).await;
    edge.writer.delete(&service).await?;
    edge::expect("tagged", 404).await;

    edge.writer.delete(&webhook("green")).await
}

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn other_revisions_and_ignored_resources_do_not_count() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;

    for (name, revision) in [("ours", "blue"), ("theirs", "green")] {
        edge.writer
            .put(&edge::labelled(
                edge::answer(name, 201),
                "istio.io/rev",
                revision,
            ))
            .await?;
    }

    edge.answer("all", 201).await?;
    edge.writer.put(&edge::mesh("istio-blue", "")).await?;
    let kubeconfig = cluster.admin_kubeconfig();
    let navarch =
        Navarch::start_on_kubernetes(program(), &kubeconfig, &["--revision=blue"], &[]).await?;
    let gateway = edge::start_gateway(navarch.xds).await?;
    edge::expect("ours", 201).await;
    edge::expect("all", 201).await;

    ensure!(edge::ask("theirs").await == 404, "another revision's");
    edge.writer
        .put(&edge::labelled(
            edge::answer("ours", 201),
            "istio.io/rev",
            "green",
        ))
        .await?;

    edge.writer
        .put(&edge::labelled(
            edge::answer("theirs", 201),
            "istio.io/rev",
            "blue",
        ))
        .await?;

    edge::expect("theirs", 201).await;
    edge::expect("ours", 404).await;
    tags_stand_for_revisions(&edge).await?;
    gateway.ensure_no_update_rejected().await?;
    drop(gateway);
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");
    let environment = [
        ("PILOT_IGNORE_RESOURCES", "*.istio.io"),
        ("PILOT_INCLUDE_RESOURCES", "gateways.networking.istio.io"),
        ("ISTIO_WATCH_NAMESPACE", "edge"),
    ];
    let navarch = Navarch::start_on_kubernetes(program(), &kubeconfig, &[], &environment).await?;
    let page = navarch.page("/debug/configz").await?;

    ensure!(
        page.contains("Gateway") && !page.contains("VirtualService"),
        "only what is included: {page}"
    );

    // The cluster's id, the domain of its services, and whether its services are read at all.
    let environment = [("CLUSTER_ID", "west")];
    let navarch = Navarch::start_on_kubernetes(
        program(),
        &kubeconfig,
        &["--domain=example.org"],
        &environment,
    )
    .await?;
    let page = navarch.page("/debug/registryz").await?;
    ensure!(
        page.contains("kubernetes.default.svc.example.org") && page.contains("west"),
        "{page}"
    );
    let navarch =
        Navarch::start_on_kubernetes(program(), &kubeconfig, &["--registries="], &[]).await?;

    ensure!(
        !navarch
            .page("/debug/registryz")
            .await?
            .contains("kubernetes.default"),
        "Kubernetes Services are not read"
    );

    ensure!(
        navarch
            .page("/debug/configz")
            .await?
            .contains("all.example.com"),
        "but the mesh's configuration is"
    );

    // Files and the cluster at once: the file's object takes effect, the cluster's is reported as a
    // duplicate.
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join("a.yaml"),
        edge::answer("all", 418).to_string(),
    )?;
    let sources = [
        format!("--config-source=fs://{}", folder.path().display()),
        "--config-source=k8s://".to_owned(),
    ];
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let navarch = Navarch::start_on_kubernetes(program(), &kubeconfig, &sources, &[]).await?;
    let _gateway = edge::start_gateway(navarch.xds).await?;

    edge::expect("all", 418).await;
    edge::expect("theirs", 201).await;
    let page = navarch.page("/debug/push_status").await?;
    ensure!(
        page.contains("k8s:// (VirtualService edge/all)"),
        "the duplicate is reported: {page}"
    );
    std::fs::remove_file(folder.path().join("a.yaml"))?;

    edge::expect("all", 201).await;
    drop(navarch);
    files_combine_with_services_of_a_cluster(&kubeconfig, folder.path()).await
}

/// Configuration from files alone, with the cluster's services unless they are switched off.
async fn files_combine_with_services_of_a_cluster(kubeconfig: &Path, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("a.yaml"), edge::answer("all", 418).to_string())?;
    let directory = format!("--configDir={}", folder.display());
    let cases: [(&[&str], bool); 2] = [
        (&[&directory], true),
        (&[&directory, "--registries="], false),
    ];

    for (arguments, has_services) in cases {
        let navarch = Navarch::start_on_kubernetes(program(), kubeconfig, arguments, &[]).await?;
        let page = navarch.page("/debug/configz").await?;
        ensure!(
            page.contains("all.example.com") && !page.contains("theirs.example.com"),
            "{arguments:?}: {page}"
        );
        let page = navarch.page("/debug/registryz").await?;
        ensure!(
            page.contains("kubernetes.default") == has_services,
            "{arguments:?}: {page}"
        );
    }

    Ok(())
}

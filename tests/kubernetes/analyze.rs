//! `navarch analyze` of clusters: combined with files, by revision, with few rights, and several
//! clusters at once.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::{Cluster, Writer};
use serde_json::{Value, json};

use super::{cluster, program};

/// A VirtualService of a revision that refers to a Gateway and a Service which do not exist.
fn routes(name: &str, revision: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": name, "namespace": "shop", "labels": {"istio.io/rev": revision}},
        "spec": {
            "hosts": [format!("{name}.example.com")],
            "gateways": ["entry"],
            "http": [{"route": [{"destination": {"host": "web.shop.svc.cluster.local"}}]}],
        },
    })
}

fn service(port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ports": [{"name": "http", "port": port}]},
    })
}

/// Analyzes a cluster.
fn analyze(kubeconfig: &Path, flags: &[&str]) -> Result<Output> {
    let mut command = Command::new(program());
    Ok(command
        .arg("analyze")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(flags)
        .output()?)
}

/// The codes of the findings about an object, and its clusters.
fn codes(kubeconfig: &Path, origin: &str, flags: &[&str]) -> Result<Vec<String>> {
    let output = analyze(kubeconfig, &[&["-n", "shop", "-o", "json"], flags].concat())?;
    let found: Vec<Value> =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    ensure!(output.status.success(), "{output:?}");
    let of = found.iter().filter(|message| message["origin"] == origin);
    Ok(of
        .map(|message| {
            [&message["code"], &message["cluster"]]
                .map(|word| word.as_str().unwrap_or_default())
                .concat()
        })
        .collect())
}

/// Creates an account that may read only Services and Istio's kinds.
async fn with_few_rights(cluster: &Cluster, writer: &Writer) -> Result<std::path::PathBuf> {
    let metadata = json!({"name": "reader", "namespace": "shop"});
    writer
        .put(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
        .await?;
    let objects = json!([
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "analysis-reader"},
            "rules": [{
                "apiGroups": ["", "networking.istio.io", "gateway.networking.k8s.io"],
                "resources": ["services", "virtualservices", "gateways"], "verbs": ["list"],
            }],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "analysis-reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "analysis-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "shop"}],
        },
    ]);

    for object in objects.as_array().context("a list")? {
        cluster.apply(&object.to_string())?;
    }

    cluster.kubeconfig_of("shop", "reader").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_analyzed_with_files_over_it_and_with_the_clusters_beside_it() -> Result<()> {
    let guard = cluster().await?;
    let primary = guard.as_ref().context("a cluster")?;
    let writer = primary.writer().await?;

    for name in ["shop", "istio-system"] {
        writer
            .put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await?;
    }

    for (name, revision) in [("reviews", "default"), ("other", "canary")] {
        writer.put(&routes(name, revision)).await?;
    }

    let kubeconfig = primary.admin_kubeconfig();
    let reviews = "VirtualService shop/reviews";
    let other = "VirtualService shop/other";
    let lacks_both = ["IST0101", "IST0101", "IST0132"];
    ensure!(
        codes(&kubeconfig, reviews, &[])? == lacks_both,
        "{:?}",
        codes(&kubeconfig, reviews, &[])?
    );

    ensure!(
        codes(&kubeconfig, other, &[])?.is_empty(),
        "objects of another revision are ignored"
    );
    ensure!(codes(&kubeconfig, other, &["--revision", "canary"])? == lacks_both);
    by_tag(&writer, &kubeconfig).await?;
    writer.put(&service(80)).await?;
    ensure!(
        codes(&kubeconfig, reviews, &[])? == ["IST0101", "IST0132"],
        "the Service exists now"
    );

    // Files take precedence over objects of the cluster, and objects without a namespace are in the
    // reported one.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("entry.yaml");
    std::fs::write(
        &file,
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: entry}\nspec: {servers: [{port: {number: 80, \
         name: http, protocol: HTTP}, hosts: ['*']}]}\n",
    )?;

    let file = file.display().to_string();
    ensure!(
        codes(&kubeconfig, reviews, &[&file])?.is_empty(),
        "the file's Gateway is found"
    );
    ensure!(
        codes(&kubeconfig, reviews, &[])? == ["IST0101", "IST0132"],
        "the file is not applied to the cluster"
    );

    // Exit codes: findings, no findings, unknown namespace.
    let code = |flags: &[&str]| -> Result<_> {
        let output = analyze(&kubeconfig, flags)?;
        Ok((
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    };

    ensure!(
        code(&["-n", "shop"])?.0 == Some(79),
        "{:?}",
        code(&["-n", "shop"])?
    );
    let (status, stderr) = code(&["-n", "istio-system"])?;
    ensure!(
        (
            status,
            stderr.contains("No validation issues found when analyzing namespace: istio-system")
        ) == (Some(0), true),
        "{stderr}"
    );

    let (status, stderr) = code(&["-n", "nowhere"])?;
    ensure!(
        (status, stderr.contains("namespace \"nowhere\" not found")) == (Some(1), true),
        "{stderr}"
    );

    // Denied kinds are reported, and analyzers that need them are skipped.
    let reader = with_few_rights(primary, &writer).await?;
    let output = analyze(&reader, &["-n", "istio-system"])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(
        stderr.contains("failed to read secrets") && stderr.contains("gateway.SecretAnalyzer"),
        "{stderr}"
    );

    let output = analyze(
        &reader,
        &["-n", "shop", "--analyzer", "virtualservice.GatewayAnalyzer"],
    )?;
    ensure!(
        output.status.code() == Some(79),
        "the analyzer's kinds may be read: {output:?}"
    );

    beside(primary, &writer).await
}

/// An object belongs to a revision if its label is the revision or one of its tags, no matter which
/// of them is the argument.
async fn by_tag(writer: &Writer, kubeconfig: &Path) -> Result<()> {
    writer.put(&routes("tagged", "analyzed")).await?;
    let tagged = "VirtualService shop/tagged";
    let other = "VirtualService shop/other";
    ensure!(
        codes(kubeconfig, tagged, &["--revision", "canary"])?.is_empty(),
        "the revision has no tag"
    );
    let tag = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "istiod-revision-tag-analyzed", "namespace": "istio-system",
            "labels": {"istio.io/rev": "canary", "istio.io/tag": "analyzed"},
        },
        "spec": {"ports": [{"name": "grpc-xds", "port": 15010}]},
    });

    writer.put(&tag).await?;

    for revision in ["canary", "analyzed"] {
        for origin in [tagged, other] {
            let found = codes(kubeconfig, origin, &["--revision", revision])?;
            ensure!(found.len() == 3, "{revision}: {origin}: {found:?}");
        }
    }

    ensure!(
        codes(kubeconfig, tagged, &[])?.is_empty(),
        "the object is not of the default revision"
    );

    writer.delete(&tag).await
}

/// Services of the same name in several clusters are compared.
async fn beside(primary: &Cluster, writer: &Writer) -> Result<()> {
    let remote = Cluster::start().await?;
    let there = remote.writer().await?;
    there
        .put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
        .await?;
    there.put(&service(81)).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "analyzed", "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}},
        "stringData": {"east": std::fs::read_to_string(remote.admin_kubeconfig())?},
    });
    writer.put(&secret).await?;

    let kubeconfig = primary.admin_kubeconfig();
    let compared = ["--analyzer", "services.MultiClusterServiceAnalyzer"];
    let found = codes(&kubeconfig, "Service shop/web", &compared)?;

    // Delete the Secret before the last check, so that a failure does not affect other tests.
    writer
        .delete(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": secret["metadata"]}))
        .await?;
    ensure!(found == ["IST0170default"], "{found:?}");
    let alone = codes(&kubeconfig, "Service shop/web", &compared)?;
    ensure!(alone.is_empty(), "{alone:?}");

    Ok(())
}

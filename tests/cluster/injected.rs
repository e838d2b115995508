//! Injected pods as the kubelet runs them.

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::Mesh;
use serde_json::{Value, json};

/// The containers with a name in a list.
fn named<'a>(pod: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    pod["spec"][list]
        .as_array()?
        .iter()
        .find(|container| container["name"] == name)
}

/// Pods have native sidecars, probes go through the agent, and exec and logs work.
pub(crate) fn pods_are_as_a_kubelet_runs_them(mesh: &Mesh) -> Result<()> {
    let list = mesh.node.get(pods::NAMESPACE, &["pods"])?;
    let list = list["items"].as_array().context("a list")?;
    ensure!(
        list.len() == 5,
        "the bookshop has five pods, not {}",
        list.len()
    );

    for pod in list {
        let name = &pod["metadata"]["name"];
        ensure!(
            named(pod, "initContainers", "istio-init").is_some(),
            "{name}: its traffic is not captured"
        );
        let proxy = named(pod, "initContainers", "istio-proxy")
            .with_context(|| format!("{name}: no native sidecar"))?;
        ensure!(
            proxy["restartPolicy"] == "Always",
            "{name}: the sidecar is not a native one: {proxy}"
        );

        ensure!(
            proxy["image"] == "localhost/navarch-proxy:test",
            "{name}: {}",
            proxy["image"]
        );
        let app = named(pod, "containers", "app").context("an application")?;
        let probes = [
            ("readinessProbe", "/app-health/app/readyz"),
            ("livenessProbe", "/app-health/app/livez"),
        ];

        for (probe, path) in probes {
            let http_get = &app[probe]["httpGet"];
            ensure!(
                http_get["path"] == path && http_get["port"] == 15020,
                "{name}: {probe} does not go to the agent: {http_get}"
            );
        }

        for list in ["containerStatuses", "initContainerStatuses"] {
            for status in pod["status"][list].as_array().context("statuses")? {
                ensure!(
                    status["restartCount"] == 0,
                    "{name}: a container was restarted: {status}"
                );
            }
        }
    }

    let kubectl = |arguments: &[&str]| {
        let mut all = vec!["--namespace", pods::NAMESPACE];
        all.extend(arguments);
        mesh.node.kubectl(&all)
    };
    let output = kubectl(&["logs", "deployment/catalog-v1", "--container=app"])?;
    ensure!(
        output.contains("catalog listens on 8081"),
        "the application's log: {output}"
    );

    let output = kubectl(&["logs", "deployment/catalog-v1", "--container=istio-proxy"])?;
    ensure!(output.contains("Envoy"), "the agent's log: {output}");
    let request = [
        "/usr/local/bin/pilot-agent",
        "request",
        "GET",
        "server_info",
    ];

    let mut exec = vec![
        "exec",
        "deployment/catalog-v1",
        "--container=istio-proxy",
        "--",
    ];

    exec.extend(request);
    let output = kubectl(&exec)?;
    let state = serde_json::from_str::<Value>(&output)?["state"].clone();
    ensure!(state == "LIVE", "Envoy by `pilot-agent request`: {output}");

    Ok(())
}

/// A Job in the mesh completes: the kubelet stops its native sidecar after the application exits.
pub(crate) fn a_job_ends_although_it_has_a_sidecar(mesh: &Mesh) -> Result<()> {
    let container = json!({
        "name": "app",
        "image": pods::IMAGE,
        "args": ["get", "20", "catalog:9080/catalog/"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    });

    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    mesh.apply(&[json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "reader", "namespace": pods::NAMESPACE},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    })])?;

    let namespace = ["--namespace", pods::NAMESPACE];
    let kubectl = |arguments: &[&str]| mesh.node.kubectl(&[&namespace[..], arguments].concat());
    kubectl(&[
        "wait",
        "--for=condition=Complete",
        "job/reader",
        "--timeout=60s",
    ])?;

    let output = kubectl(&["logs", "job/reader", "--container=app"])?;
    ensure!(
        output.contains("\"catalog: catalog\":20"),
        "expected 20 responses: {output}"
    );
    kubectl(&["delete", "job", "reader"])?;

    Ok(())
}

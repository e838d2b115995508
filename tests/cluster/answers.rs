//! Navarch's commands before, during and after changes of a mesh on a real node: a plan, a staged
//! rollout, and a change that Envoys reject.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::Mesh;
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use crate::asked::{run_navarch, storefront};

/// The sidecars of the bookshop.
const SIDECARS: usize = 5;
/// A filter that Envoy does not have.
const UNKNOWN: &str = "no.such.Filter";

/// The VirtualService of the reviews, with this weight for the new version, and annotations.
fn reviews(mesh: &Mesh, new: u32, annotations: &Value) -> Result<Value> {
    let now = mesh
        .node
        .get(pods::NAMESPACE, &["virtualservice", "reviews"])?;
    let mut spec = now["spec"].clone();
    let rules = spec["http"].as_array_mut().context("rules")?;
    let split = rules
        .iter_mut()
        .find(|rule| rule["name"] == "split")
        .context("the VirtualService has two weights")?;
    (split["route"][0]["weight"], split["route"][1]["weight"]) = (json!(100 - new), json!(new));
    Ok(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": "reviews", "namespace": pods::NAMESPACE, "annotations": annotations },
        "spec": spec,
    }))
}

/// Runs each command with real sidecars and a real kubelet.
pub(crate) async fn plan_rollout_why_and_quarantine_work_on_a_real_node(mesh: &Mesh) -> Result<()> {
    let folder = tempfile::tempdir()?;
    a_plan_shows_changed_routes_of_requests(mesh, folder.path())?;
    a_change_is_rolled_out_in_stages(mesh).await?;
    why_lists_the_source_objects_of_a_route(mesh).await?;
    objects_rejected_by_envoys_are_quarantined(mesh).await?;
    all_is_packed(mesh, folder.path())
}

fn a_plan_shows_changed_routes_of_requests(mesh: &Mesh, folder: &Path) -> Result<()> {
    let change = folder.join("change.json");
    std::fs::write(&change, reviews(mesh, 100, &Value::Null)?.to_string())?;
    let (plan, code) = run_navarch(mesh, &["plan", "-f", &change.display().to_string()])?;
    let traffic = plan["traffic"].to_string();
    ensure!(
        code == 0 && plan["reached"] == SIDECARS && traffic.contains("v2 100 %"),
        "{plan}"
    );

    let (way, _) = run_navarch(mesh, &["applied", "vs", "reviews", "-n", pods::NAMESPACE])?;
    let generation = &way["replicas"][0]["applied"]["generation"];
    let now = mesh
        .node
        .get(pods::NAMESPACE, &["virtualservice", "reviews"])?;
    ensure!(
        *generation == now["metadata"]["generation"],
        "the plan changes no route: {way}"
    );

    Ok(())
}

/// `kubectl wait` waits for the status of `navarch rollout`.
async fn a_change_is_rolled_out_in_stages(mesh: &Mesh) -> Result<()> {
    let stages = json!({ "navarch.io/rollout": "50%,100%", "navarch.io/rollout-pause": "1s" });
    mesh.apply(&[reviews(mesh, 50, &stages)?])?;
    let object = ["vs", "reviews", "-n", pods::NAMESPACE];
    until("a change is on its way", async || {
        run_navarch(mesh, &[&["rollout", "status"][..], &object].concat())
            .is_ok_and(|(status, code)| code == 3 && status["rollouts"][0]["state"] == "rolling")
    })
    .await;

    let wait = [
        "--namespace",
        pods::NAMESPACE,
        "wait",
        "--for=condition=RolledOut",
        "--timeout=60s",
    ];

    mesh.node
        .kubectl(&[&wait[..], &["virtualservice/reviews"]].concat())?;
    let (applied, code) = run_navarch(
        mesh,
        &[&["applied"][..], &object, &["--wait", "--timeout=60s"]].concat(),
    )?;
    ensure!(
        code == 0 && applied["replicas"][0]["applied"]["taken"] == SIDECARS,
        "{applied}"
    );

    mesh.apply(&[reviews(mesh, 10, &json!({ "navarch.io/rollout": "off" }))?])
}

async fn why_lists_the_source_objects_of_a_route(mesh: &Mesh) -> Result<()> {
    let pod = storefront(mesh)?;
    let (why, code) = run_navarch(mesh, &["why", "proxy", &pod, "9080", "--type", "rds"])?;
    let objects = why["resources"][0]["objects"].to_string();
    ensure!(
        code == 0 && objects.contains("VirtualService bookshop/reviews"),
        "{why}"
    );

    until(
        "the last push of the pod is acknowledged, with its cause",
        async || {
            run_navarch(mesh, &["why", "push", &pod]).is_ok_and(|(why, _)| {
                let of_rule = |push: &&Value| {
                    push["causes"]
                        .to_string()
                        .contains("VirtualService bookshop/reviews")
                };
                let last = why["pushes"]
                    .as_array()
                    .and_then(|all| all.iter().find(of_rule));
                last.is_some_and(|push| {
                    push["taken"] == true && push["answeredMs"].as_f64().is_some()
                })
            })
        },
    )
    .await;

    Ok(())
}

/// The object's status and an Event contain Envoy's error, and other changes still reach proxies.
async fn objects_rejected_by_envoys_are_quarantined(mesh: &Mesh) -> Result<()> {
    let filter = json!({
        "@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": format!("type.googleapis.com/{UNKNOWN}"), "value": {},
    });
    let before_router = json!({ "name": "envoy.filters.network.http_connection_manager", "subFilter": { "name": "envoy.filters.http.router" } });
    mesh.apply(&[json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": { "name": "rejected", "namespace": pods::NAMESPACE },
        "spec": { "configPatches": [{
            "applyTo": "HTTP_FILTER",
            "match": { "context": "SIDECAR_OUTBOUND", "listener": { "filterChain": { "filter": before_router } } },
            "patch": { "operation": "INSERT_BEFORE", "value": { "name": "unknown", "typed_config": filter } },
        }] },
    })])?;

    let namespaced = ["--namespace", pods::NAMESPACE];
    let wait = [
        "wait",
        "--for=condition=Quarantined",
        "--timeout=60s",
        "envoyfilter/rejected",
    ];

    mesh.node.kubectl(&[&namespaced[..], &wait].concat())?;
    let described = || {
        mesh.node
            .kubectl(&[&namespaced[..], &["describe", "envoyfilter", "rejected"]].concat())
    };
    until("an Event has Envoy's error", async || {
        described().is_ok_and(|description| {
            description
                .rsplit_once("Events:")
                .is_some_and(|(_, events)| events.contains(UNKNOWN))
        })
    })
    .await;
    let (applied, code) = run_navarch(
        mesh,
        &["applied", "envoyfilter", "rejected", "-n", pods::NAMESPACE],
    )?;
    ensure!(code == 4, "{code}: {applied}");
    let (health, code) = run_navarch(mesh, &["doctor"])?;
    ensure!(
        code != 0 && health.to_string().contains("EnvoyFilter bookshop/rejected"),
        "{health}"
    );

    mesh.apply(&[reviews(mesh, 20, &json!({ "navarch.io/rollout": "off" }))?])?;
    let (applied, code) = run_navarch(
        mesh,
        &[
            "applied",
            "vs",
            "reviews",
            "-n",
            pods::NAMESPACE,
            "--wait",
            "--timeout=60s",
        ],
    )?;

    ensure!(code == 0, "other objects are still applied: {applied}");
    mesh.apply(&[reviews(mesh, 10, &json!({ "navarch.io/rollout": "off" }))?])?;
    mesh.node
        .kubectl(&[&namespaced[..], &["delete", "envoyfilter", "rejected"]].concat())
        .map(drop)
}

fn all_is_packed(mesh: &Mesh, folder: &Path) -> Result<()> {
    let bundle = folder.join("bundle.tar.gz");
    let (packed, code) = run_navarch(
        mesh,
        &["support-bundle", "--file", &bundle.display().to_string()],
    )?;
    let size = std::fs::metadata(&bundle)?.len();
    ensure!(code == 0 && size > 10_000, "{size} bytes: {packed}");
    Ok(())
}

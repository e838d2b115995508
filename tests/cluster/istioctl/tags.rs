//! Revision tags of the chart, and of istioctl.

use anyhow::{Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::istio::{istioctl, rows};
use navarch_testkit::mesh::Mesh;
use navarch_testkit::wait;
use serde_json::{Value, json};

use super::Tool;

/// The namespace with the label of a tag that istioctl creates.
const STAGE: &str = "stage";

/// `tag list` lists the canary's tag with its revision, and with the namespace that uses it, if one
/// does.
pub(crate) fn a_tag_is_listed(mesh: &Mesh, is_followed: bool) -> Result<()> {
    let Some(program) = istioctl() else {
        return Ok(());
    };
    let shown = program.run(&mesh.node.kubeconfig(), &["tag", "list"])?;
    let mut wanted = vec!["prod", "canary"];
    wanted.extend(is_followed.then_some(pods::NAMESPACE));
    ensure!(rows(&shown).contains(&wanted), "{shown}");
    Ok(())
}

/// `tag set` creates a tag by which pods are injected, and `tag remove` deletes it.
pub(super) async fn a_tag_is_set_and_removed(tool: &Tool<'_>) -> Result<()> {
    let mesh = tool.mesh;
    let run = |words: &[&str]| tool.run(words);
    let metadata = json!({"name": STAGE, "labels": {"istio.io/rev": STAGE}});
    mesh.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})])?;
    wait::until("pods are created without a proxy", || async {
        proxy(mesh).is_ok_and(|proxy| proxy.is_none())
    })
    .await;

    run(&["tag", "set", STAGE, "--revision", "default"])?;
    ensure!(
        rows(&run(&["tag", "list"])?).contains(&vec![STAGE, "default", STAGE]),
        "{}",
        run(&["tag", "list"])?
    );
    wait::until("a proxy is injected by the tag", || async {
        proxy(mesh).is_ok_and(|proxy| proxy.is_some())
    })
    .await;
    run(&["tag", "remove", STAGE, "--skip-confirmation"])?;
    ensure!(
        !run(&["tag", "list"])?.contains(STAGE),
        "{}",
        run(&["tag", "list"])?
    );
    wait::until("pods are no longer injected", || async {
        proxy(mesh).is_ok_and(|proxy| proxy.is_none())
    })
    .await;
    mesh.node
        .kubectl(&["delete", "namespace", STAGE, "--wait=false"])
        .map(drop)
}

/// The proxy image that a new pod in the namespace would get.
fn proxy(mesh: &Mesh) -> Result<Option<Value>> {
    let container = json!({"name": "app", "image": pods::IMAGE});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked", "namespace": STAGE},
        "spec": {"containers": [container]},
    });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("pod.json");
    std::fs::write(&file, pod.to_string())?;

    let file = file.display().to_string();
    let made = mesh.node.kubectl(&[
        "create",
        "--dry-run=server",
        "--output=json",
        "--filename",
        &file,
    ])?;

    let made: Value = serde_json::from_str(&made)?;
    let containers = made["spec"]["initContainers"]
        .as_array()
        .cloned()
        .unwrap_or_default();

    Ok(containers
        .into_iter()
        .find(|container| container["name"] == "istio-proxy"))
}

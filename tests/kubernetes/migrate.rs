//! `navarch migrate` with an API server: steps, edits of others, and the way back.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::cluster::Writer;
use serde_json::{Value, json};

use super::{cluster, program};

const NAMESPACE: &str = "moving";
/// The namespace of the components of the mesh.
const SYSTEM: &str = "mesh-system";

/// A user of the command.
struct Operator {
    kubeconfig: PathBuf,
}

impl Operator {
    /// Runs a command, and returns its exit code and all of its output.
    fn run(&self, arguments: &[&str]) -> Result<(Option<i32>, String)> {
        let output = Command::new(program())
            .arg("migrate")
            .args(arguments)
            .args(["-i", SYSTEM, "--env", "PILOT_ENABLE_AMBIENT=true"])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .output()?;
        let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        Ok((output.status.code(), text))
    }

    /// Runs a command that must have this exit code, and print this.
    fn expect(&self, arguments: &[&str], code: i32, part: &str) -> Result<()> {
        let (found, text) = self.run(arguments)?;
        ensure!(
            found == Some(code) && text.contains(part),
            "{arguments:?}: {found:?} without {part:?}: {text}"
        );
        Ok(())
    }
}

/// A workload with pods of these labels, as the API server accepts it.
fn workload(kind: &str, namespace: &str, name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "app", "image": "app" }] },
            },
        },
    })
}

/// A pod of the Deployment `web` with a sidecar.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-1a-x", "namespace": NAMESPACE,
            "labels": { "app": "web", "pod-template-hash": "1a", "security.istio.io/tlsMode": "istio" },
            "annotations": { "sidecar.istio.io/status": "{}" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1a", "controller": true,
                "uid": "0b5e1c4e-6f5b-4a57-9d2a-3f1f1a5a7c11",
            }],
        },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "app", "image": "app" }, { "name": "istio-proxy", "image": "proxy" }],
        },
        "status": {
            "phase": "Running", "podIP": "10.1.0.1", "podIPs": [{ "ip": "10.1.0.1" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

async fn create(writer: &Writer) -> Result<()> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": { "istio-injection": "enabled" } },
    });
    writer.put(&namespace).await?;
    let account = json!({ "name": "default", "namespace": NAMESPACE });
    writer
        .put(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account }))
        .await?;
    writer
        .put(&workload("Deployment", NAMESPACE, "web"))
        .await?;
    writer.put(&pod()).await?;
    for name in ["ztunnel", "istio-cni-node"] {
        writer.put(&workload("DaemonSet", SYSTEM, name)).await?;
    }
    Ok(())
}

/// The labels of the namespace that moves.
async fn labels(writer: &Writer) -> Result<Value> {
    let namespace = writer
        .get(&format!("/api/v1/namespaces/{NAMESPACE}"))
        .await?;
    Ok(namespace["metadata"]["labels"].clone())
}

/// A record in the namespace with this step, begun or done.
fn record(progress: &str, edit: &Value, undo: &Value) -> Value {
    let step = json!({ "title": "a step", "time": "now", "edits": [edit], "undo": [undo] });
    let mut state = json!({ "format": 1, "steps": [], "done": [] });
    state[progress] = if progress == "done" {
        json!([step])
    } else {
        step
    };
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "navarch-migration", "namespace": NAMESPACE },
        "data": { "state.json": state.to_string() },
    })
}

/// Nothing is edited for records that no step has written.
async fn refuses_planted_records(writer: &Writer, operator: &Operator) -> Result<()> {
    let label = |waypoint: Value| {
        json!({
            "object": { "apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE },
            "action": "patch",
            "patch": { "metadata": { "labels": { "istio.io/use-waypoint": waypoint } } },
        })
    };
    let path = "security.istio.io/v1/namespaces/bank/authorizationpolicies/deny?x=";
    let elsewhere = json!({
        "object": {
            "apiVersion": path, "kind": "AuthorizationPolicy",
            "namespace": NAMESPACE, "name": "deny",
        },
        "action": "patch", "patch": { "spec": { "rules": [] } },
    });
    let before = labels(writer).await?;
    let apply: &[&str] = &["apply", NAMESPACE, "--next"];
    let undo: &[&str] = &["undo", NAMESPACE, "--yes", "--force"];

    let begun = record("begun", &label(json!("evil")), &label(Value::Null));
    let done = record("done", &label(json!("waypoint")), &label(json!("evil")));
    let foreign = record("begun", &elsewhere, &elsewhere);
    for (planted, command, code, part) in [
        (&begun, apply, 1, "is not the next step of a plan made now"),
        (&done, undo, 1, "no step makes the recorded edit"),
        (&foreign, apply, 2, "somebody else has written it"),
    ] {
        writer.put(planted).await?;
        operator.expect(command, code, part)?;
        ensure!(labels(writer).await? == before, "{part}");
        writer.delete(planted).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_moves_step_by_step_and_back() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let writer = cluster.writer().await?;
    create(&writer).await?;
    let operator = Operator {
        kubeconfig: cluster.admin_kubeconfig(),
    };

    // The first step, and only that.
    let apply = ["apply", NAMESPACE, "--next"];
    operator.expect(&["plan", NAMESPACE], 0, "3 steps")?;
    operator.expect(&["apply", NAMESPACE, "--step", "2"], 1, "has the number 1")?;
    operator.expect(&apply, 0, "Step 1 is done: label namespace moving")?;
    ensure!(labels(&writer).await?["istio.io/dataplane-mode"] == "ambient");
    operator.expect(&["status", NAMESPACE], 0, "next  step 2: restart")?;

    // An edit of somebody else is found, and is only overwritten if that is wanted.
    let label = "istio.io/dataplane-mode=none";
    cluster.kubectl(&["label", "namespace", NAMESPACE, "--overwrite", label], "")?;
    operator.expect(&["status", NAMESPACE], 1, "was edited since")?;
    operator.expect(&apply, 1, "the plan has changed")?;
    operator.expect(&["undo", NAMESPACE], 1, "was edited since")?;
    operator.expect(&["undo", NAMESPACE, "--force", "--yes"], 0, "Undone: label")?;
    ensure!(labels(&writer).await?["istio.io/dataplane-mode"].is_null());
    ensure!(labels(&writer).await?["istio-injection"] == "enabled");
    operator.expect(&["undo", NAMESPACE], 2, "nothing to undo")?;

    // A restart is awaited.
    operator.expect(&apply, 0, "Step 1 is done")?;
    operator.expect(&apply, 0, "Step 2 is done: restart")?;
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web");
    let template = |deployment: &Value| deployment["spec"]["template"]["metadata"].clone();
    let restarted = template(&writer.get(&path).await?);
    ensure!(restarted["labels"]["sidecar.istio.io/inject"] == "false");
    ensure!(restarted["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string());
    operator.expect(&apply, 1, "has 1 pods with sidecars")?;

    operator.expect(&["undo", NAMESPACE], 1, "To undo: restart")?;
    ensure!(
        template(&writer.get(&path).await?) == restarted,
        "only shown"
    );
    operator.expect(&["undo", NAMESPACE, "--yes"], 0, "Undone: restart")?;
    let restored = template(&writer.get(&path).await?);
    ensure!(restored["labels"] == json!({ "app": "web" }), "{restored}");
    operator.expect(&["undo", NAMESPACE, "--yes"], 0, "Undone: label")?;

    refuses_planted_records(&writer, &operator).await?;

    for kind in ["Deployment", "Namespace"] {
        let object = match kind {
            "Namespace" => {
                json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": NAMESPACE } })
            }
            _ => workload(kind, NAMESPACE, "web"),
        };
        writer.delete(&object).await?;
    }
    Ok(())
}

//! istioctl and navarch report the same findings in one cluster.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::istio;
use serde_json::{Value, json};

use super::Tool;
use crate::program;

/// A finding: code, level, object, message.
type Finding = [String; 4];

/// Objects with faults, each with the expected code.
fn faults() -> Vec<(Value, &'static str, &'static str)> {
    let metadata = |name: &str| json!({"name": name, "namespace": pods::NAMESPACE});
    let lost = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": metadata("lost"),
        "spec": {
            "hosts": ["lost.example.com"], "gateways": ["nowhere"],
            "http": [{"route": [{"destination": {"host": "storefront"}}]}],
        },
    });

    let idle = json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": metadata("idle"),
        "spec": {"selector": {"matchLabels": {"app": "nobody"}}},
    });
    let unnamed = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata("unnamed"),
        "spec": {"selector": {"app": "catalog"}, "ports": [{"name": "foo", "port": 9080, "targetPort": 8081}]},
    });

    vec![
        (lost, "IST0101", "VirtualService bookshop/lost"),
        (idle, "IST0127", "AuthorizationPolicy bookshop/idle"),
        (unnamed, "IST0118", "Service bookshop/unnamed"),
    ]
}

/// Reads findings from JSON output.
fn read(shown: &str) -> Result<BTreeSet<Finding>> {
    let all: Vec<Value> = serde_json::from_str(shown).with_context(|| shown.to_owned())?;
    let words = |one: &Value| {
        ["code", "level", "origin", "message"]
            .map(|field| one[field].as_str().unwrap_or_default().to_owned())
    };
    Ok(all.iter().map(words).collect())
}

/// `istioctl analyze -A` and `navarch analyze -A` report the same findings, including the faults
/// above; `x precheck` reports none that prevents an upgrade.
pub(super) fn both_find_the_same(tool: &Tool<'_>) -> Result<()> {
    let faults = faults();
    let objects: Vec<Value> = faults.iter().map(|(object, ..)| object.clone()).collect();
    tool.mesh.apply(&objects)?;
    let words = ["analyze", "--all-namespaces", "--output", "json"];
    let theirs = read(&tool.run(&words)?)?;
    let mut command = Command::new(program("navarch"));
    command
        .args(words)
        .env("KUBECONFIG", &tool.kubeconfig)
        .env("HOME", "/nonexistent");

    let ours = read(&istio::printed(&command.output()?)?)?;
    let lacks: Vec<_> = theirs.difference(&ours).collect();
    let adds: Vec<_> = ours.difference(&theirs).collect();
    ensure!(
        theirs == ours,
        "missing in navarch: {lacks:?}; only in navarch: {adds:?}"
    );

    for (_, code, object) in faults {
        let is_reported = theirs
            .iter()
            .any(|[known, _, origin, _]| known == code && origin == object);
        ensure!(
            is_reported,
            "{code} of {object} is not reported: {theirs:?}"
        );
    }

    for object in objects {
        let kind = &object["kind"];
        let name = &object["metadata"]["name"];
        let kind = kind.as_str().context("a kind")?;
        let name = name.as_str().context("a name")?;
        tool.mesh
            .node
            .kubectl(&["--namespace", pods::NAMESPACE, "delete", kind, name])?;
    }

    tool.run(&["experimental", "precheck"]).map(drop)
}

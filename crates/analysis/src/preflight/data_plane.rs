//! What is connected to the control plane: proxies, ztunnel, istio-cni, and Gateways by class.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Installation;
use super::objects::{
    DAEMON_SET, ENVOY_FILTER, KUBERNETES_GATEWAY, POD, items, label, text, title,
};
use super::release::Minor;
use super::row::{Outcome, Row};

/// The container of a proxy.
const PROXY: &str = "istio-proxy";
/// The agents of nodes, with what happens to them.
const NODE_AGENTS: [NodeAgent; 2] = [
    NodeAgent {
        label: ZTUNNEL_LABEL,
        value: ZTUNNEL,
        reason: "ztunnel reconnects, and is served by Navarch",
    },
    NodeAgent {
        label: "k8s-app",
        value: "istio-cni-node",
        reason: "istio-cni sets up the capture of pods as before",
    },
];
/// The label of ztunnel's pods, whose container has the name of a proxy's.
const ZTUNNEL_LABEL: &str = "app";
const ZTUNNEL: &str = "ztunnel";
/// How names of filters begin that only Istio's build of Envoy has.
const ISTIOS_FILTER: &str = "istio.";

/// A DaemonSet of Istio, by a label of its pods.
struct NodeAgent {
    label: &'static str,
    value: &'static str,
    /// What becomes of it.
    reason: &'static str,
}

/// The rows about the data plane.
pub(super) fn rows(installation: Installation<'_>) -> Vec<Row> {
    let mut rows = proxies(installation);
    rows.extend(node_agents(installation));
    rows.extend(gateways(installation));
    rows.extend(envoy_filters(installation));
    rows
}

/// The proxies by image.
fn proxies(installation: Installation<'_>) -> Vec<Row> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let pods = installation.objects.of(POD);
    for pod in pods.filter(|pod| label(pod, ZTUNNEL_LABEL) != ZTUNNEL) {
        // As native sidecars, proxies are init containers.
        let mut containers = ["/spec/containers", "/spec/initContainers"]
            .into_iter()
            .flat_map(|list| items(pod, list));
        let proxy = containers.find(|container| text(container, "/name") == PROXY);
        if let Some(proxy) = proxy {
            *counts.entry(text(proxy, "/image")).or_default() += 1;
        }
    }

    let row = |(image, count): (&str, usize)| {
        let object = format!("{count} pods with {PROXY}");
        let minor = Minor::of_image(image);
        let is_older = minor
            .zip(Minor::oldest())
            .is_some_and(|(minor, oldest)| minor < oldest);
        let row = |outcome, reason: &str| Row::new(outcome, &object, reason).at(image);
        if is_older {
            row(
                Outcome::DoFirst,
                "the agent is older than the releases that Navarch was made for",
            )
            .then("upgrade istiod, then restart these pods")
        } else {
            row(
                Outcome::Same,
                "proxies reconnect and keep their image and certificates; nothing must be restarted",
            )
        }
    };
    counts.into_iter().map(row).collect()
}

/// ztunnel and istio-cni, which Navarch does not install.
fn node_agents(installation: Installation<'_>) -> Vec<Row> {
    let row = |daemons: &Value| {
        let labels = daemons.pointer("/spec/template/metadata/labels")?;
        let agent = NODE_AGENTS
            .into_iter()
            .find(|agent| labels.get(agent.label).and_then(Value::as_str) == Some(agent.value))?;

        let image = text(daemons, "/spec/template/spec/containers/0/image");
        Some(Row::new(Outcome::Same, title(daemons), agent.reason).at(image))
    };
    installation
        .objects
        .of(DAEMON_SET)
        .filter_map(row)
        .collect()
}

/// Gateways of the Gateway API, by class.
fn gateways(installation: Installation<'_>) -> Vec<Row> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for gateway in installation.objects.of(KUBERNETES_GATEWAY) {
        *counts
            .entry(text(gateway, "/spec/gatewayClassName"))
            .or_default() += 1;
    }

    let row = |(class, count): (&str, usize)| {
        let object = format!("{count} Gateways of class {class}");
        let reason = "classes, names of Deployments and the controller's name are istiod's";
        Row::new(Outcome::Same, object, reason)
    };
    counts.into_iter().map(row).collect()
}

/// EnvoyFilters that name filters of Istio's build of Envoy: proxies must keep Istio's image.
fn envoy_filters(installation: Installation<'_>) -> Vec<Row> {
    let row = |filter: &Value| {
        let named = istios_filter(filter.get("spec")?)?;
        let reason = format!("names the filter {named}, which only Istio's build of Envoy has");
        let row = Row::new(Outcome::Same, title(filter), reason);
        Some(row.then(
            "leave global.proxy.image as it is, or rewrite the patch before proxies run navarch-proxy",
        ))
    };
    installation
        .objects
        .of(ENVOY_FILTER)
        .filter_map(row)
        .collect()
}

/// The first filter of Istio's build of Envoy that a value names.
fn istios_filter(value: &Value) -> Option<&str> {
    match value {
        Value::Object(members) => members.iter().find_map(|(key, member)| match member {
            Value::String(text) => {
                Some(text.as_str()).filter(|text| key == "name" && text.starts_with(ISTIOS_FILTER))
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => istios_filter(member),
        }),
        Value::Array(items) => items.iter().find_map(istios_filter),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

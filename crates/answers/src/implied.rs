//! The proxies that are expected, derived from pods and WorkloadEntries.

use std::net::IpAddr;

use serde_json::{Map, json};

use super::client::Client;
use super::node_message::NodeMessage;
use navarch_ambient::is_redirected;
use navarch_api::istio::WorkloadEntry;
use navarch_api::kubernetes::Pod;
use navarch_api::object::{NamespacedName, Object};
use navarch_api::text_map::TextMap;
use navarch_push::context::PushContext;
use navarch_push::proxy::Proxy;

/// The label and annotation for sidecar injection of pods.
const INJECT: &str = "sidecar.istio.io/inject";
/// The label for sidecar injection of namespaces.
const NAMESPACE_INJECT: &str = "istio-injection";
/// The label of pods that were created for a Gateway.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// The label with the controller that created a pod, and its value for waypoints.
const MANAGED: &str = "gateway.istio.io/managed";
const WAYPOINT: &str = "istio.io-mesh-controller";
/// The label of the pods of Istio's own gateways.
const ISTIO: &str = "istio";

/// The label of ztunnel's pods.
const APP: (&str, &str) = ("app", "ztunnel");

/// The proxies of the pods and WorkloadEntries of a snapshot, by namespace and name.
///
/// A pod has one unless it is on the host's network, has no address, or it or its namespace
/// disables injection (`sidecar.istio.io/inject: "false"`, `istio-injection: disabled`); a
/// WorkloadEntry has one if its address is an IP. A pod is a gateway if it was created for a
/// Gateway of the Gateway API, or its label `istio` ends with `gateway`; else its proxy is a
/// sidecar. In ambient mode pods with redirection have none, waypoints are recognized by their
/// controller label, and ztunnels by the label `app`.
#[must_use]
pub fn implied(context: &PushContext) -> Vec<Client> {
    let objects = &context.objects;
    let disables_injection = |pod: &Object<Pod>| {
        let has_value = |labels: &TextMap, key: &str, value: &str| {
            labels
                .get(key)
                .is_some_and(|value_found| **value_found == *value)
        };
        let namespace = NamespacedName::new("", pod.meta.key.namespace.as_str());
        let by_namespace = objects.namespaces.get(&namespace);
        has_value(&pod.meta.labels, INJECT, "false")
            || has_value(&pod.meta.annotations, INJECT, "false")
            || by_namespace.is_some_and(|namespace| {
                has_value(&namespace.meta.labels, NAMESPACE_INJECT, "disabled")
            })
    };

    let is_of_ztunnel =
        |pod: &Object<Pod>| context.mesh.settings.ambient && is_redirected(&pod.meta);
    let pods = objects
        .pods
        .iter()
        .filter(|pod| !pod.spec.host_network && !disables_injection(pod) && !is_of_ztunnel(pod));
    let of_pods = pods.filter_map(|pod| of_pod(pod, context));
    let of_entries = objects
        .workload_entries
        .iter()
        .filter_map(|entry| of_entry(entry, context));

    of_pods.chain(of_entries).map(Client::fresh).collect()
}

fn of_pod(pod: &Object<Pod>, context: &PushContext) -> Option<Proxy> {
    let ips: Vec<IpAddr> = pod.spec.pod_ips.iter().copied().collect();
    let label = |name: &str| {
        pod.meta
            .labels
            .get(name)
            .map(|value| &**value)
            .unwrap_or_default()
    };

    let kind = if context.mesh.settings.ambient && label(MANAGED) == WAYPOINT {
        "waypoint"
    } else if context.mesh.settings.ambient && label(APP.0) == APP.1 {
        "ztunnel"
    } else if !label(GATEWAY_NAME).is_empty() || label(ISTIO).ends_with("gateway") {
        "router"
    } else {
        "sidecar"
    };

    let node = pod.spec.node.as_deref().unwrap_or_default();
    let account = pod.spec.service_account.as_str();
    let labels = pod
        .meta
        .labels
        .iter()
        .map(|(key, value)| (key.to_string(), json!(&**value)))
        .collect();

    let message = NodeMessage {
        kind,
        namespace: pod.meta.key.namespace.as_str(),
        name: &pod.meta.key.name,
        ips: &ips,
        labels,
        node,
        service_account: account,
        locality: "",
        further: Map::new(),
    };
    message.proxy(&context.mesh.settings)
}

/// The node metadata of a hypothetical proxy of a pod in ambient mode; `None` if the pod is missing
/// or has no address.
#[must_use]
pub fn ambient(context: &PushContext, pod: &NamespacedName) -> Option<Proxy> {
    let pod = context
        .objects
        .pods
        .get(pod)
        .filter(|pod| context.mesh.settings.ambient && is_redirected(&pod.meta))?;
    of_pod(pod, context)
}

fn of_entry(entry: &Object<WorkloadEntry>, context: &PushContext) -> Option<Proxy> {
    let ip = entry.spec.address.parse().ok()?;
    let of_spec = entry
        .spec
        .labels
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)));

    let of_meta = entry
        .meta
        .labels
        .iter()
        .map(|(key, value)| (key.to_string(), json!(&**value)));
    let labels = of_meta.chain(of_spec).collect();

    let message = NodeMessage {
        kind: "sidecar",
        namespace: entry.meta.key.namespace.as_str(),
        name: &entry.meta.key.name,
        ips: &[ip],
        labels,
        node: "",
        service_account: &entry.spec.service_account,
        locality: &entry.spec.locality,
        further: Map::new(),
    };
    message.proxy(&context.mesh.settings)
}

//! Which service ports a proxy's workload serves (Istio's `GetProxyServiceTargets`).

use std::net::IpAddr;

use super::query::{ProxyQuery, Query};
use super::view::View;
use crate::api::kubernetes::{ContainerPort, Pod, PodPhase, Protocol, Service as Declared};
use crate::api::names::PortName;
use crate::api::object::NamespacedName;
use crate::registry::model::{ServiceKey, ServiceTarget};
use crate::registry::{selects, target_order, targets_by_ports};

/// The service ports that the proxy's workload serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetsOfProxy;

impl Query for TargetsOfProxy {
    type Value = Vec<ServiceTarget>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let proxy = view.proxy();
        let ips = proxy.ips();
        let mut targets = targets_by_kubernetes(view, ips.first().copied());
        for at in ips.iter().filter_map(|ip| view.targets_at(*ip)) {
            let namespaces = at.by_service_entry.iter().map(|target| target.service.key.namespace.clone());
            let own = proxy.namespace_among(namespaces);
            let here = |target: &&ServiceTarget| Some(&target.service.key.namespace) == own.as_ref();
            targets.extend(at.by_service_entry.iter().filter(here).cloned());
        }
        targets.sort_by(target_order);
        targets
    }
}

impl ProxyQuery for TargetsOfProxy {}

/// What the proxy serves by Kubernetes Services: as a WorkloadEntry where there is one at its main address, else as a pod.
fn targets_by_kubernetes(view: &View<'_>, ip: Option<IpAddr>) -> Vec<ServiceTarget> {
    let name = view.proxy().workload_name();
    let entries = ip.and_then(|ip| view.targets_at(ip)).map_or(&[][..], |at| &at.entries);
    let same_namespace = || entries.iter().find(|entry| entry.entry.namespace == name.namespace);
    let entry = entries.iter().find(|entry| entry.entry == name).or_else(same_namespace).or_else(|| entries.first());
    if let Some(entry) = entry {
        return entry.targets.clone();
    }
    let targets = view.targets_of_pod(&name);
    if !targets.is_empty() || is_pod(view, &name) { targets.to_vec() } else { targets_by_metadata(view, &name) }
}

/// Whether there is such a pod.
fn is_pod(view: &View<'_>, name: &NamespacedName) -> bool {
    view.object::<Pod>(name).is_some_and(|pod| pod.spec.phase != PodPhase::Failed)
}

/// What a proxy whose pod is not known (yet) serves by its own account: the Services that select its labels. All or
/// nothing: where one port cannot be told, none is.
fn targets_by_metadata(view: &View<'_>, name: &NamespacedName) -> Vec<ServiceTarget> {
    let proxy = view.proxy();
    let labels = proxy.labels();
    if labels.is_empty() {
        return Vec::new();
    }
    let ports = proxy.meta("POD_PORTS").map(|text| pod_ports(&text)).filter(|ports| !ports.is_empty());
    let suffix = &view.mesh().settings.domain_suffix;
    let mut targets = Vec::new();
    for object in view.list::<Declared>(&name.namespace) {
        let selector = &object.spec.selector;
        if selector.is_empty() || !selects(selector, &labels) {
            continue;
        }
        let host = format!("{}.{}.svc.{suffix}", object.meta.name, name.namespace);
        let Some(service) = view.service(&ServiceKey::new(name.namespace.as_str(), &host)) else { return Vec::new() };
        match targets_by_ports(service, &object.spec, ports.as_deref()) {
            Some(found) => targets.extend(found),
            None => return Vec::new(),
        }
    }
    targets
}

/// The ports that a proxy says its pod has: a JSON list of `name`, `containerPort` and `protocol`.
fn pod_ports(text: &str) -> Vec<ContainerPort> {
    let Ok(serde_json::Value::Array(ports)) = serde_json::from_str(text) else { return Vec::new() };
    let port = |port: &serde_json::Value| {
        let text = |key: &str| port.get(key).and_then(serde_json::Value::as_str);
        let number = port.get("containerPort").and_then(serde_json::Value::as_u64)?;
        let protocol = match text("protocol") {
            None | Some("" | "TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            Some(_) => return None,
        };
        let name = PortName::new(text("name").unwrap_or_default());
        Some(ContainerPort { name, port: u16::try_from(number).ok()?, protocol })
    };
    ports.iter().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_a_pod_are_read_from_metadata() {
        let ports = pod_ports(
            r#"[{"name":"http","containerPort":8080,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]"#,
        );
        let port = |name: &str, port, protocol| ContainerPort { name: PortName::new(name), port, protocol };
        assert_eq!(ports, [port("http", 8080, Protocol::Tcp), port("", 53, Protocol::Udp)]);
        assert_eq!(pod_ports("nonsense"), []);
    }
}

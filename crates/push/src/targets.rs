//! Which service ports a proxy's workload serves (Istio's `GetProxyServiceTargets`).

use std::net::IpAddr;

use super::cluster_ref::ClusterRef;
use super::notice::Unavailable;
use super::pod_of_proxy::is_test_machine;
use super::query::{ProxyQuery, Query};
use super::view::View;
use navarch_api::kubernetes::{ContainerPort, Protocol, Service as Declared};
use navarch_api::names::PortName;
use navarch_api::object::NamespacedName;
use navarch_registry::directory::ListedTargets;
use navarch_registry::model::{Health, ServiceKey, ServiceTarget};
use navarch_registry::{selects, target_order, targets_by_ports};

/// The service ports that the proxy's workload serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetsOfProxy;

impl Query for TargetsOfProxy {
    type Value = Vec<ServiceTarget>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let proxy = view.proxy();
        let ips = proxy.ips();
        let mut targets = targets_by_kubernetes(view, ips.first().copied());
        for at in ips.iter().filter_map(|ip| view.targets_at(*ip)) {
            let namespaces = at
                .by_service_entry
                .iter()
                .filter_map(|listed| listed.namespace().cloned());
            let own = proxy.namespace_among(namespaces);
            let here = at
                .by_service_entry
                .iter()
                .filter(|listed| listed.namespace() == own.as_ref());
            targets.extend(here.flat_map(ListedTargets::targets));
        }
        targets.sort_by(target_order);
        targets
    }
}

impl ProxyQuery for TargetsOfProxy {}

/// The targets by Kubernetes Services: of the WorkloadEntry at the primary address if there is one,
/// else of the pod.
fn targets_by_kubernetes(view: &View<'_>, ip: Option<IpAddr>) -> Vec<ServiceTarget> {
    let cluster_ref = view.proxy().proxy_cluster();
    if cluster_ref == ClusterRef::Unknown {
        view.fail(
            Unavailable::Targets("incorrect_cluster"),
            view.proxy().name(),
        );
        return Vec::new();
    }

    let name = view.proxy().workload_name();
    let entries = ip
        .and_then(|ip| view.targets_at_in(&cluster_ref, ip))
        .map_or(&[][..], |at| &at.entries);
    let same_namespace = || {
        entries
            .iter()
            .find(|entry| entry.entry.namespace == name.namespace)
    };

    let entry = entries
        .iter()
        .find(|entry| entry.entry == name)
        .or_else(same_namespace)
        .or_else(|| entries.first());
    if let Some(entry) = entry {
        return entry.targets.clone();
    }

    let is_machine = is_test_machine(&view.proxy().sent_labels());
    match view.proxy().pod().filter(|_| !is_machine) {
        Some(pod) => {
            let targets = view.targets_of_pod_in(&cluster_ref, &pod).to_vec();
            if let Some(ip) = ip {
                count_unready(view, ip, &targets);
            }
            counted(view, targets, "no_matching_services")
        }
        None => counted(
            view,
            targets_by_metadata(view, &cluster_ref, &name),
            "no_matching_metadata",
        ),
    }
}

/// Returns the targets, and counts the proxy if there are none.
fn counted(
    view: &View<'_>,
    targets: Vec<ServiceTarget>,
    why_none: &'static str,
) -> Vec<ServiceTarget> {
    if targets.is_empty() {
        view.fail(Unavailable::Targets(why_none), view.proxy().name());
    }
    targets
}

/// Counts the proxy if a service without selector lists its address as not ready.
fn count_unready(view: &View<'_>, ip: IpAddr, targets: &[ServiceTarget]) {
    let address = ip.to_string();
    let mut listing = targets
        .iter()
        .filter(|target| target.service.selector.is_empty());
    let is_unready = listing.any(|target| {
        let endpoints = view
            .endpoints(&target.service.key)
            .into_iter()
            .flat_map(|all| &all.endpoints);
        let mut own = endpoints.filter(|endpoint| {
            endpoint
                .addresses
                .first()
                .is_some_and(|first| **first == *address)
        });
        own.any(|endpoint| endpoint.health == Health::Unhealthy)
    });

    if is_unready {
        view.count("pilot_endpoint_not_ready", view.proxy().name());
    }
}

/// The targets of a proxy whose pod is not known (yet), from its metadata: the Services that select
/// its labels. All or nothing: if one port cannot be resolved, no target is returned.
fn targets_by_metadata(
    view: &View<'_>,
    cluster_ref: &ClusterRef,
    name: &NamespacedName,
) -> Vec<ServiceTarget> {
    let proxy = view.proxy();
    let labels = proxy.labels();
    if labels.is_empty() {
        return Vec::new();
    }

    let ports = proxy
        .meta("POD_PORTS")
        .map(|text| pod_ports(&text))
        .filter(|ports| !ports.is_empty());
    let suffix = &view.mesh().settings.domain_suffix;
    let mut targets = Vec::new();

    for object in view.list_in::<Declared>(cluster_ref, &name.namespace) {
        let selector = &object.spec.selector;
        if selector.is_empty() || !selects(selector, &*labels) {
            continue;
        }
        let host = format!("{}.{}.svc.{suffix}", object.meta.key.name, name.namespace);
        let Some(service) = view.service(&ServiceKey::new(name.namespace.as_str(), &host)) else {
            return Vec::new();
        };
        match targets_by_ports(service, &object.spec, ports.as_deref()) {
            Some(found) => targets.extend(found),
            None => return Vec::new(),
        }
    }

    targets
}

/// The pod ports in the proxy's metadata: a JSON list of `name`, `containerPort` and `protocol`.
fn pod_ports(text: &str) -> Vec<ContainerPort> {
    let Ok(serde_json::Value::Array(ports)) = serde_json::from_str(text) else {
        return Vec::new();
    };

    let port = |port: &serde_json::Value| {
        let text = |key: &str| port.get(key).and_then(serde_json::Value::as_str);
        let number = port
            .get("containerPort")
            .and_then(serde_json::Value::as_u64)?;
        let protocol = match text("protocol") {
            None | Some("" | "TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            Some(_) => return None,
        };

        let name = PortName::new(text("name").unwrap_or_default());
        Some(ContainerPort {
            name,
            port: u16::try_from(number).ok()?,
            protocol,
        })
    };

    ports.iter().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::engine::{Engine, Interest, PushCause, Sink};
    use crate::mesh_state::{Change, MeshState};
    use crate::notice::Notice;
    use crate::proxy::{Locality, Proxy};
    use crate::resource::{Collection, ResourceType};
    use crate::view::Translator;
    use navarch_api::decode::{Format, Outcome, decode_documents};
    use navarch_api::names::ResourceName;
    use navarch_api::settings::Settings;

    /// Reads the targets of proxies, and takes no pushes.
    struct Reader;

    impl Translator for Reader {
        fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
            vec![ResourceName::new("targets")]
        }

        fn resource(&self, _: ResourceType, _: &ResourceName, view: &View<'_>) -> Option<Bytes> {
            Some(Bytes::from(format!("{:?}", view.proxy().targets())))
        }
    }

    impl Sink for Reader {
        fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
    }

    #[test]
    fn a_proxy_that_a_service_lists_as_not_ready_is_counted() {
        let listed = |ready: bool| {
            let yaml = format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: db, namespace: shop}}\n\
                 spec: {{clusterIP: None, ports: [{{name: tcp, port: 1}}]}}\n---\n\
                 apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {{name: db-1, namespace: shop, labels: {{kubernetes.io/service-name: db}}}}\n\
                 addressType: IPv4\nports: [{{name: tcp, port: 1}}]\n\
                 endpoints: [{{addresses: [10.0.0.1], conditions: {{ready: {ready}, terminating: false}}}}]\n---\n\
                 apiVersion: v1\nkind: Pod\nmetadata: {{name: db-0, namespace: shop}}\nspec: {{}}\n\
                 status: {{phase: Running, podIP: 10.0.0.1}}\n"
            );

            let put = |outcome| match outcome {
                Outcome::Read { object, .. } => Change::Put(object),
                Outcome::Ignored | Outcome::Rejected(_) => panic!("it can be read"),
            };
            let mut state = MeshState::new(Settings {
                send_unhealthy_endpoints: true,
                ..Settings::default()
            });
            state.apply(
                decode_documents(&yaml, Format::Yaml)
                    .into_iter()
                    .map(|document| put(document.outcome)),
            );

            let mut engine = Engine::new(state.context(), Arc::new(Reader));
            let node = "sidecar~10.0.0.1~db-0.shop~shop.svc.cluster.local";
            let proxy = Proxy::parse(
                node,
                serde_json::json!({"NAMESPACE": "shop"}),
                Locality::default(),
            )
            .unwrap();

            let id = engine.connect(Arc::new(proxy), Arc::new(Reader));
            engine.subscribe(
                id,
                ResourceType::Listener,
                Interest {
                    wildcard: true,
                    ..Interest::default()
                },
            );

            let changed = engine.take_changed_notices().into_iter();
            let in_force = changed.filter(|change| change.is_in_force);
            in_force.map(|change| change.notice).collect::<Vec<_>>()
        };

        assert_eq!(listed(true), []);
        let notice = Notice::Subject {
            gauge: "pilot_endpoint_not_ready",
            subject: "db-0.shop".into(),
        };
        assert_eq!(listed(false), [notice]);
    }

    #[test]
    fn the_ports_of_a_pod_are_read_from_metadata() {
        let ports = pod_ports(
            r#"[{"name":"http","containerPort":8080,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]"#,
        );
        let port = |name: &str, port, protocol| ContainerPort {
            name: PortName::new(name),
            port,
            protocol,
        };
        assert_eq!(
            ports,
            [
                port("http", 8080, Protocol::Tcp),
                port("", 53, Protocol::Udp)
            ]
        );
        assert_eq!(pod_ports("nonsense"), []);
    }
}

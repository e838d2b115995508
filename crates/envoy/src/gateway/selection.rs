//! The Gateways that a proxy serves, and its listening ports for them.

use std::sync::Arc;

use jiff::Timestamp;

use crate::config_objects;
use navarch_api::istio::Gateway;
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;
use navarch_registry::model::Labels;
use navarch_registry::protocol::Protocol;

/// The annotation with the services whose workloads serve a Gateway that is generated from the
/// Gateway API.
const GATEWAY_SERVICE: &str = "internal.istio.io/gateway-service";
/// The namespace of a generated Gateway's source object, if it is another one.
pub(super) const PARENT_NAMESPACE: &str = "internal.istio.io/parent-namespace";
/// The annotation with the semantics of a Gateway that is generated from another kind.
const SEMANTICS: &str = "internal.istio.io/gateway-semantics";
/// The ServiceAccount of the workload that the control plane deploys for a Gateway of the Gateway
/// API.
pub(super) const SERVICE_ACCOUNT: &str = "internal.istio.io/service-account-name";
/// The label of services that disables translation of their ports for Gateways.
const NO_TRANSLATION: &str = "experimental.istio.io/disable-gateway-port-translation";

/// All Gateways, with the fields that select them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewayIndex;

/// The fields that select a Gateway.
#[derive(Clone, Debug, PartialEq)]
struct IndexedGateway {
    /// Creation time: the older one takes precedence in conflicts.
    created: Option<Timestamp>,
    name: NamespacedName,
    /// The proxies that serve it.
    audience: Audience,
    origin: Origin,
}

/// The origin of a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// An Istio Gateway of a user.
    Itself,
    /// A Gateway of the Gateway API with a workload that is deployed manually.
    GatewayApi,
    /// A Gateway of the Gateway API whose workload the control plane deploys.
    ManagedGatewayApi,
}

/// The proxies that serve a Gateway.
#[derive(Clone, Debug, PartialEq)]
enum Audience {
    /// Proxies whose workload has these labels; without labels all.
    Labels(Arc<Labels>),
    /// Proxies that serve one of these services of one namespace.
    Services(Namespace, Vec<Hostname>),
}

/// The Gateways that the proxy serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SelectedGateways;

/// A Gateway that the proxy serves.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SelectedGateway {
    pub(super) name: NamespacedName,
    /// The translation of its ports to those of the proxy.
    pub(super) ports: PortTranslation,
}

/// The translation of a Gateway's ports to the proxy's listening ports.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PortTranslation {
    /// A number is a service's port if one of the proxy's services has it, the first one deciding;
    /// else it is the proxy's own.
    FirstOrSame(Arc<Vec<TargetPort>>),
    /// A number is the port of these services only.
    Services(Vec<TargetPort>),
}

/// The ports of the services that the proxy serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TargetPorts;

/// One port of a service that the proxy serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetPort {
    /// The service's namespace.
    namespace: Namespace,
    /// The service's host.
    host: Hostname,
    /// The service's port.
    port: u16,
    /// The proxy's port.
    target: u16,
    is_udp: bool,
    /// Whether Gateways with a label selector may use the service's port.
    translates: bool,
}

impl Query for GatewayIndex {
    type Value = Vec<IndexedGateway>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut gateways: Vec<_> = config_objects::gateways(view)
            .values()
            .map(|gateway| indexed(gateway))
            .collect();
        gateways.sort_by(|a, b| {
            a.created
                .cmp(&b.created)
                .then_with(|| a.name.name.cmp(&b.name.name))
                .then_with(|| a.name.namespace.cmp(&b.name.namespace))
        });
        gateways
    }
}

/// The fields of a Gateway that select it.
fn indexed(gateway: &Object<Gateway>) -> IndexedGateway {
    let annotation = |name: &str| gateway.meta.annotations.get(name).map(|value| &**value);
    let audience = match annotation(GATEWAY_SERVICE) {
        Some(services) => {
            let parent = annotation(PARENT_NAMESPACE).filter(|namespace| !namespace.is_empty());
            let namespace =
                parent.map_or_else(|| gateway.meta.key.namespace.clone(), Namespace::new);
            Audience::Services(namespace, services.split(',').map(Hostname::new).collect())
        }
        None => {
            let labels = gateway.spec.selector.iter();
            let labels =
                labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())));
            Audience::Labels(Arc::new(labels.collect()))
        }
    };

    let origin = match (annotation(SEMANTICS), annotation(SERVICE_ACCOUNT)) {
        (Some("gateway"), Some(account)) if !account.is_empty() => Origin::ManagedGatewayApi,
        (Some("gateway"), Some(_) | None) => Origin::GatewayApi,
        (Some(_) | None, Some(_) | None) => Origin::Itself,
    };

    IndexedGateway {
        created: gateway.meta.created,
        name: gateway.meta.key(),
        audience,
        origin,
    }
}

impl Query for TargetPorts {
    type Value = Arc<Vec<TargetPort>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let targets = view.proxy().targets();
        let ports = targets.iter().map(|target| TargetPort {
            namespace: target.service.key.namespace.clone(),
            host: target.service.key.hostname.clone(),
            port: target.port.port,
            target: target.target_port,
            is_udp: target.port.protocol == Protocol::Udp,
            translates: !target.service.labels.contains_key(NO_TRANSLATION),
        });
        Arc::new(ports.collect())
    }
}

impl ProxyQuery for TargetPorts {}

impl Query for SelectedGateways {
    type Value = Vec<SelectedGateway>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let index = view.get(&GatewayIndex);
        let own = view.mesh().settings.scope_gateway_to_namespace.then(|| {
            let namespaces = index.iter().map(|gateway| gateway.name.namespace.clone());
            view.proxy().namespace_among(namespaces)
        });
        let in_scope = |gateway: &&IndexedGateway| match &own {
            Some(own) => own.as_ref() == Some(&gateway.name.namespace),
            None => true,
        };

        let found = index
            .iter()
            .filter(in_scope)
            .filter_map(|gateway| Some((gateway, selected(view, gateway)?)));
        let mut found: Vec<(&IndexedGateway, SelectedGateway)> = found.collect();
        if view.mesh().settings.strict_gateway_merging {
            part_from_managed(&mut found);
        }

        found.into_iter().map(|(_, selected)| selected).collect()
    }
}

/// Removes Istio's own Gateways of other namespaces than that of a Gateway whose workload the
/// control plane deploys: otherwise any user could add to a gateway by selecting its labels.
fn part_from_managed(gateways: &mut Vec<(&IndexedGateway, SelectedGateway)>) {
    let managed = gateways
        .iter()
        .filter(|(gateway, _)| gateway.origin == Origin::ManagedGatewayApi);
    let managed: Vec<Namespace> = managed
        .map(|(gateway, _)| gateway.name.namespace.clone())
        .collect();
    if !managed.is_empty() {
        gateways.retain(|(gateway, _)| {
            gateway.origin != Origin::Itself || managed.contains(&gateway.name.namespace)
        });
    }
}

/// The Gateway, if the proxy serves it.
fn selected(view: &View<'_>, gateway: &IndexedGateway) -> Option<SelectedGateway> {
    let targets = || view.derived(&TargetPorts);
    let ports = match &gateway.audience {
        Audience::Labels(labels) => {
            if !view.proxy().selected_by(labels) {
                return None;
            }
            PortTranslation::FirstOrSame((*targets()).clone())
        }
        Audience::Services(namespace, hosts) => {
            let serves = |target: &&TargetPort| {
                target.namespace == *namespace && hosts.contains(&target.host)
            };
            let ports: Vec<_> = targets().iter().filter(serves).cloned().collect();
            if ports.is_empty() {
                return None;
            }
            PortTranslation::Services(ports)
        }
    };

    Some(SelectedGateway {
        name: gateway.name.clone(),
        ports,
    })
}

#[cfg(test)]
impl TargetPort {
    /// A port for UDP only.
    pub(super) fn for_udp(port: u16) -> Self {
        let namespace = Namespace::new("edge");
        let host = Hostname::new("edge");
        Self {
            namespace,
            host,
            port,
            target: port,
            is_udp: true,
            translates: true,
        }
    }
}

impl PortTranslation {
    /// Whether a service of the proxy has this port for UDP.
    pub(super) fn has_udp_port(&self, number: u16) -> bool {
        let targets = match self {
            Self::FirstOrSame(targets) => targets.as_slice(),
            Self::Services(targets) => targets.as_slice(),
        };
        targets
            .iter()
            .any(|target| target.port == number && target.is_udp)
    }

    /// The proxy's listening ports for a port of the Gateway, sorted.
    pub(super) fn resolve(&self, number: u16) -> Vec<u16> {
        match self {
            Self::FirstOrSame(targets) => {
                let first = targets
                    .iter()
                    .find(|target| target.translates && target.port == number);
                vec![first.map_or(number, |first| first.target)]
            }
            Self::Services(targets) => {
                let found = targets.iter().filter(|target| target.port == number);
                let mut found: Vec<u16> = found.map(|target| target.target).collect();
                found.sort_unstable();
                found.dedup();
                found
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port of a service.
    fn target(host: &str, port: u16, target: u16, translates: bool) -> TargetPort {
        let namespace = Namespace::new("edge");
        let host = Hostname::new(host);
        TargetPort {
            namespace,
            host,
            port,
            target,
            is_udp: false,
            translates,
        }
    }

    #[test]
    fn the_first_service_with_the_port_decides_and_else_the_port_is_the_proxys() {
        let targets = vec![
            target("a", 80, 8000, false),
            target("b", 80, 8080, true),
            target("c", 80, 8090, true),
        ];
        let ports = PortTranslation::FirstOrSame(Arc::new(targets));
        assert_eq!(
            ports.resolve(80),
            [8080],
            "the one that opted out is skipped"
        );
        assert_eq!(ports.resolve(8000), [8000]);
    }

    #[test]
    fn udp_is_accepted_if_a_service_has_a_udp_port() {
        let udp = TargetPort {
            is_udp: true,
            ..target("a", 443, 8443, true)
        };
        assert!(
            PortTranslation::Services(vec![target("b", 443, 8443, true), udp.clone()])
                .has_udp_port(443)
        );
        assert!(!PortTranslation::FirstOrSame(Arc::new(vec![udp])).has_udp_port(8443));
    }

    #[test]
    fn named_services_translate_all_ports_and_nothing_else() {
        let targets = vec![
            target("a", 80, 8090, false),
            target("b", 80, 8080, true),
            target("c", 80, 8080, true),
        ];
        let ports = PortTranslation::Services(targets);
        assert_eq!(ports.resolve(80), [8080, 8090]);
        assert_eq!(ports.resolve(8080), Vec::<u16>::new());
    }
}

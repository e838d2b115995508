//! Egress listeners, and the services and VirtualServices of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::applied::Scope;
use super::config_namespace;
use super::egress_listener::EgressListener;
use super::hosts::{EgressHosts, HostSemantics};
use super::index::{HostIndex, ServiceIndex};
use super::selection::{self, ServiceRef};
use crate::virtual_service::{
    IndexedVirtualService, VirtualServiceIndex, VirtualServicesOfGateway, destinations,
};
use navarch_api::istio::{CaptureMode, IstioEgressListener, MESH_GATEWAY, Sidecar};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::NamespacedName;
use navarch_push::namespace_list::NamespaceList;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::Service;
use navarch_registry::protocol::Protocol;

/// The egress listeners of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EgressListeners {
    pub(super) scope: Scope,
}

/// The services of one egress listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerServices {
    pub(super) scope: Scope,
    /// The index of the listener.
    pub(super) listener: usize,
}

/// The services of one host in one egress listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerServicesOfHost {
    pub(super) scope: Scope,
    /// The index of the listener.
    pub(super) listener: usize,
    pub(super) host: Hostname,
}

/// One service of an egress listener, reduced to the imported ports and aliases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerService {
    pub(super) scope: Scope,
    /// The index of the listener.
    pub(super) listener: usize,
    pub(super) service: ServiceRef,
}

/// The VirtualServices that an egress listener imports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerVirtualServices {
    pub(super) scope: Scope,
    /// The index of the listener.
    pub(super) listener: usize,
}

/// The VirtualServices of a gateway that the proxy's namespace sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewayVirtualServices {
    /// `namespace/name`, or `mesh`.
    pub(super) gateway: Arc<str>,
}

/// As [`GatewayVirtualServices`], with their hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewayHosts {
    /// The gateway, as `namespace/name`, or `mesh`.
    pub(super) gateway: Arc<str>,
}

/// A VirtualService and its hosts.
pub(crate) type NamedHosts = (NamespacedName, Arc<[Hostname]>);

/// The destinations of the VirtualServices that an egress listener imports: for each host, the
/// ports of each VirtualService with this destination (0 means all), in the order of the
/// VirtualServices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ImportedDestinations {
    pub(super) scope: Scope,
    /// The index of the listener.
    pub(super) listener: usize,
}

/// The entry of [`ImportedDestinations`] for one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ImportedDestination {
    pub(super) scope: Scope,
    /// The index of the listener.
    pub(super) listener: usize,
    pub(super) host: Hostname,
}

/// The ports of a host in VirtualServices: one sorted list for each VirtualService.
pub(super) type DestinationPorts = Vec<Vec<u16>>;

impl EgressListener {
    /// The listener that imports everything.
    fn of_everything(for_gateway: bool) -> Self {
        Self {
            port: None,
            bind: String::new(),
            capture_mode: CaptureMode::Default,
            matched_port: None,
            declared: false,
            hosts: EgressHosts::everything(),
            for_gateway,
        }
    }

    /// The listener of a Sidecar in namespace `own`.
    fn declared(listener: &IstioEgressListener, own: &Namespace) -> Self {
        // An HTTP proxy's own port does not select ports of services.
        let matched = listener
            .port
            .as_ref()
            .filter(|port| Protocol::parse(&port.protocol) != Protocol::HttpProxy);
        let matched = matched
            .and_then(|port| u16::try_from(port.number).ok())
            .filter(|port| *port != 0);
        Self {
            port: listener.port.clone(),
            bind: listener.bind.clone(),
            capture_mode: listener.capture_mode,
            matched_port: matched,
            declared: true,
            hosts: EgressHosts::parse(&listener.hosts, own),
            for_gateway: false,
        }
    }
}

impl Query for EgressListeners {
    type Value = Vec<EgressListener>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let sidecar = match &self.scope {
            Scope::Default => None,
            Scope::Gateway => return vec![EgressListener::of_everything(true)],
            Scope::Sidecar(name) => view.object::<Sidecar>(name),
        };
        let Some(sidecar) = sidecar.filter(|sidecar| !sidecar.spec.egress.is_empty()) else {
            return vec![EgressListener::of_everything(false)];
        };

        let egress = &sidecar.spec.egress;
        let own = match config_namespace(view, &self.scope, &NamespaceList::default()) {
            Some(own) => own,
            None if egress
                .iter()
                .any(|listener| EgressHosts::name_own_namespace(&listener.hosts)) =>
            {
                view.proxy().namespace()
            }
            None => Namespace::default(),
        };

        egress
            .iter()
            .map(|listener| EgressListener::declared(listener, &own))
            .collect()
    }
}

impl Query for ListenerServices {
    type Value = Vec<ServiceRef>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let listeners = view.get(&EgressListeners {
            scope: self.scope.clone(),
        });
        let Some(listener) = listeners.get(self.listener) else {
            return Vec::new();
        };
        let index = view.get(&ServiceIndex);
        let namespace = config_namespace(view, &self.scope, &index.mattering);
        selection::select(view, listener, &index, namespace.as_ref())
    }
}

impl Query for ListenerServicesOfHost {
    type Value = Vec<ServiceRef>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let listeners = view.get(&EgressListeners {
            scope: self.scope.clone(),
        });
        let Some(listener) = listeners.get(self.listener) else {
            return Vec::new();
        };
        let index = view.get(&HostIndex {
            host: self.host.clone(),
        });
        let namespace = config_namespace(view, &self.scope, &index.mattering);
        selection::select(view, listener, &index, namespace.as_ref())
    }
}

impl Query for ListenerService {
    type Value = Option<Arc<Service>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let listeners = view.get(&EgressListeners {
            scope: self.scope.clone(),
        });
        let listener = listeners.get(self.listener)?;
        selection::resolve(view, &self.service, Some(&listener.hosts))
    }
}

impl Query for ListenerVirtualServices {
    type Value = Vec<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let listeners = view.get(&EgressListeners {
            scope: self.scope.clone(),
        });
        let Some(listener) = listeners.get(self.listener) else {
            return Vec::new();
        };

        if listener.for_gateway {
            return (*view.get(&GatewayVirtualServices {
                gateway: Arc::from(MESH_GATEWAY),
            }))
            .clone();
        }

        let index = view.get(&VirtualServiceIndex);
        let namespace = config_namespace(view, &self.scope, &index.mattering);
        let namespace = namespace.as_ref();
        let unified = view.mesh().settings.unified_sidecar_scope;
        let mut found = Vec::new();

        for tier in index.tiers(MESH_GATEWAY, namespace) {
            // Gateway API routes of the proxy's own namespace (consumer routes) precede those of
            // producers.
            let (own, others): (Vec<_>, Vec<_>) = tier
                .into_iter()
                .partition(|entry| unified && entry.is_own_gateway_route(namespace));
            let imported = own
                .into_iter()
                .chain(others)
                .filter(|entry| imports(&listener.hosts, entry));
            found.extend(imported.map(|entry| entry.name.clone()));
        }

        found
    }
}

/// Whether the hosts of a listener import a VirtualService: one of its hosts must be imported and
/// not excluded.
fn imports(hosts: &EgressHosts, entry: &IndexedVirtualService) -> bool {
    let semantics = if entry.is_gateway_route {
        HostSemantics::Gateway
    } else {
        HostSemantics::Istio
    };
    let namespace = &entry.name.namespace;
    entry.hosts.iter().any(|host| {
        !hosts.excludes(namespace, host.as_str())
            && hosts
                .sets_for(namespace)
                .any(|set| set.imports_virtual(host.as_str(), semantics))
    })
}

impl Query for GatewayVirtualServices {
    type Value = Vec<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let hosts = view.get(&GatewayHosts {
            gateway: self.gateway.clone(),
        });
        hosts.iter().map(|(name, _)| name.clone()).collect()
    }
}

impl Query for GatewayHosts {
    type Value = Vec<NamedHosts>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let index = view.get(&VirtualServicesOfGateway {
            gateway: self.gateway.clone(),
        });
        let namespace = view.proxy().namespace_in(&index.mattering);
        let [private, exported, public] = index.tiers(&self.gateway, namespace.as_ref());
        let (own, others): (Vec<_>, Vec<_>) = public
            .into_iter()
            .partition(|entry| entry.is_own_gateway_route(namespace.as_ref()));
        let all = private.into_iter().chain(exported).chain(own).chain(others);
        all.map(|entry| (entry.name.clone(), entry.hosts.clone()))
            .collect()
    }
}

impl Query for ImportedDestinations {
    type Value = BTreeMap<Hostname, DestinationPorts>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let virtual_services = view.get(&ListenerVirtualServices {
            scope: self.scope.clone(),
            listener: self.listener,
        });
        let mut imported: BTreeMap<Hostname, DestinationPorts> = BTreeMap::new();
        for name in virtual_services.iter() {
            let destinations = destinations(view, name);
            let sources = destinations.source_namespaces().collect();
            let namespace = config_namespace(view, &self.scope, &sources);
            for (host, ports) in destinations.from_namespace(namespace.as_ref()) {
                imported
                    .entry(host)
                    .or_default()
                    .push(ports.into_iter().collect());
            }
        }
        imported
    }
}

impl Query for ImportedDestination {
    type Value = DestinationPorts;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let all = view.get(&ImportedDestinations {
            scope: self.scope.clone(),
            listener: self.listener,
        });
        all.get(&self.host).cloned().unwrap_or_default()
    }
}

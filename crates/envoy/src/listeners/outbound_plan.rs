//! The outbound listeners of a sidecar, and the services that share each.
//!
//! HTTP services of a port share one listener on all addresses, whose routes distinguish them.
//! Others have a listener at their own address, or a filter chain for their range in one on all
//! addresses. A port without a declared protocol has both kinds of filter chains. In conflicts the
//! first service wins: Istio's order is oldest first.
//!
//! The plan contains only names and addresses; the build of one listener reads its own entry
//! ([`planned`]), so that a change of a service rebuilds only the listeners that contain it.

mod entry;
mod headless;
mod service_shape;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::address::{
    Interception, UsedPorts, interception, is_unix, listener_name, localhosts, wildcard, wildcards,
};
use crate::service_address::UNSPECIFIED;
use crate::sidecar_scope::{self, EgressListener, ServiceRef};
pub(super) use entry::{ChainPlan, HttpChainPlan, PlannedListener, TcpChainPlan};
use entry::{Entries, Request};
use navarch_api::istio::CaptureMode;
use navarch_push::proxy::IpFamilies;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;
pub(super) use service_shape::ListenPort;
use service_shape::{ServiceShape, ServiceShapeOf};

/// All outbound listeners, by name.
pub(super) type Plan = BTreeMap<String, Arc<PlannedListener>>;

/// The plan for the view's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OutboundPlan;

/// One listener of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Planned {
    name: String,
}

/// The plan for the view's proxy.
pub(super) fn plan(view: &View<'_>) -> Arc<Plan> {
    view.get(&OutboundPlan)
}

/// One listener of the plan. Depends only on that listener.
pub(super) fn planned(view: &View<'_>, name: &str) -> Option<Arc<PlannedListener>> {
    (*view.get(&Planned {
        name: name.to_owned(),
    }))
    .clone()
}

impl Query for Planned {
    type Value = Option<Arc<PlannedListener>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        plan(view).get(&self.name).cloned()
    }
}

impl Query for OutboundPlan {
    type Value = Plan;

    fn compute(&self, view: &View<'_>) -> Plan {
        let mut planner = Planner::new(view);
        for (place, egress) in sidecar_scope::egress_listeners(view).iter().enumerate() {
            planner.add_egress(place, egress);
        }
        planner.entries.into_plan()
    }
}

/// Iterates over egress listeners and their services.
struct Planner<'a> {
    view: &'a View<'a>,
    /// The address families of the proxy.
    families: IpFamilies,
    /// How traffic is redirected to the proxy.
    interception: Interception,
    /// Ports in use.
    taken: UsedPorts,
    /// The plan so far.
    entries: Entries,
}

/// The bind addresses of an egress listener's listeners.
struct Bind {
    /// The addresses; empty if they depend on the service.
    addresses: Vec<String>,
    /// Whether they bind to the port, rather than receive redirected connections.
    to_port: bool,
}

impl Bind {
    /// The primary address, empty if it depends on the service.
    fn primary(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }
}

impl<'a> Planner<'a> {
    /// An empty plan.
    fn new(view: &'a View<'a>) -> Self {
        let families = view.proxy().families();
        Self {
            view,
            families,
            interception: interception(view),
            taken: UsedPorts::new(view),
            entries: Entries::new(wildcard(families)),
        }
    }

    /// Plans the listeners of one egress listener.
    fn add_egress(&mut self, place: usize, egress: &EgressListener) {
        let bind = self.bind_of(egress);

        match &egress.port {
            Some(port) => {
                let port = ListenPort {
                    number: u16::try_from(port.number).unwrap_or_default(),
                    name: port.name.clone(),
                    protocol: Protocol::parse(&port.protocol),
                };

                if !self.taken.allow(
                    bind.primary(),
                    port.number,
                    bind.to_port,
                    port.protocol.is_http(),
                ) {
                    return;
                }

                for service in sidecar_scope::listener_services(self.view, place).iter() {
                    let shape = self.shape(place, service);
                    self.add(place, service, &shape, &port, &bind, None);
                }
            }
            None => {
                // Ports of an egress listener with a port are exclusive: no later service joins
                // them.
                self.entries.lock();
                for service in sidecar_scope::listener_services(self.view, place).iter() {
                    self.add_service(place, service, &bind);
                }
            }
        }
    }

    /// The bind addresses of an egress listener's listeners.
    fn bind_of(&self, egress: &EgressListener) -> Bind {
        let to_port = self.interception == Interception::None
            || egress.declared
                && (egress.capture_mode == CaptureMode::None || is_unix(&egress.bind));
        let addresses = if !egress.bind.is_empty() {
            vec![egress.bind.clone()]
        } else if to_port {
            localhosts(self.families)
                .iter()
                .map(|&address| address.to_owned())
                .collect()
        } else {
            Vec::new()
        };
        Bind { addresses, to_port }
    }

    /// The properties of a service that determine its listeners.
    fn shape(&self, egress: usize, service: &ServiceRef) -> Arc<ServiceShape> {
        self.view.get(&ServiceShapeOf {
            egress,
            service: service.clone(),
        })
    }

    /// Plans all ports of a service.
    fn add_service(&mut self, egress: usize, service: &ServiceRef, bind: &Bind) {
        let shape = self.shape(egress, service);
        for port in &shape.ports {
            if !self.taken.allow(
                bind.primary(),
                port.number,
                bind.to_port,
                port.protocol.is_http(),
            ) {
                continue;
            }

            let has_no_address = shape.is_passthrough && *shape.address == *UNSPECIFIED;
            if !bind.addresses.is_empty()
                || !has_no_address
                || !(port.protocol.is_tcp() || port.protocol.is_unsupported())
            {
                self.add(egress, service, &shape, port, bind, None);
                continue;
            }
            let pods = headless::pods(self.view, service, port.number);
            if !pods.any && !shape.is_kubernetes && !shape.has_selector {
                // It never has endpoints: traffic to the port goes to the original destination.
                self.add(egress, service, &shape, port, bind, None);
                continue;
            }

            if pods.addresses.is_empty() {
                continue;
            }

            let own = headless::own_address(self.view, service, port.number);

            for pod in pods
                .addresses
                .iter()
                .filter(|pod| pod.first() != own.as_ref().as_ref())
            {
                self.add(egress, service, &shape, port, bind, Some(pod));
            }
        }
    }

    /// Plans a listener for one port of a service, or of one of its pods.
    fn add(
        &mut self,
        egress: usize,
        service: &ServiceRef,
        shape: &ServiceShape,
        port: &ListenPort,
        bind: &Bind,
        pod: Option<&Vec<Arc<str>>>,
    ) {
        if shape.is_alias || port.protocol == Protocol::Udp {
            return;
        }

        let all_addresses = || {
            wildcards(self.families)
                .iter()
                .map(|&address| address.to_owned())
                .collect::<Vec<_>>()
        };

        let one_listener_for_pods =
            self.view.mesh().settings.headless_filter_chain_listener && port.protocol.is_tcp();
        let (binds, cidrs) = match pod {
            Some(pod) if one_listener_for_pods => (all_addresses(), texts(pod)),
            Some(pod) => (texts(pod), Vec::new()),
            None if !bind.addresses.is_empty() => (bind.addresses.clone(), Vec::new()),
            None if port.protocol.is_http() => (all_addresses(), Vec::new()),
            None => {
                let addresses = self.service_addresses(shape);
                if addresses
                    .first()
                    .is_some_and(|address| address.contains('/'))
                {
                    (all_addresses(), addresses)
                } else {
                    (addresses, Vec::new())
                }
            }
        };

        let Some(primary) = binds.first() else { return };
        let name = listener_name(primary, port.number);
        let by_pod = pod.is_some() && one_listener_for_pods;
        self.entries.add(
            name,
            Request {
                egress,
                service,
                shape,
                port,
                binds,
                cidrs,
                by_pod,
                to_port: bind.to_port,
            },
        );
    }

    /// The addresses of a service. A ServiceEntry without any uses the wildcard addresses of the
    /// proxy's families.
    fn service_addresses(&self, shape: &ServiceShape) -> Vec<String> {
        let extra = shape.extra.iter().map(ToString::to_string);
        let (main, further) = match self.families {
            _ if shape.is_kubernetes || *shape.address != *UNSPECIFIED => (&*shape.address, None),
            IpFamilies::V4 => (UNSPECIFIED, None),
            IpFamilies::V6 => ("::", None),
            IpFamilies::DualV4First | IpFamilies::DualV6First => {
                (UNSPECIFIED, Some("::".to_owned()))
            }
        };
        std::iter::once(main.to_owned())
            .chain(extra)
            .chain(further)
            .collect()
    }
}

fn texts(addresses: &[Arc<str>]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

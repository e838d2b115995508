//! The properties of a service that determine its listeners.

use std::sync::Arc;

use crate::service_address;
use crate::sidecar_scope::{self, ServiceRef};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Registry, Resolution};
use navarch_registry::protocol::Protocol;

/// A listening port: that of a service, or of a Sidecar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::listeners) struct ListenPort {
    pub(in crate::listeners) number: u16,
    pub(in crate::listeners) name: String,
    /// The declared protocol.
    pub(in crate::listeners) protocol: Protocol,
}

/// The properties of a service of an egress listener. They change less often than the service
/// itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServiceShapeOf {
    /// The index of the egress listener.
    pub(super) egress: usize,
    pub(super) service: ServiceRef,
}

/// The properties of a service that determine its listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one service"
)]
pub(super) struct ServiceShape {
    /// Whether it is an alias of another service, which has the listeners.
    pub(super) is_alias: bool,
    pub(super) is_kubernetes: bool,
    /// Whether connections go to the original destination.
    pub(super) is_passthrough: bool,
    /// Whether it selects workloads by labels.
    pub(super) has_selector: bool,
    /// Whether its host is resolved by the host in requests.
    pub(super) resolves_by_name: bool,
    pub(super) host: Arc<str>,
    /// Its primary address for the proxy.
    pub(super) address: Arc<str>,
    /// Its other addresses.
    pub(super) extra: Vec<Arc<str>>,
    /// Its imported ports.
    pub(super) ports: Vec<ListenPort>,
}

impl Query for ServiceShapeOf {
    type Value = ServiceShape;

    fn compute(&self, view: &View<'_>) -> ServiceShape {
        let Some(service) = sidecar_scope::listener_service(view, self.egress, &self.service)
        else {
            return ServiceShape {
                is_alias: true,
                ..ServiceShape::default()
            };
        };

        let port = |port: &navarch_registry::model::ServicePort| ListenPort {
            number: port.port,
            name: port.name.to_string(),
            protocol: port.protocol,
        };

        ServiceShape {
            is_alias: service.resolution == Resolution::Alias,
            is_kubernetes: service.registry == Registry::Kubernetes,
            is_passthrough: service.resolution == Resolution::Passthrough,
            has_selector: !service.selector.is_empty(),
            resolves_by_name: crate::filters::dynamic_forward_proxy::resolves_by_name(&service),
            host: Arc::from(service.key.hostname.as_str()),
            address: service_address::main(view, &service),
            extra: service_address::extra(view, &service),
            ports: service.ports.iter().map(port).collect(),
        }
    }
}

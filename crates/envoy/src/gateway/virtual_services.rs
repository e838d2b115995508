//! The VirtualServices bound to a gateway, with the fields for selection.

use std::sync::Arc;

use crate::sidecar_scope;
use crate::virtual_service;
use navarch_push::query::Query;
use navarch_push::view::View;

pub(crate) use crate::sidecar_scope::NamedHosts;

/// The VirtualServices of a gateway that have TCP or TLS routes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct L4VirtualServices {
    /// The gateway, as `namespace/name`.
    gateway: Arc<str>,
}

/// The VirtualServices of a gateway that the proxy sees, with their hosts, in order of precedence.
pub(crate) fn hosts_of(view: &View<'_>, gateway: &Arc<str>) -> Arc<Vec<NamedHosts>> {
    sidecar_scope::gateway_hosts(view, gateway)
}

/// Those with TCP or TLS routes: changes of others affect no listener.
pub(crate) fn l4_virtual_services(view: &View<'_>, gateway: &Arc<str>) -> Arc<Vec<NamedHosts>> {
    view.get(&L4VirtualServices {
        gateway: gateway.clone(),
    })
}

impl Query for L4VirtualServices {
    type Value = Vec<NamedHosts>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let has_routes = |(name, _): &&NamedHosts| virtual_service::has_l4_routes(view, name);
        hosts_of(view, &self.gateway)
            .iter()
            .filter(has_routes)
            .cloned()
            .collect()
    }
}

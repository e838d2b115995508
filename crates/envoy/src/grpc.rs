//! Resources for gRPC applications that are xDS clients, without a proxy: `GENERATOR: grpc` in
//! their node metadata.
//!
//! ```text
//! clients: listener `host:port` ─▶ routes `outbound|port||host` ─▶ clusters ─▶ endpoints, the same as Envoy's
//! servers: listener `xds.istio.io/grpc/lds/inbound/<address>:<port>`, which holds all that they need
//! ```
//!
//! Agrees with Istio's `pilot/pkg/networking/grpcgen`, in the part of xDS that gRPC reads
//! (grpc/proposal A27, A28, A29, A32, A36, A41, A42). These resources are not for Envoy, and
//! EnvoyFilters do not apply to them.

mod clusters;
mod host_port;
mod inbound;
mod outbound;
mod requested;
mod tls;

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::build::encode;
use crate::routes;
use navarch_api::names::ResourceName;
use navarch_push::resource::ResourceType;
use navarch_push::view::View;

/// The node metadata key of the generator that a client requests.
const GENERATOR: &str = "GENERATOR";

/// The value of gRPC applications.
const GRPC: &str = "grpc";

/// Prefix of the name of a server's listener, before the address
/// (`server_listener_resource_name_template`).
const INBOUND: &str = "xds.istio.io/grpc/lds/inbound/";

/// Whether the client is a gRPC application, for types with other resources than Envoy's.
pub(super) fn is_client(resource_type: ResourceType, view: &View<'_>) -> bool {
    matches!(
        resource_type,
        ResourceType::Cluster | ResourceType::Listener | ResourceType::Route
    ) && view.proxy().has_text(GENERATOR, GRPC)
}

/// The names of all listeners, for wildcard subscriptions. Clusters are requested by name only.
pub(super) fn names(resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
    if resource_type == ResourceType::Listener {
        outbound::names(view)
    } else {
        Vec::new()
    }
}

/// The listeners that a client's resource names refer to: a host without a port means all of its
/// ports.
pub(super) fn referenced_listeners(
    requested: &BTreeSet<ResourceName>,
    view: &View<'_>,
) -> Vec<ResourceName> {
    let inbound = requested
        .iter()
        .filter(|name| name.as_str().starts_with(INBOUND))
        .cloned();
    inbound
        .chain(outbound::referenced_names(requested, view))
        .collect()
}

pub(super) fn resource(
    resource_type: ResourceType,
    name: &ResourceName,
    view: &View<'_>,
) -> Option<Bytes> {
    match resource_type {
        ResourceType::Cluster => clusters::build(view, name.as_str()).as_ref().map(encode),
        ResourceType::Route => routes::for_grpc(view, name.as_str()),
        ResourceType::Listener => match name.as_str().strip_prefix(INBOUND) {
            Some(address) => inbound::build(view, name.as_str(), address)
                .as_ref()
                .map(encode),
            None => outbound::build(view, name.as_str()).as_ref().map(encode),
        },
        ResourceType::Endpoint
        | ResourceType::VirtualHost
        | ResourceType::Secret
        | ResourceType::ExtensionConfig
        | ResourceType::NameTable
        | ResourceType::ProxyConfig
        | ResourceType::Bootstrap
        | ResourceType::Locality
        | ResourceType::ObjectStatus
        | ResourceType::Address
        | ResourceType::Workload
        | ResourceType::Authorization
        | ResourceType::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;

//! Route configurations after EnvoyFilter patches.
//!
//! Without patches of routes, the bytes are not decoded.

use bytes::Bytes;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use prost::Message;

use super::{gateway, sidecar};
use crate::build::encode;
use crate::gateway::declared_ports;
use crate::patches::{PatchClass, Patches, RoutesIdentity, patch_routes, patches};
use navarch_api::istio::PatchContext;
use navarch_push::view::View;

/// The outbound route configuration of this name.
pub(super) fn sidecar(view: &View<'_>, name: &str) -> Bytes {
    let bytes = sidecar::configuration(view, name);
    match patches(view, PatchClass::Routes).filter(|_| sidecar::is_name(name)) {
        Some(patches) => patched(view, &patches, bytes, PatchContext::SidecarOutbound),
        None => bytes,
    }
}

/// The route configuration of this name for a gateway.
pub(super) fn gateway(view: &View<'_>, name: &str) -> Bytes {
    let bytes = gateway::configuration(view, name);
    match patches(view, PatchClass::Routes) {
        Some(patches) => patched(view, &patches, bytes, PatchContext::Gateway),
        None => bytes,
    }
}

/// Applies the patches to the routes of an inbound listener.
pub(super) fn inbound(view: &View<'_>, routes: &mut RouteConfiguration) {
    if let Some(patches) = patches(view, PatchClass::Routes) {
        let identity = RoutesIdentity {
            context: PatchContext::SidecarInbound,
            declared_ports: None,
        };
        patch_routes(view, &patches, &identity, routes);
    }
}

/// Decodes a route configuration, patches it and encodes it again.
fn patched(view: &View<'_>, patches: &Patches, bytes: Bytes, context: PatchContext) -> Bytes {
    let Ok(mut routes) = RouteConfiguration::decode(bytes.clone()) else {
        return bytes;
    };

    let port = routes
        .name
        .split('.')
        .nth(1)
        .and_then(|port| port.parse().ok());
    let declared = port
        .filter(|_| context == PatchContext::Gateway)
        .map(|port| declared_ports(view, port));
    let declared_ports = declared.as_deref().filter(|ports| !ports.is_empty());

    patch_routes(
        view,
        patches,
        &RoutesIdentity {
            context,
            declared_ports,
        },
        &mut routes,
    );

    encode(&routes)
}

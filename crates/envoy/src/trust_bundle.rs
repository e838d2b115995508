//! PCDS: the roots of the mesh, for agents that update their proxies' trust with it.

use bytes::Bytes;
use navarch_proto::istio::mesh::v1alpha1::ProxyConfig;

use super::build::encode;
use navarch_api::names::ResourceName;
use navarch_push::view::View;

/// There is one, with an empty name, once there are roots: an empty resource would remove the roots
/// of a proxy.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    if view.trust_bundle().is_empty() {
        Vec::new()
    } else {
        vec![ResourceName::default()]
    }
}

/// The roots; the other fields of the proxy's config are in its bootstrap.
pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let roots = view.trust_bundle();
    if !name.is_empty() || roots.is_empty() {
        return None;
    }
    let ca_certificates_pem = roots.iter().map(ToString::to_string).collect();
    Some(encode(&ProxyConfig {
        ca_certificates_pem,
    }))
}

//! The endpoints of the proxy's own workload in its own region, which Envoy's zone-aware routing
//! needs.

use std::sync::Arc;

use navarch_proto::envoy::config::endpoint::v3::LocalityLbEndpoints;

use super::build::groups;
use super::group::Group;
use super::target::{EndpointPath, Target};
use super::{candidates, is_resolved_by_proxy};
use crate::sidecar_scope;
use navarch_push::proxy::Locality;
use navarch_push::view::View;
use navarch_registry::model::Endpoint;

/// Labels that distinguish revisions of one workload; traffic is balanced only among equal ones.
const REVISION_LABELS: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// The endpoints of the first service port of the proxy's workload, as far as they have the same
/// revision.
pub(super) fn endpoints(view: &View<'_>) -> Vec<LocalityLbEndpoints> {
    let targets = view.proxy().targets();
    let Some(first) = targets.first() else {
        return Vec::new();
    };

    let Some(service) = sidecar_scope::host_service(view, &first.service.key.hostname) else {
        return Vec::new();
    };

    let port = first.port.port;
    if service.port(port).is_none() || is_resolved_by_proxy(&service) {
        return Vec::new();
    }

    let proxy = view.proxy();
    let workload = proxy.meta("WORKLOAD_NAME").unwrap_or_else(|| Arc::from(""));
    let labels = proxy.labels();
    let region = proxy.locality().region;
    let is_alike = |endpoint: &&Arc<Endpoint>| {
        let other = &endpoint.workload;
        other.name == workload
            && REVISION_LABELS
                .iter()
                .all(|label| labels.get(*label) == other.own_labels.get(*label))
            && Locality::parse(&other.location.locality).region == region
    };

    let target = Target {
        service: &service,
        port,
        rule: None,
        subset: None,
        policy: None,
        sni_routed: false,
        by_dns: false,
        way: EndpointPath::Client,
    };

    let found = candidates(view, &service, port);
    groups(view, &target, found.iter().filter(is_alike))
        .into_iter()
        .map(Group::into_wire)
        .collect()
}

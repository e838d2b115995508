//! Header values with a format that Envoy rejects: it would reject all routes because of one of
//! them.

use navarch_proto::envoy::config::core::v3::HeaderValueOption;
use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::{Route, route};

use crate::substitution;
use navarch_api::object::NamespacedName;
use navarch_push::view::View;

/// Removes the header changes of a route that Envoy would reject, with a remark.
pub(super) fn leave_out_rejected(view: &View<'_>, object: &NamespacedName, route: &mut Route) {
    let name = route.name.clone();
    let mut faults = Vec::new();
    retain(&mut route.request_headers_to_add, &mut faults);
    retain(&mut route.response_headers_to_add, &mut faults);
    if let Some(route::Action::Route(action)) = &mut route.action
        && let Some(ClusterSpecifier::WeightedClusters(all)) = &mut action.cluster_specifier
    {
        for cluster in &mut all.clusters {
            retain(&mut cluster.request_headers_to_add, &mut faults);
            retain(&mut cluster.response_headers_to_add, &mut faults);
        }
    }
    for fault in faults {
        view.remark(format!("VirtualService {object}: route {name:?}: {fault}"));
    }
}

/// Keeps the changes that Envoy accepts.
fn retain(changes: &mut Vec<HeaderValueOption>, faults: &mut Vec<String>) {
    changes.retain(|change| {
        let Some(header) = &change.header else {
            return true;
        };
        let checked = substitution::check(&header.value);
        if let Err(fault) = &checked {
            faults.push(format!("header {:?} is ignored: {fault}", header.key));
        }
        checked.is_ok()
    });
}

//! Routes to clusters that do not exist, such as a subset that no DestinationRule has, in a learned
//! scope: requests for them fail at once, as in others.
//!
//! Envoy requests each cluster on demand once, and has all requests for it wait for five seconds,
//! also after it was told that there is none (since 1.38). The configuration of a route without a
//! source switches the filter off.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::{Route, route};
use navarch_proto::envoy::extensions::filters::http::on_demand::v3::PerRouteConfig;

use super::context::{RouteClient, RouteContext};
use crate::clusters;
use crate::filters::on_demand::NAME;
use navarch_api::names::ResourceName;

/// Has requests for clusters of a route that do not exist wait for none.
pub(super) fn except_missing(context: &RouteContext<'_>, out: &mut Route) {
    let view = context.view;
    if context.client != RouteClient::Envoy || !view.proxy().has_learned_scope() {
        return;
    }
    let Some(route::Action::Route(action)) = &mut out.action else {
        return;
    };

    let off = || (NAME.to_owned(), pack(&PerRouteConfig::default()));
    let is_missing = |name: &str| !clusters::has_outbound(view, &ResourceName::new(name));
    match &mut action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => {
            let off = is_missing(name).then(off);
            out.typed_per_filter_config.extend(off);
        }
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            for cluster in &mut weighted.clusters {
                let off = is_missing(&cluster.name).then(off);
                cluster.typed_per_filter_config.extend(off);
            }
        }
        Some(_) | None => {}
    }
}

//! The filter that requests a cluster when the first request is routed to it.

use navarch_proto::envoy::extensions::filters::http::on_demand::v3::{OnDemand, OnDemandCds};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use prost_types::Duration;

use super::http::filter;
use crate::build::ads_source;
use navarch_push::view::View;

/// The name of the filter, which is that of its extension.
pub(crate) const NAME: &str = "envoy.filters.http.on_demand";
/// How long a request waits for its cluster: Envoy's default. A control plane that is there answers
/// in milliseconds; without one the request fails after this time.
const TIMEOUT: Duration = Duration {
    seconds: 5,
    nanos: 0,
};

/// The filter for outbound requests of a proxy whose scope was learned when its stream started.
///
/// A request goes on once its cluster is there, and filters after this one see the cluster
/// (envoyproxy/envoy #45084). If there is none it goes on as well, after the time or as
/// soon as the control plane has answered, and the router responds with 503.
///
/// It stays if the proxy is served whole later: while Envoy replaces a listener, connections keep
/// their filters until they are drained, so that a filter which comes back could come too late.
pub(crate) fn filter_of(view: &View<'_>) -> Option<HttpFilter> {
    let config = || OnDemand {
        odcds: Some(OnDemandCds {
            source: Some(ads_source()),
            timeout: Some(TIMEOUT),
            ..OnDemandCds::default()
        }),
    };
    view.proxy()
        .has_learned_scope()
        .then(|| filter(NAME, &config()))
}

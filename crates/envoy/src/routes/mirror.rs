//! Mirroring of requests.

use navarch_proto::envoy::config::core::v3::RuntimeFractionalPercent;
use navarch_proto::envoy::config::route::v3::route_action::RequestMirrorPolicy;
use navarch_proto::envoy::r#type::v3::FractionalPercent;

use super::context::RouteContext;
use super::fraction;
use super::settings::RouteSettings;
use navarch_api::istio::{Destination, HttpMirrorPolicy, HttpRoute, Percent};

/// The mirror destinations of a route: `mirror` first, then `mirrors`. A fraction of zero mirrors
/// nothing.
pub(super) fn policies(context: &RouteContext<'_>, route: &HttpRoute) -> Vec<RequestMirrorPolicy> {
    let superseded = route
        .mirror
        .as_ref()
        .and_then(|mirror| policy(context, mirror, share(route)?));
    let listed = route
        .mirrors
        .iter()
        .filter_map(|mirror: &HttpMirrorPolicy| {
            policy(
                context,
                mirror.destination.as_ref()?,
                mirror_fraction(mirror.percentage.as_ref())?,
            )
        });
    superseded.into_iter().chain(listed).collect()
}

/// The mirror policy of one destination.
fn policy(
    context: &RouteContext<'_>,
    destination: &Destination,
    share: FractionalPercent,
) -> Option<RequestMirrorPolicy> {
    Some(RequestMirrorPolicy {
        cluster: context.cluster(destination),
        runtime_fraction: Some(RuntimeFractionalPercent {
            default_value: Some(share),
            ..RuntimeFractionalPercent::default()
        }),
        trace_sampled: Some(false),
        disable_shadow_host_suffix_append: context.view.get(&RouteSettings).keep_mirrored_host,
        ..RequestMirrorPolicy::default()
    })
}

/// The fraction of `mirror`.
fn share(route: &HttpRoute) -> Option<FractionalPercent> {
    match (&route.mirror_percentage, route.mirror_percent) {
        (None, Some(percent)) => (percent > 0).then(|| fraction::of_hundred(percent)),
        (percentage, _) => mirror_fraction(percentage.as_ref()),
    }
}

/// The fraction from the API; by default all requests, `None` if zero.
fn mirror_fraction(percentage: Option<&Percent>) -> Option<FractionalPercent> {
    match percentage {
        None => Some(fraction::of_hundred(100)),
        Some(percentage) => (percentage.value > 0.0).then(|| fraction::of_percent(percentage)),
    }
}

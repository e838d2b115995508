//! Destinations of a route's requests, and changes of these requests.

use std::sync::Arc;

use navarch_proto::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier, HashPolicy, HostRewriteSpecifier,
    MaxStreamDuration,
};
use navarch_proto::envoy::config::route::v3::weighted_cluster::{self, ClusterWeight};
use navarch_proto::envoy::config::route::v3::{Route, RouteAction, WeightedCluster, route};

use super::context::{RouteClient, RouteContext};
use super::retry::{self, HostChoice};
use super::settings::{RouteHeaders, RouteSettings};
use super::{hash, headers, mirror, rewrite};
use crate::virtual_service::RouteSemantics;
use navarch_api::istio::{HttpRoute, HttpRouteDestination};
use navarch_api::names::Hostname;
use navarch_registry::model::Service;

/// Sets the action of a forwarding route. `authority` is the authority that the route's header
/// changes set. Returns the known services that the route reaches.
pub(super) fn forward(
    out: &mut Route,
    context: &RouteContext<'_>,
    declared: &HttpRoute,
    semantics: RouteSemantics,
    authority: Option<String>,
) -> Vec<Option<Arc<Service>>> {
    let mut action = RouteAction {
        request_mirror_policies: mirror::policies(context, declared),
        ..untimed()
    };
    if let Some(timeout) = declared.timeout {
        action.timeout = Some(timeout.into());
    }

    limit_streams(&mut action, context.client);

    if semantics == RouteSemantics::Gateway {
        action.cluster_not_found_response_code =
            ClusterNotFoundResponseCode::InternalServerError.into();
    }

    let mut authority = authority;

    if let Some(declared) = &declared.rewrite {
        action.append_x_forwarded_host = context.view.derived(&RouteHeaders).forwarded_host;
        rewrite::path(
            &mut action,
            declared,
            &out.r#match.clone().unwrap_or_default(),
            semantics,
        );
        if !declared.authority.is_empty() {
            authority = Some(declared.authority.clone());
        }
    }

    action.host_rewrite_specifier = authority.as_deref().map(rewrite::authority);
    let choice = match declared.route.as_slice() {
        [only] => single(out, &mut action, context, only),
        several => weighted(&mut action, context, several),
    };
    let settings = context.view.get(&RouteSettings);
    action.retry_policy = retry::outbound(
        declared.retries.as_deref().or(settings.retry.as_ref()),
        choice,
    );

    out.action = Some(route::Action::Route(action));
    weighted_destinations(declared)
        .map(|target| (context.service)(&host_of(target)))
        .collect()
}

/// An action without a timeout, also for gRPC streams.
pub(super) fn untimed() -> RouteAction {
    let mut action = RouteAction {
        timeout: Some(prost_types::Duration::default()),
        ..RouteAction::default()
    };
    limit_streams(&mut action, RouteClient::Envoy);
    action
}

/// Applies the route's timeout to gRPC. In Envoy it is the maximum of gRPC's own timeout: without
/// it, timeouts of gRPC clients would be ignored. gRPC itself only reads the maximum duration of a
/// stream.
fn limit_streams(action: &mut RouteAction, client: RouteClient) {
    #[allow(
        deprecated,
        reason = "its successor, max_stream_duration, cuts off long streams"
    )]
    match client {
        RouteClient::Envoy | RouteClient::Waypoint => action.max_grpc_timeout = action.timeout,
        RouteClient::Grpc => {
            action.max_grpc_timeout = None;
            let longest = MaxStreamDuration {
                max_stream_duration: action.timeout,
                ..MaxStreamDuration::default()
            };
            action.max_stream_duration = Some(longest);
        }
    }
}

/// The destinations that get requests: not those with weight 0 beside others.
fn weighted_destinations(declared: &HttpRoute) -> impl Iterator<Item = &HttpRouteDestination> {
    let is_only = declared.route.len() == 1;
    declared
        .route
        .iter()
        .filter(move |target| is_only || target.weight != 0)
}

/// The host of a destination; empty if it has none.
fn host_of(target: &HttpRouteDestination) -> Hostname {
    target
        .destination
        .as_ref()
        .map_or_else(Hostname::default, |destination| {
            Hostname::new(&destination.host)
        })
}

fn cluster_of(context: &RouteContext<'_>, target: &HttpRouteDestination) -> String {
    context.cluster(&target.destination.clone().unwrap_or_default())
}

/// The hash policy of a destination's rule, and whether the rule uses consistent hashing at all.
fn hash_of(
    context: &RouteContext<'_>,
    target: &HttpRouteDestination,
) -> (Option<HashPolicy>, HostChoice) {
    let hash = target
        .destination
        .as_ref()
        .and_then(|destination| hash::of_destination(context.view, destination));
    match hash {
        None => (None, HostChoice::Free),
        Some(hash) => (hash::policy(&hash), HostChoice::ByHash),
    }
}

/// Sends all requests to one destination. Its header changes are applied after those of the route.
fn single(
    out: &mut Route,
    action: &mut RouteAction,
    context: &RouteContext<'_>,
    target: &HttpRouteDestination,
) -> HostChoice {
    action.cluster_specifier = Some(ClusterSpecifier::Cluster(cluster_of(context, target)));

    if let Some(declared) = &target.headers {
        let changes = headers::changes(declared);
        out.request_headers_to_add.extend(changes.request_add);
        out.request_headers_to_remove.extend(changes.request_remove);
        out.response_headers_to_add.extend(changes.response_add);
        out.response_headers_to_remove
            .extend(changes.response_remove);
        // The route's own authority takes precedence, as in Envoy with several destinations.
        if action.host_rewrite_specifier.is_none() {
            action.host_rewrite_specifier = changes
                .authority
                .map(HostRewriteSpecifier::HostRewriteLiteral);
        }
    }

    let (policy, choice) = hash_of(context, target);
    action.hash_policy.extend(policy);
    choice
}

/// Divides requests among destinations by weight.
fn weighted(
    action: &mut RouteAction,
    context: &RouteContext<'_>,
    targets: &[HttpRouteDestination],
) -> HostChoice {
    let mut clusters = Vec::with_capacity(targets.len());

    for target in targets.iter().filter(|target| target.weight != 0) {
        let mut weight = ClusterWeight {
            name: cluster_of(context, target),
            weight: Some(u32::try_from(target.weight).unwrap_or_default()),
            ..ClusterWeight::default()
        };

        if let Some(declared) = &target.headers {
            let changes = headers::changes(declared);
            weight.request_headers_to_add = changes.request_add;
            weight.request_headers_to_remove = changes.request_remove;
            weight.response_headers_to_add = changes.response_add;
            weight.response_headers_to_remove = changes.response_remove;
            weight.host_rewrite_specifier = changes
                .authority
                .map(weighted_cluster::cluster_weight::HostRewriteSpecifier::HostRewriteLiteral);
        }

        clusters.push(weight);
        action.hash_policy.extend(hash_of(context, target).0);
    }

    let clusters = WeightedCluster {
        clusters,
        ..WeightedCluster::default()
    };
    action.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(clusters));

    HostChoice::Free
}

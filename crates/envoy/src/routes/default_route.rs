//! Routes without a VirtualService: to a service, to the application, and for unknown hosts.

use navarch_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, MaxStreamDuration};
use navarch_proto::envoy::config::route::v3::{
    Decorator, DirectResponseAction, Route, RouteAction, VirtualHost, route,
};

use super::action::untimed;
use super::context::destination_cluster;
use super::retry::{self, HostChoice};
use super::settings::{HeaderFlags, MeshRoutes};
use super::{hash, matchers};
use crate::sidecar_scope::OutboundPolicy;
use navarch_api::istio::ConsistentHashLb;
use navarch_registry::protocol::Protocol;

/// The name of routes without a VirtualService.
const DEFAULT: &str = "default";

/// The route to a service's port.
pub(super) fn outbound(
    cluster: String,
    operation: String,
    hash: Option<&ConsistentHashLb>,
    settings: &MeshRoutes,
) -> Route {
    let action = RouteAction {
        retry_policy: retry::outbound(settings.retry.as_ref(), HostChoice::Free),
        hash_policy: hash.and_then(hash::policy).into_iter().collect(),
        ..untimed()
    };
    default_route(cluster, operation, action)
}

/// The route to the application.
pub(super) fn inbound(
    cluster: String,
    operation: String,
    protocol: Protocol,
    settings: &MeshRoutes,
) -> Route {
    let forever = || Some(prost_types::Duration::default());

    // A gRPC stream must not be retried without the client's knowledge.
    let retry_policy = if protocol.is_grpc() {
        None
    } else {
        retry::inbound(settings.inbound_retry.as_ref())
    };

    let action = RouteAction {
        timeout: forever(),
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: forever(),
            grpc_timeout_header_max: forever(),
            ..MaxStreamDuration::default()
        }),
        retry_policy,
        ..RouteAction::default()
    };

    default_route(cluster, operation, action)
}

/// A route that matches everything.
fn default_route(cluster: String, operation: String, action: RouteAction) -> Route {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        ..action
    };
    Route {
        name: DEFAULT.to_owned(),
        r#match: Some(matchers::everything()),
        decorator: Some(Decorator {
            operation,
            propagate: None,
        }),
        action: Some(route::Action::Route(action)),
        ..Route::default()
    }
}

/// The virtual host for hosts without another one.
pub(super) fn catch_all(policy: &OutboundPolicy, headers: HeaderFlags) -> VirtualHost {
    let to_cluster = |cluster: String| {
        route::Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
            append_x_forwarded_host: headers.forwarded_host,
            ..untimed()
        })
    };

    let (name, action) = match policy {
        OutboundPolicy::AllowAnyDynamicDns => (
            "allow_any_dynamic_dns",
            to_cluster("AllowAnyDynamicDNSCluster".to_owned()),
        ),
        OutboundPolicy::AllowAny { egress_proxy: None } => {
            ("allow_any", to_cluster("PassthroughCluster".to_owned()))
        }
        OutboundPolicy::AllowAny {
            egress_proxy: Some(proxy),
        } => ("allow_any", to_cluster(destination_cluster(proxy, None, 0))),
        OutboundPolicy::RegistryOnly => {
            let bad_gateway = DirectResponseAction {
                status: 502,
                ..DirectResponseAction::default()
            };
            ("block_all", route::Action::DirectResponse(bad_gateway))
        }
    };

    let route = Route {
        name: name.to_owned(),
        r#match: Some(matchers::everything()),
        action: Some(action),
        ..Route::default()
    };

    VirtualHost {
        name: name.to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![route],
        include_request_attempt_count: headers.attempt_count,
        ..VirtualHost::default()
    }
}

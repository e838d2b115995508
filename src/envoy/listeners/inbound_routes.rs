//! Routes in place, for connection managers without a route resource.

use navarch_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, MaxStreamDuration};
use navarch_proto::envoy::config::route::v3::{
    Decorator, RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route, route_match,
};

use crate::push::view::View;
use crate::registry::protocol::Protocol;

/// Everything to the application: `operation` names the requests in traces.
pub(super) fn to_application(cluster: &str, operation: String, port: u16, protocol: Protocol) -> RouteConfiguration {
    let forever = || Some(prost_types::Duration::default());
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        timeout: forever(),
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: forever(),
            grpc_timeout_header_max: forever(),
            ..MaxStreamDuration::default()
        }),
        retry_policy: (!protocol.is_grpc()).then(|| RetryPolicy {
            retry_on: "reset-before-request".to_owned(),
            num_retries: Some(2),
            ..RetryPolicy::default()
        }),
        ..RouteAction::default()
    };
    let route = Route {
        name: "default".to_owned(),
        decorator: Some(Decorator { operation, propagate: None }),
        ..everything(action)
    };
    let host = VirtualHost {
        name: format!("inbound|http|{port}"),
        domains: vec!["*".to_owned()],
        routes: vec![route],
        ..VirtualHost::default()
    };
    RouteConfiguration {
        name: cluster.to_owned(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        ..RouteConfiguration::default()
    }
}

/// Everything to where DNS says.
pub(super) fn allow_any_dynamic_dns(_view: &View<'_>) -> VirtualHost {
    let name = "allow_any_dynamic_dns".to_owned();
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster("AllowAnyDynamicDNSCluster".to_owned())),
        timeout: Some(prost_types::Duration::default()),
        #[expect(deprecated, reason = "what Istio sets; its successor is not the same to Envoy")]
        max_grpc_timeout: Some(prost_types::Duration::default()),
        ..RouteAction::default()
    };
    VirtualHost {
        domains: vec!["*".to_owned()],
        routes: vec![Route { name: name.clone(), ..everything(action) }],
        include_request_attempt_count: true,
        name,
        ..VirtualHost::default()
    }
}

/// A route for every path.
fn everything(action: RouteAction) -> Route {
    let matched = RouteMatch {
        path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())),
        ..RouteMatch::default()
    };
    Route { r#match: Some(matched), action: Some(route::Action::Route(action)), ..Route::default() }
}

//! The routes of a chain: those of the service's VirtualServices, else one to the service.

use std::sync::Arc;

use navarch_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};

use super::Subject;
use crate::routes::{InboundRoute, RouteClient, RouteContext, http_routes, inbound};
use crate::virtual_service::{self, MergedSpec};
use crate::{destination_rule, sidecar_scope};
use navarch_api::istio::{ConsistentHashLb, MESH_GATEWAY};
use navarch_api::names::Hostname;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Resolution, Service, ServiceKey};
use navarch_registry::protocol::Protocol;

/// The VirtualServices that apply to a service at a waypoint: of the service's namespace or of the
/// waypoint's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VirtualServicesOf(ServiceKey);

impl Query for VirtualServicesOf {
    type Value = Vec<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let ServiceKey {
            namespace,
            hostname,
        } = &self.0;
        let all = sidecar_scope::gateway_virtual_services(view, MESH_GATEWAY);
        let is_for = |name: &&NamespacedName| {
            virtual_service::hosts(view, name)
                .iter()
                .any(|host| host.matches(hostname))
        };

        let is_near = |name: &&NamespacedName| {
            name.namespace == *namespace
                || view
                    .proxy()
                    .namespace_among([name.namespace.clone()])
                    .is_some()
        };

        all.iter().filter(is_for).filter(is_near).cloned().collect()
    }
}

/// The VirtualServices that apply to a service at a waypoint.
pub(super) fn virtual_services(
    view: &View<'_>,
    service: &Service,
) -> Vec<(NamespacedName, MergedSpec)> {
    let names = view.get(&VirtualServicesOf(service.key.clone()));
    names
        .iter()
        .filter_map(|name| Some((name.clone(), virtual_service::merged(view, name)?)))
        .collect()
}

/// The route configuration of the chain that forwards to `cluster` unless a VirtualService matches.
pub(super) fn configuration(
    view: &View<'_>,
    subject: Subject<'_>,
    cluster: &str,
) -> RouteConfiguration {
    let (service, port) = match subject {
        Subject::Port(service, port) => (service, port.port),
        Subject::Workloads => {
            let to = InboundRoute {
                cluster,
                host: &Hostname::default(),
                port: 0,
                protocol: Protocol::Tcp,
                waypoint: Some(None),
                domain: None,
            };
            return inbound(view, &to);
        }
    };

    let host = &service.key.hostname;

    // Only the wildcard itself, so that a request cannot contain a host that it must not reach.
    let domain = (service.resolution == Resolution::DynamicDns).then(|| host.to_string());
    let routes = declared(view, service, port);
    if routes.is_empty() {
        let to = InboundRoute {
            cluster,
            host,
            port,
            protocol: Protocol::Http,
            waypoint: Some(hash(view, service)),
            domain,
        };
        return inbound(view, &to);
    }

    let host = VirtualHost {
        name: format!("inbound|http|{port}"),
        domains: vec![domain.unwrap_or_else(|| "*".to_owned())],
        routes,
        ..VirtualHost::default()
    };

    RouteConfiguration {
        name: cluster.to_owned(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        ..RouteConfiguration::default()
    }
}

/// The routes of all VirtualServices for a port of a service, in their order.
fn declared(view: &View<'_>, service: &Service, port: u16) -> Vec<Route> {
    let context = RouteContext {
        view,
        listen_port: port,
        gateways: &[MESH_GATEWAY.to_owned()].into(),
        client: RouteClient::Waypoint,
        is_tls: false,
        advertises_http3: false,
        service: &|host: &Hostname| -> Option<Arc<Service>> {
            sidecar_scope::host_service(view, host)
        },
    };
    virtual_services(view, service)
        .iter()
        .flat_map(|(name, _)| http_routes(&context, name))
        .collect()
}

/// The consistent hash settings of a service, if any.
fn hash(view: &View<'_>, service: &Service) -> Option<ConsistentHashLb> {
    let key = sidecar_scope::service_for_host(view, &service.key.hostname)?;
    let rule = destination_rule::for_inbound(view, &key)?;
    rule.policy
        .as_deref()?
        .load_balancer
        .as_deref()?
        .consistent_hash
        .clone()
}

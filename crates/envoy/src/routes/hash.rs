//! Hash policies of requests, if a DestinationRule uses consistent hashing.

use navarch_proto::envoy::config::route::v3::route_action::HashPolicy;
use navarch_proto::envoy::config::route::v3::route_action::hash_policy::{
    ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier, QueryParameter,
};

use crate::{destination_rule, sidecar_scope};
use navarch_api::istio::{
    ConsistentHashLb, Destination, LoadBalancerSettings, PortTrafficPolicy, TrafficPolicy,
};
use navarch_api::names::Hostname;
use navarch_push::view::View;

/// The hash key of a route's destination: of its subset's port, its subset, its port or its host,
/// the most specific first.
pub(super) fn of_destination(
    view: &View<'_>,
    destination: &Destination,
) -> Option<ConsistentHashLb> {
    let service = sidecar_scope::service_for_host(view, &Hostname::new(&destination.host))?;
    let rule = destination_rule::for_key(view, &service)?;
    let policy = rule.policy.as_deref();
    let subset = rule
        .subsets
        .iter()
        .find(|subset| subset.name == destination.subset);
    let subset = subset.and_then(|subset| subset.traffic_policy.as_deref());
    let port = destination.port.as_ref().map(|port| port.number);
    port_hash(subset, port)
        .or_else(|| of_policy(subset))
        .or_else(|| port_hash(policy, port))
        .or_else(|| of_policy(policy))
        .cloned()
}

/// The hash key of a service's port without a VirtualService.
pub(super) fn of_service(view: &View<'_>, host: &Hostname, port: u16) -> Option<ConsistentHashLb> {
    let service = sidecar_scope::service_for_host(view, host)?;
    let rule = destination_rule::for_key(view, &service)?;
    let policy = rule.policy.as_deref();
    port_hash(policy, Some(u32::from(port)))
        .or_else(|| of_policy(policy))
        .cloned()
}

/// The hash key of a policy as a whole.
fn of_policy(policy: Option<&TrafficPolicy>) -> Option<&ConsistentHashLb> {
    of_balancer(policy?.load_balancer.as_deref())
}

/// The hash key of one port of a policy.
fn port_hash(policy: Option<&TrafficPolicy>, port: Option<u32>) -> Option<&ConsistentHashLb> {
    let port = port?;
    let is_for_port =
        |setting: &&PortTrafficPolicy| setting.port.as_ref().is_some_and(|own| own.number == port);
    let setting = policy?.port_level_settings.iter().find(is_for_port)?;
    of_balancer(setting.load_balancer.as_deref())
}

/// The hash key of load balancer settings.
fn of_balancer(settings: Option<&LoadBalancerSettings>) -> Option<&ConsistentHashLb> {
    settings?.consistent_hash.as_ref()
}

/// The hash policy of a route; `None` without a key, or for one without a name, for which Envoy
/// would reject all routes.
pub(super) fn policy(hash: &ConsistentHashLb) -> Option<HashPolicy> {
    let cookie = hash.http_cookie.as_ref().map(|cookie| cookie.name.as_str());
    let names = [
        hash.http_header_name.as_deref(),
        cookie,
        hash.http_query_parameter_name.as_deref(),
    ];
    if names.contains(&Some("")) {
        return None;
    }

    let specifier = if let Some(name) = &hash.http_header_name {
        PolicySpecifier::Header(Header {
            header_name: name.clone(),
            ..Header::default()
        })
    } else if let Some(cookie) = &hash.http_cookie {
        PolicySpecifier::Cookie(Cookie {
            name: cookie.name.clone(),
            ttl: cookie.ttl.map(Into::into),
            path: cookie.path.clone(),
            attributes: cookie
                .attributes
                .iter()
                .map(|attribute| CookieAttribute {
                    name: attribute.name.clone(),
                    value: attribute.value.clone(),
                })
                .collect(),
        })
    } else if let Some(source_ip) = hash.use_source_ip {
        PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip })
    } else {
        let name = hash.http_query_parameter_name.as_ref()?;
        PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() })
    };

    Some(HashPolicy {
        terminal: false,
        policy_specifier: Some(specifier),
    })
}

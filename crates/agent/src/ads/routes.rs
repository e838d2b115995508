//! Which form the route configurations of a response have ([`RoutesHeld`]).
//!
//! Envoy's requests do not tell: once it has subscribed to virtual hosts it does so on each stream,
//! also when a control plane without them has sent it whole tables since.

use navarch_base::routes_held::RoutesHeld;
use prost::DecodeError;

use super::peek;

/// Field numbers of a route configuration.
const ROUTES_NAME: u32 = 1;
const VIRTUAL_HOSTS: u32 = 2;
const VHDS: u32 = 9;

/// Field numbers of a virtual host.
const HOST_NAME: u32 = 1;
const DOMAINS: u32 = 2;

/// What Envoy has of routes with a delta response. `None` if the response does not tell: virtual hosts
/// for any domain are inside in both forms, and so are those of the table `<host>:<port>` of a single
/// host.
///
/// # Errors
/// If a part is not a protobuf message.
pub(super) fn held_with(response: &[u8]) -> Result<Option<RoutesHeld>, DecodeError> {
    let mut held = None;
    for resource in peek::all(response, peek::RESOURCES) {
        let any = peek::bytes(resource?, peek::RESOURCE)?.unwrap_or_default();
        let routes = peek::bytes(any, peek::ANY_VALUE)?.unwrap_or_default();

        if peek::bytes(routes, VHDS)?.is_some() {
            return Ok(Some(RoutesHeld::VirtualHosts));
        }
        if held.is_none() && has_hosts(routes)? {
            held = Some(RoutesHeld::Whole);
        }
    }
    Ok(held)
}

/// Whether a route configuration has a virtual host inside that would be a resource of its own in the
/// other form. Agrees with `navarch_envoy`'s `routes/vhds.rs`.
fn has_hosts(routes: &[u8]) -> Result<bool, DecodeError> {
    let table = peek::string(routes, ROUTES_NAME)?;
    if table.contains(':') && !table.starts_with("unix://") {
        return Ok(false);
    }

    for host in peek::all(routes, VIRTUAL_HOSTS) {
        let host = host?;
        let name = peek::string(host, HOST_NAME)?;
        let is_named = !name.is_empty() && !name.contains('/');
        if is_named && !matches_any_domain(host)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn matches_any_domain(host: &[u8]) -> Result<bool, DecodeError> {
    for domain in peek::all(host, DOMAINS) {
        if domain? == b"*" {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
pub(super) mod tests {
    use navarch_proto::envoy::config::route::v3::{RouteConfiguration, Vhds, VirtualHost};
    use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
    use prost::Message as _;
    use prost_types::Any;

    use super::*;
    use crate::ads::own;

    /// A delta response with route configurations.
    pub(in crate::ads) fn response(routes: Vec<RouteConfiguration>) -> DeltaDiscoveryResponse {
        let resource = |routes: RouteConfiguration| Resource {
            name: routes.name.clone(),
            version: "1".to_owned(),
            resource: Some(Any {
                type_url: own::ROUTE.to_owned(),
                value: routes.encode_to_vec(),
            }),
            ..Resource::default()
        };
        DeltaDiscoveryResponse {
            type_url: own::ROUTE.to_owned(),
            resources: routes.into_iter().map(resource).collect(),
            ..DeltaDiscoveryResponse::default()
        }
    }

    /// A route configuration with virtual hosts for these domains inside.
    pub(in crate::ads) fn routes(domains: &[&str], has_others: bool) -> RouteConfiguration {
        let host = |domain: &&str| VirtualHost {
            name: format!("host:{domain}"),
            domains: vec![(*domain).to_owned()],
            ..VirtualHost::default()
        };
        RouteConfiguration {
            name: "80".to_owned(),
            virtual_hosts: domains.iter().map(host).collect(),
            vhds: has_others.then(Vhds::default),
            ..RouteConfiguration::default()
        }
    }

    #[test]
    fn a_response_tells_the_form_unless_its_tables_are_alike_in_both() {
        let whole = routes(&["a.example", "*"], false);
        let apart = routes(&["*"], true);
        let neutral = routes(&["*"], false);
        let patched = RouteConfiguration {
            virtual_hosts: vec![VirtualHost {
                name: "a/b".to_owned(),
                domains: vec!["a.example".to_owned()],
                ..VirtualHost::default()
            }],
            ..neutral.clone()
        };

        let of_one_host = RouteConfiguration {
            name: "a.example:80".to_owned(),
            ..whole.clone()
        };
        let of_a_socket = RouteConfiguration {
            name: "unix:///run/socket".to_owned(),
            ..whole.clone()
        };

        for (tables, expected) in [
            (vec![], None),
            (vec![of_one_host], None),
            (vec![of_a_socket], Some(RoutesHeld::Whole)),
            (vec![neutral.clone(), patched], None),
            (
                vec![neutral.clone(), whole.clone()],
                Some(RoutesHeld::Whole),
            ),
            (vec![neutral, apart.clone()], Some(RoutesHeld::VirtualHosts)),
            (vec![whole, apart], Some(RoutesHeld::VirtualHosts)),
        ] {
            let bytes = response(tables).encode_to_vec();
            assert_eq!(held_with(&bytes).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_route_configuration_is_an_error() {
        let mut broken = response(vec![RouteConfiguration::default()]);
        let resource = broken.resources.first_mut().unwrap();
        resource.resource.as_mut().unwrap().value = vec![0x12, 0x7f];
        held_with(&broken.encode_to_vec()).unwrap_err();
    }
}

//! Why Envoy would reject a resource, as far as that is known without running Envoy.

use std::collections::BTreeSet;

use bytes::Bytes;
use navarch_envoy::constraints::check_bytes;
use navarch_proto::envoy::config::listener::v3::Listener;
use navarch_push::resource::{Resource, ResourceType};
use navarch_tables::hash::KeyedMap;
use navarch_walk::Routes;
use prost::Message;

/// Why Envoy would reject a resource, if it would: a field violates its `.proto` rules, a regular
/// expression is none, two virtual hosts have the same domain, two filter chains the same match. Only fields of `part` are checked: the body, or for a route configuration the part
/// that differs.
pub(super) fn predicted_rejection(resource: &Resource, part: &Bytes) -> Option<String> {
    if let Err(error) = check_bytes(resource.resource_type.resource_url(), part) {
        return Some(error.to_string());
    }

    match resource.resource_type {
        ResourceType::Route => claimed_twice(&resource.body, part),
        ResourceType::Listener => matched_twice(&Listener::decode(resource.body.clone()).ok()?),
        ResourceType::Cluster
        | ResourceType::Endpoint
        | ResourceType::VirtualHost
        | ResourceType::Secret
        | ResourceType::ExtensionConfig
        | ResourceType::NameTable
        | ResourceType::ProxyConfig
        | ResourceType::Bootstrap
        | ResourceType::Locality
        | ResourceType::ObjectStatus
        | ResourceType::Address
        | ResourceType::Workload
        | ResourceType::Authorization
        | ResourceType::Object(_) => None,
    }
}

/// A domain of a route configuration's part that occurs twice in the whole. Domains are compared
/// case-insensitively.
fn claimed_twice(table: &Bytes, part: &Bytes) -> Option<String> {
    let part = Routes::new(part.clone());
    let mut wanted: KeyedMap<String, usize> = part
        .domains()
        .flatten()
        .map(|domain| (domain.to_ascii_lowercase(), 0))
        .collect();
    if wanted.is_empty() {
        return None;
    }

    let table = Routes::new(table.clone());
    let twice = table.domains().flatten().find(|domain| {
        let count = match domain.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => wanted.get_mut(&domain.to_ascii_lowercase()),
            false => wanted.get_mut(*domain),
        };
        count.is_some_and(|count| {
            *count += 1;
            *count > 1
        })
    })?;

    Some(format!("two virtual hosts have the domain {twice:?}"))
}

/// Filter chains with equal matches conflict.
fn matched_twice(listener: &Listener) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut chains = listener.filter_chains.iter();
    let matched = |chain: &&_| {
        let chain: &navarch_proto::envoy::config::listener::v3::FilterChain = chain;
        let matched = chain.filter_chain_match.clone().unwrap_or_default();
        // The names of chains are not compared.
        !seen.insert(matched.encode_to_vec())
    };
    let twice = chains.find(matched)?;
    Some(format!(
        "two filter chains match the same connections, one of them {:?}",
        twice.name
    ))
}

#[cfg(test)]
mod tests {
    use navarch_api::names::ResourceName;
    use navarch_proto::envoy::config::cluster::v3::Cluster;
    use navarch_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

    use super::*;

    fn whole(resource: &Resource) -> Option<String> {
        predicted_rejection(resource, &resource.body)
    }

    #[test]
    fn plans_predict_rejections_by_envoy() {
        let host = |domain: &str| VirtualHost {
            name: domain.to_owned(),
            domains: vec![domain.to_owned()],
            ..VirtualHost::default()
        };

        let routes = |domains: [&str; 2]| {
            let routes = RouteConfiguration {
                virtual_hosts: domains.map(host).into(),
                ..RouteConfiguration::default()
            };
            whole(&Resource::new(
                ResourceType::Route,
                ResourceName::new("80"),
                routes.encode_to_vec().into(),
            ))
        };

        assert_eq!(routes(["a", "b"]), None);
        assert!(
            routes(["a", "A"])
                .unwrap()
                .contains("two virtual hosts have the domain")
        );

        let nameless = Resource::new(
            ResourceType::Cluster,
            ResourceName::new("c"),
            Cluster::default().encode_to_vec().into(),
        );
        assert!(whole(&nameless).unwrap().contains("name"));
    }
}

//! Filters that resolve the host of a request or the SNI of a TLS handshake.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;
use navarch_proto::envoy::config::listener::v3::Filter;
use navarch_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use navarch_proto::envoy::extensions::filters::http::dynamic_forward_proxy::v3::{
    FilterConfig, filter_config,
};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use navarch_proto::envoy::extensions::filters::network::sni_dynamic_forward_proxy::v3::{
    FilterConfig as SniFilterConfig, filter_config as sni_filter_config,
};
use navarch_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;

use super::http::filter;
use super::network::network_filter;
use crate::build::socket_address;
use navarch_api::names::Hostname;
use navarch_push::proxy::IpFamilies;
use navarch_push::view::View;
use navarch_registry::model::{Resolution, Service};

/// The DNS cache for hosts that no service declares; cluster and filters share it by this name.
const ALLOW_ANY_CACHE: &str = "allow_any_dfp_dns_cache";

/// Default address of the agent's DNS server.
const AGENT_DNS: (&str, u32) = ("127.0.0.1", 15053);

/// Whether requests for a service are resolved by the host that they contain.
#[must_use]
pub fn resolves_by_name(service: &Service) -> bool {
    service.key.hostname.is_wildcard() && service.resolution == Resolution::DynamicDns
}

/// Resolves the host of requests for a wildcard service.
#[must_use]
pub fn http_filter(view: &View<'_>, service: &Service) -> HttpFilter {
    resolving(service_cache(view, service))
}

/// Resolves the SNI of TLS handshakes for a wildcard service.
#[must_use]
pub fn sni_filter(view: &View<'_>, service: &Service, port: u16) -> Filter {
    let config = SniFilterConfig {
        dns_cache_config: Some(service_cache(view, service)),
        port_specifier: Some(sni_filter_config::PortSpecifier::PortValue(u32::from(port))),
        ..SniFilterConfig::default()
    };
    network_filter(
        "envoy.extensions.filters.network.sni_dynamic_forward_proxy",
        &config,
    )
}

/// Resolves the host of requests for hosts that no service declares (`ALLOW_ANY_DYNAMIC_DNS`).
#[must_use]
pub fn allow_any_filter(view: &View<'_>) -> HttpFilter {
    resolving(allow_any_cache(view))
}

/// The DNS cache for hosts that no service declares. With DNS capture the agent resolves.
#[must_use]
pub fn allow_any_cache(view: &View<'_>) -> DnsCacheConfig {
    let proxy = view.proxy();
    let mut config = DnsCacheConfig {
        name: ALLOW_ANY_CACHE.to_owned(),
        dns_lookup_family: lookup_family(view).into(),
        max_hosts: Some(view.mesh().settings.dynamic_dns_max_hosts),
        ..DnsCacheConfig::default()
    };

    if proxy.meta_bool("DNS_CAPTURE") {
        let (host, port) = agent_dns(&proxy.meta("DNS_PROXY_ADDR").unwrap_or_default());
        let resolver = CaresDnsResolverConfig {
            resolvers: vec![socket_address(&host, port)],
            ..CaresDnsResolverConfig::default()
        };
        config.typed_dns_resolver_config = Some(TypedExtensionConfig {
            name: "envoy.network.dns_resolver.cares".to_owned(),
            typed_config: Some(pack(&resolver)),
        });
    }

    config
}

/// Parses `host:port`; returns the default if invalid.
fn agent_dns(address: &str) -> (String, u32) {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) => (
            host.trim_matches(['[', ']']),
            port.parse().unwrap_or(AGENT_DNS.1),
        ),
        None => AGENT_DNS,
    };
    (
        if host == "localhost" {
            AGENT_DNS.0.to_owned()
        } else {
            host.to_owned()
        },
        port,
    )
}

/// The DNS cache of a wildcard service, with the same name as in its cluster.
fn service_cache(view: &View<'_>, service: &Service) -> DnsCacheConfig {
    DnsCacheConfig {
        name: dns_cache_name(&service.key.hostname),
        dns_lookup_family: lookup_family(view).into(),
        ..DnsCacheConfig::default()
    }
}

/// A filter with this cache.
fn resolving(cache: DnsCacheConfig) -> HttpFilter {
    let config = FilterConfig {
        implementation_specifier: Some(filter_config::ImplementationSpecifier::DnsCacheConfig(
            cache,
        )),
        ..FilterConfig::default()
    };
    filter("envoy.filters.http.dynamic_forward_proxy", &config)
}

/// The name of the DNS cache of a wildcard service.
#[must_use]
pub fn dns_cache_name(host: &Hostname) -> String {
    format!("{host}_dfp_dns_cache")
}

/// The address families that the proxy resolves names to: those that it has itself.
#[must_use]
pub fn lookup_family(view: &View<'_>) -> DnsLookupFamily {
    let settings = &view.mesh().settings;
    match view.proxy().families() {
        IpFamilies::V4 => DnsLookupFamily::V4Only,
        // The node may have an IPv4 interface that the pod's addresses do not contain.
        IpFamilies::V6 if settings.ipv4_for_ipv6_only => DnsLookupFamily::All,
        IpFamilies::V6 => DnsLookupFamily::V6Only,
        IpFamilies::DualV4First | IpFamilies::DualV6First if settings.dual_stack => {
            DnsLookupFamily::All
        }
        IpFamilies::DualV4First | IpFamilies::DualV6First => DnsLookupFamily::V4Only,
    }
}

#[cfg(test)]
mod tests {
    use super::agent_dns;

    #[test]
    fn incomplete_addresses_of_the_agent_are_parsed() {
        for (text, expected) in [
            ("localhost:15053", ("127.0.0.1", 15053)),
            ("10.0.0.1:53", ("10.0.0.1", 53)),
            ("[::1]:53", ("::1", 53)),
            ("10.0.0.1:dns", ("10.0.0.1", 15053)),
            ("", ("127.0.0.1", 15053)),
        ] {
            assert_eq!(agent_dns(text), (expected.0.to_owned(), expected.1));
        }
    }
}

//! Clusters that resolve the host which each request names.

use navarch_proto::any;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::LbPolicy;
use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;
use navarch_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::{ClusterConfig, cluster_config};
use navarch_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use navarch_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;

use super::dns::{CARES, lookup_family};
use super::draft::{Discovery, Draft};
use super::exchange_filter;
use super::http::HttpOptions;
use super::outbound::Outbound;
use super::{connection_pool, tls_context, transport};
use crate::api::istio::{ClientTlsMode, ClientTlsSettings};
use crate::api::names::Hostname;
use crate::envoy::build::socket_address;
use crate::envoy::names::ALLOW_ANY_DYNAMIC_DNS;
use crate::envoy::scope::{self, OutboundPolicy};
use crate::push::view::View;
use crate::registry::model::{Resolution, Service};
use crate::registry::protocol::Protocol;

/// The cache of names that no service declares.
const ANY_CACHE: &str = "allow_any_dfp_dns_cache";
/// Where the agent answers DNS if it does not say.
const AGENT_DNS: (&str, u16) = ("127.0.0.1", 15053);

/// Whether requests to a service name the host that is resolved.
pub(super) fn is_dynamic(service: &Service) -> bool {
    service.resolution == Resolution::DynamicDns && service.key.hostname.is_wildcard()
}

/// Whether the host can be told from what a protocol carries.
pub(super) fn is_carried(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Tls | Protocol::Grpc | Protocol::Http2)
}

/// The name of the cache of a service's hosts, which clusters and filters must share.
#[must_use]
pub(in crate::envoy) fn cache_name(host: &Hostname) -> String {
    format!("{host}_dfp_dns_cache")
}

/// The cluster of a service port before any policy.
pub(super) fn draft(view: &View<'_>, outbound: Outbound<'_>) -> Draft {
    let cache = DnsCacheConfig {
        name: cache_name(&outbound.service.key.hostname),
        dns_lookup_family: lookup_family(view).into(),
        ..DnsCacheConfig::default()
    };
    let mut draft = Draft::new(&outbound.name.to_string(), dynamic(cache, false));
    draft.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    draft.http = HttpOptions::for_protocol(view, outbound.port.protocol);
    draft
}

/// The cluster for hosts that no service declares, if the proxy may reach such.
pub(super) fn allow_any(view: &View<'_>) -> Option<Cluster> {
    if scope::outbound_policy(view) != OutboundPolicy::AllowAnyDynamicDns {
        return None;
    }
    let mesh = view.mesh();
    let policy = mesh.config.outbound_traffic_policy.as_ref();
    let tls = policy.and_then(|policy| policy.tls.as_ref()).filter(|tls| tls.mode != ClientTlsMode::Disable);
    // Without TLS there is nothing that SNI and names could be checked for, which Envoy wants to be told.
    let mut draft = Draft::new(ALLOW_ANY_DYNAMIC_DNS, dynamic(any_cache(view), tls.is_none()));
    draft.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    connection_pool::apply(&mut draft, mesh, None, None);
    if let Some(tls) = tls {
        originate(view, &mut draft, tls);
    }
    draft.cluster.filters.extend(exchange_filter(view));
    let silent = draft.http == HttpOptions::default();
    let options = if silent { HttpOptions::passthrough(view) } else { std::mem::take(&mut draft.http) };
    draft.http = options;
    Some(draft.finish())
}

/// The cache of names that no service declares.
#[must_use]
pub(in crate::envoy) fn any_cache(view: &View<'_>) -> DnsCacheConfig {
    let proxy = view.proxy();
    let captured = proxy.meta_bool("DNS_CAPTURE");
    DnsCacheConfig {
        name: ANY_CACHE.to_owned(),
        max_hosts: Some(view.mesh().settings.dynamic_dns_max_hosts),
        dns_lookup_family: lookup_family(view).into(),
        typed_dns_resolver_config: captured.then(|| agent_resolver(&proxy.meta("DNS_PROXY_ADDR").unwrap_or_default())),
        ..DnsCacheConfig::default()
    }
}

/// The agent as resolver, so that names of the mesh are known.
fn agent_resolver(address: &str) -> TypedExtensionConfig {
    let (host, port) = address.rsplit_once(':').map_or(AGENT_DNS, |(host, port)| {
        (if host == "localhost" { AGENT_DNS.0 } else { host }, port.parse().unwrap_or(AGENT_DNS.1))
    });
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let config = CaresDnsResolverConfig {
        resolvers: vec![socket_address(host, u32::from(port))],
        ..CaresDnsResolverConfig::default()
    };
    TypedExtensionConfig { name: CARES.to_owned(), typed_config: Some(any::pack(&config)) }
}

/// Speaks TLS to hosts that no service declares.
fn originate(view: &View<'_>, draft: &mut Draft, tls: &ClientTlsSettings) {
    let context = tls_context::build(view, draft, tls, tls_context::Client::default());
    draft.cluster.transport_socket = context.as_ref().map(transport::tls);
}

/// Finds endpoints through a cache of names.
fn dynamic(cache: DnsCacheConfig, insecure: bool) -> Discovery {
    Discovery::Dynamic(Box::new(ClusterConfig {
        cluster_implementation_specifier: Some(cluster_config::ClusterImplementationSpecifier::DnsCacheConfig(cache)),
        allow_insecure_cluster_options: insecure,
        ..ClusterConfig::default()
    }))
}

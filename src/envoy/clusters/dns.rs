//! How proxies resolve the names of endpoints.

use navarch_proto::any;
use navarch_proto::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;
use navarch_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;

use super::draft::Draft;
use crate::push::proxy::IpFamilies;
use crate::push::view::View;

/// The name of the resolver.
pub(super) const CARES: &str = "envoy.network.dns_resolver.cares";

/// Says in a cluster how its names are resolved.
#[allow(deprecated, reason = "Istio writes these fields, of which Envoy deprecates some for a cluster type of its own")]
pub(super) fn apply(view: &View<'_>, draft: &mut Draft) {
    let mesh = view.mesh();
    let resolver = CaresDnsResolverConfig {
        udp_max_queries: Some(mesh.settings.dns_udp_max_queries),
        ..CaresDnsResolverConfig::default()
    };
    let cluster = &mut draft.cluster;
    cluster.dns_lookup_family = lookup_family(view).into();
    cluster.typed_dns_resolver_config =
        Some(TypedExtensionConfig { name: CARES.to_owned(), typed_config: Some(any::pack(&resolver)) });
    cluster.dns_jitter = Some(mesh.settings.dns_jitter.into());
    cluster.dns_refresh_rate = mesh.config.dns_refresh_rate.map(Into::into);
    cluster.respect_dns_ttl = true;
}

/// The families of addresses that the proxy can use.
pub(super) fn lookup_family(view: &View<'_>) -> DnsLookupFamily {
    let settings = &view.mesh().settings;
    match view.proxy().families() {
        IpFamilies::V4 => DnsLookupFamily::V4Only,
        // There may be an interface for IPv4 that Istio does not see.
        IpFamilies::V6 if settings.ipv4_for_ipv6_only => DnsLookupFamily::All,
        IpFamilies::V6 => DnsLookupFamily::V6Only,
        IpFamilies::DualV4First | IpFamilies::DualV6First if settings.dual_stack => DnsLookupFamily::All,
        IpFamilies::DualV4First | IpFamilies::DualV6First => DnsLookupFamily::V4Only,
    }
}

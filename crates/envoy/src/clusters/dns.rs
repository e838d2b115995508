//! DNS resolution of endpoint names by proxies.

use navarch_proto::any;
use navarch_proto::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;
use navarch_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;

use super::builder::ClusterBuilder;
use crate::filters::dynamic_forward_proxy::lookup_family;
use navarch_push::view::View;

/// The name of the resolver.
const CARES_RESOLVER: &str = "envoy.network.dns_resolver.cares";

/// Sets the DNS resolution of a cluster; with `races`, addresses of all families are tried at once.
#[allow(
    deprecated,
    reason = "Istio sets these fields, some of which Envoy deprecates in favour of a separate cluster type"
)]
pub(super) fn apply(view: &View<'_>, builder: &mut ClusterBuilder, races: bool) {
    let mesh = view.mesh();
    let resolver = CaresDnsResolverConfig {
        udp_max_queries: Some(mesh.settings.dns_udp_max_queries),
        ..CaresDnsResolverConfig::default()
    };

    let cluster = &mut builder.cluster;
    cluster.dns_lookup_family = if races {
        DnsLookupFamily::All
    } else {
        lookup_family(view)
    }
    .into();
    cluster.typed_dns_resolver_config = Some(TypedExtensionConfig {
        name: CARES_RESOLVER.to_owned(),
        typed_config: Some(any::pack(&resolver)),
    });
    cluster.dns_jitter = Some(mesh.settings.dns_jitter.into());
    cluster.dns_refresh_rate = mesh.config.dns_refresh_rate.map(Into::into);
    cluster.respect_dns_ttl = true;
}

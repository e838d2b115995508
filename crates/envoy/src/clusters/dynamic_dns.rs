//! Clusters that resolve the host of each request.

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::LbPolicy;
use navarch_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::{
    ClusterConfig, cluster_config,
};
use navarch_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;

use super::builder::{ClusterBuilder, Discovery};
use super::exchange_filter;
use super::http::HttpOptions;
use super::{connection_pool, tls_context, transport};
use crate::filters::dynamic_forward_proxy::{allow_any_cache, dns_cache_name, lookup_family};
use crate::names::ALLOW_ANY_DYNAMIC_DNS;
use crate::sidecar_scope::{self, OutboundPolicy};
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings};
use navarch_push::view::View;
use navarch_registry::model::Service;
use navarch_registry::protocol::Protocol;

/// Whether requests of a protocol contain the host.
pub(super) fn is_carried(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::Http | Protocol::Tls | Protocol::Grpc | Protocol::Http2
    )
}

/// The cluster of a service port before any policy.
pub(super) fn builder(
    view: &View<'_>,
    name: &str,
    service: &Service,
    protocol: Protocol,
) -> ClusterBuilder {
    let cache = DnsCacheConfig {
        name: dns_cache_name(&service.key.hostname),
        dns_lookup_family: lookup_family(view).into(),
        ..DnsCacheConfig::default()
    };
    let mut builder = ClusterBuilder::new(name, dynamic(cache, false));
    builder.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    builder.http = HttpOptions::for_protocol(view, protocol);
    builder
}

/// The cluster for hosts that no service declares, if the proxy may reach such hosts.
pub(super) fn allow_any(view: &View<'_>) -> Option<Cluster> {
    if sidecar_scope::outbound_policy(view) != OutboundPolicy::AllowAnyDynamicDns {
        return None;
    }

    let mesh = view.mesh();
    let policy = mesh.config.outbound_traffic_policy.as_ref();
    let tls = policy
        .and_then(|policy| policy.tls.as_ref())
        .filter(|tls| tls.mode != ClientTlsMode::Disable);

    // Without TLS there are no SNI and SANs to validate, which Envoy requires to be set explicitly.
    let mut builder = ClusterBuilder::new(
        ALLOW_ANY_DYNAMIC_DNS,
        dynamic(allow_any_cache(view), tls.is_none()),
    );
    builder.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    connection_pool::apply(&mut builder, mesh, None, None);
    if let Some(tls) = tls {
        originate(view, &mut builder, tls);
    }

    builder.cluster.filters.extend(exchange_filter(view));
    let silent = builder.http == HttpOptions::default();
    let options = if silent {
        HttpOptions::passthrough(view)
    } else {
        std::mem::take(&mut builder.http)
    };

    builder.http = options;
    Some(builder.finish())
}

/// Originates TLS to hosts that no service declares.
fn originate(view: &View<'_>, builder: &mut ClusterBuilder, tls: &ClientTlsSettings) {
    let context = tls_context::build(view, builder, tls, tls_context::Client::default());
    builder.cluster.transport_socket = context.as_ref().map(transport::tls);
}

/// Endpoints from a DNS cache.
fn dynamic(cache: DnsCacheConfig, insecure: bool) -> Discovery {
    Discovery::Dynamic(Box::new(ClusterConfig {
        cluster_implementation_specifier: Some(
            cluster_config::ClusterImplementationSpecifier::DnsCacheConfig(cache),
        ),
        allow_insecure_cluster_options: insecure,
        ..ClusterConfig::default()
    }))
}

//! Clusters: their endpoints, and the settings of DestinationRules that gRPC supports.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use navarch_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use navarch_proto::envoy::config::cluster::v3::{CircuitBreakers, Cluster};
use navarch_proto::envoy::config::core::v3::{TransportSocket, transport_socket};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;

use super::outbound::same_stream;
use super::tls;
use crate::clusters::{accounts_of, apply_hash, draining_override, stat_name};
use crate::destination_rule::{self, port_policy, subset_policy};
use crate::names::OutboundCluster;
use crate::sidecar_scope;
use navarch_api::istio::{ClientTlsMode, LoadBalancerSettings, SimpleLb, TrafficPolicy};
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The cluster of this name; `None` if the client sees no such service, port or subset.
pub(super) fn build(view: &View<'_>, name: &str) -> Option<Cluster> {
    let OutboundCluster { port, subset, host } = OutboundCluster::parse(name)?;
    let service = sidecar_scope::host_service(view, &host)?;
    service.port(port)?;
    let rule = destination_rule::for_service(view, &service);
    let of_host = port_policy(rule.as_ref().and_then(|rule| rule.policy.as_deref()), port);
    let mut cluster = by_eds(name);
    let policy = if subset.is_empty() {
        let overridden = draining_override(view, &service);
        cluster.common_lb_config = overridden.map(|statuses| CommonLbConfig {
            override_host_status: Some(statuses),
            ..CommonLbConfig::default()
        });
        of_host
    } else {
        let subset = rule.as_ref()?.subset(&subset)?;
        subset_policy(of_host.as_ref(), subset.traffic_policy.as_deref(), port)
    };

    if let Some(policy) = &policy {
        apply(view, &mut cluster, policy, &service.key);
    }

    Some(cluster)
}

/// A cluster with EDS on the same stream, under its own name.
fn by_eds(name: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        alt_stat_name: stat_name(name),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(same_stream()),
            service_name: name.to_owned(),
        }),
        ..Cluster::default()
    }
}

/// Applies a policy to a cluster: load balancing, the request limit, TLS. gRPC supports no other
/// settings.
fn apply(view: &View<'_>, cluster: &mut Cluster, policy: &TrafficPolicy, service: &ServiceKey) {
    if let Some(balancer) = policy.load_balancer.as_deref() {
        balance(view, cluster, balancer, service);
    }

    let http = policy
        .connection_pool
        .as_deref()
        .and_then(|pool| pool.http.as_ref());
    let limit = http
        .and_then(|http| u32::try_from(http.http2_max_requests).ok())
        .filter(|limit| *limit > 0);
    cluster.circuit_breakers = limit.map(|limit| CircuitBreakers {
        thresholds: vec![Thresholds {
            max_requests: Some(limit),
            ..Thresholds::default()
        }],
        ..CircuitBreakers::default()
    });

    // Only if configured: whether a gRPC server accepts it is unknown.
    if policy
        .tls
        .as_deref()
        .is_some_and(|tls| tls.mode == ClientTlsMode::IstioMutual)
    {
        let context = UpstreamTlsContext {
            common_tls_context: Some(tls::context(&accounts_of(view, service))),
            ..UpstreamTlsContext::default()
        };
        cluster.transport_socket = Some(TransportSocket {
            name: tls::SOCKET.to_owned(),
            config_type: Some(transport_socket::ConfigType::TypedConfig(pack(&context))),
        });
    }
}

/// Sets the load balancing policy. Unsupported policies become round robin, gRPC's default.
fn balance(
    view: &View<'_>,
    cluster: &mut Cluster,
    balancer: &LoadBalancerSettings,
    service: &ServiceKey,
) {
    if let Some(hash) = &balancer.consistent_hash {
        apply_hash(cluster, hash);
        return;
    }
    match balancer.simple.unwrap_or_default() {
        SimpleLb::Unspecified | SimpleLb::RoundRobin => {}
        SimpleLb::LeastRequest => cluster.lb_policy = LbPolicy::LeastRequest.into(),
        simple @ (SimpleLb::LeastConn | SimpleLb::Random | SimpleLb::Passthrough) => {
            let host = &service.hostname;
            view.remark(format!(
                "DestinationRule of {host}: gRPC does not support loadBalancer.simple {simple:?} and falls back to round robin"
            ));
        }
    }
}

//! Limits on connections and requests, keepalive, and the retry budget.

use navarch_proto::envoy::config::cluster::v3::circuit_breakers::{Thresholds, thresholds};
use navarch_proto::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, UpstreamConnectionOptions,
};
use navarch_proto::envoy::config::core::v3::{KeepaliveSettings, TcpKeepalive as WireKeepalive};

use super::builder::ClusterBuilder;
use super::http::HttpVersion;
use crate::percent::percent;
use navarch_api::istio::{
    ConnectionPoolSettings, H2UpgradePolicy, HttpSettings, RetryBudget, TcpKeepalive,
};
use navarch_api::mesh::H2UpgradePolicy as MeshUpgradePolicy;
use navarch_push::context::Mesh;
use navarch_registry::protocol::Protocol;

/// Default percentage of requests that may be retries.
const DEFAULT_RETRY_PERCENT: f64 = 20.0;
/// Default number of retries that are always allowed.
const DEFAULT_RETRY_CONCURRENCY: u32 = 3;

/// Applies a connection pool to a cluster. Limits are also set without a pool, since Envoy's
/// defaults are too low for a busy service.
pub(super) fn apply(
    builder: &mut ClusterBuilder,
    mesh: &Mesh,
    pool: Option<&ConnectionPoolSettings>,
    budget: Option<&RetryBudget>,
) {
    let tcp = pool.and_then(|pool| pool.tcp.as_ref());
    let http = pool.and_then(|pool| pool.http.as_ref());
    let mut limits = Thresholds {
        max_connections: Some(u32::MAX),
        max_pending_requests: Some(u32::MAX),
        max_requests: Some(u32::MAX),
        max_retries: Some(u32::MAX),
        track_remaining: !mesh.settings.disable_track_remaining,
        retry_budget: budget.map(retry_budget),
        ..Thresholds::default()
    };

    if let Some(http) = http {
        set_if_positive(&mut limits.max_requests, http.http2_max_requests);
        set_if_positive(
            &mut limits.max_pending_requests,
            http.http1_max_pending_requests,
        );
        set_if_positive(&mut limits.max_retries, http.max_retries);
    }

    if let Some(tcp) = tcp {
        set_if_positive(&mut limits.max_connections, tcp.max_connections);
    }

    let connect_timeout = tcp
        .and_then(|tcp| tcp.connect_timeout)
        .or(mesh.config.connect_timeout);
    builder.cluster.connect_timeout = connect_timeout.map(Into::into);
    apply_keepalive(&mut builder.cluster, mesh.config.tcp_keepalive.as_ref());
    apply_keepalive(
        &mut builder.cluster,
        tcp.and_then(|tcp| tcp.tcp_keepalive.as_ref()),
    );

    builder.cluster.circuit_breakers = Some(CircuitBreakers {
        thresholds: vec![limits],
        ..CircuitBreakers::default()
    });
    apply_http(builder, pool);
}

fn apply_http(builder: &mut ClusterBuilder, pool: Option<&ConnectionPoolSettings>) {
    let Some(pool) = pool else { return };
    let tcp = pool.tcp.as_ref();
    let http = pool.http.clone().unwrap_or_default();
    let idle = http
        .idle_timeout
        .or_else(|| tcp.and_then(|tcp| tcp.idle_timeout));
    let lifetime = tcp.and_then(|tcp| tcp.max_connection_duration);
    let HttpSettings {
        max_requests_per_connection,
        max_concurrent_streams,
        http2_keep_alive,
        ..
    } = &http;

    let requests = positive(*max_requests_per_connection);
    let streams = positive(*max_concurrent_streams);

    if idle.is_some()
        || lifetime.is_some()
        || requests.is_some()
        || streams.is_some()
        || http2_keep_alive.is_some()
    {
        let common = builder.http.common();
        common.idle_timeout = idle.map(Into::into);
        common.max_requests_per_connection = requests;
        common.max_connection_duration = lifetime.map(Into::into);
        if let HttpVersion::Http2(options) = &mut builder.http.version {
            options.max_concurrent_streams = streams.or(options.max_concurrent_streams);
            options.connection_keepalive =
                http2_keep_alive.as_ref().map(|pings| KeepaliveSettings {
                    interval: pings.interval.map(Into::into),
                    timeout: pings.timeout.map(Into::into),
                    ..KeepaliveSettings::default()
                });
        }
    }

    if http.use_client_protocol {
        builder.http.follow_client();
    }
}

/// Whether HTTP/1.1 to an outbound port is upgraded to HTTP/2: by the policy, else, for HTTP ports,
/// by mesh config.
pub(super) fn upgrades(
    mesh: &Mesh,
    pool: Option<&ConnectionPoolSettings>,
    protocol: Protocol,
) -> bool {
    let http = pool.and_then(|pool| pool.http.as_ref());
    if http.is_some_and(|http| http.use_client_protocol) {
        return false;
    }
    match http.map(|http| http.h2_upgrade_policy).unwrap_or_default() {
        H2UpgradePolicy::Upgrade => true,
        H2UpgradePolicy::DoNotUpgrade => false,
        H2UpgradePolicy::Default => {
            protocol.is_http() && mesh.config.h2_upgrade_policy == MeshUpgradePolicy::Upgrade
        }
    }
}

/// Applies keepalive probes over those that are set already. Settings without any value enable
/// probes with the system's defaults.
fn apply_keepalive(cluster: &mut Cluster, keepalive: Option<&TcpKeepalive>) {
    let Some(keepalive) = keepalive else { return };
    let seconds = |duration: navarch_api::duration::Duration| {
        u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
    };
    let options =
        cluster
            .upstream_connection_options
            .get_or_insert_with(|| UpstreamConnectionOptions {
                tcp_keepalive: Some(WireKeepalive::default()),
                ..UpstreamConnectionOptions::default()
            });
    let wire = options.tcp_keepalive.get_or_insert_default();
    if keepalive.probes > 0 {
        wire.keepalive_probes = Some(keepalive.probes);
    }
    wire.keepalive_time = keepalive.time.map(seconds).or(wire.keepalive_time);
    wire.keepalive_interval = keepalive.interval.map(seconds).or(wire.keepalive_interval);
}

/// A retry budget with Istio's defaults.
fn retry_budget(budget: &RetryBudget) -> thresholds::RetryBudget {
    let concurrency = if budget.min_retry_concurrency > 0 {
        budget.min_retry_concurrency
    } else {
        DEFAULT_RETRY_CONCURRENCY
    };
    thresholds::RetryBudget {
        budget_percent: Some(percent(budget.percent.unwrap_or(DEFAULT_RETRY_PERCENT))),
        budget_interval: budget.budget_interval.map(Into::into),
        min_retry_concurrency: Some(concurrency),
    }
}

/// A number above zero; zero means unset in these settings.
fn positive(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}

/// Sets a limit that is above zero.
fn set_if_positive(limit: &mut Option<u32>, number: i32) {
    *limit = positive(number).or(*limit);
}

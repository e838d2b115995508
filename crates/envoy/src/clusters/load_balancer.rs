//! Load balancing policies.

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::common_lb_config::{
    LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig,
};
use navarch_proto::envoy::config::cluster::v3::cluster::{
    LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig, RoundRobinLbConfig,
    SlowStartConfig,
};
use navarch_proto::envoy::config::core::v3::RuntimeDouble;
use navarch_proto::envoy::r#type::v3::Percent;

use super::builder::{ClusterBuilder, Discovery};
use crate::endpoints::health::{sends_unhealthy, sends_unhealthy_always};
use crate::endpoints::locality_setting::LocalitySetting;
use crate::percent::percent;
use navarch_api::istio::{ConsistentHashLb, LoadBalancerSettings, SimpleLb, WarmupConfiguration};
use navarch_push::context::Mesh;
use navarch_registry::model::Service;
use navarch_registry::protocol::Protocol;

/// Envoy's default ring size, used with the deprecated setting.
const DEFAULT_RING_SIZE: u64 = 1024;
/// The maximum ring size of Envoy.
const MAX_RING_SIZE: u64 = 8 * 1024 * 1024;
/// Initial percentage of the weight of a new endpoint.
const DEFAULT_WARMUP_PERCENT: f64 = 10.0;
/// How steeply the weight of a new endpoint increases.
const DEFAULT_WARMUP_AGGRESSION: f64 = 1.0;
/// Envoy requires a runtime key here; this one is Istio's and never set.
const NO_RUNTIME_KEY: &str = "(";

/// Applies load balancing settings to a cluster; inline endpoints are ordered elsewhere.
pub(super) fn apply(
    builder: &mut ClusterBuilder,
    mesh: &Mesh,
    service: &Service,
    protocol: Protocol,
    settings: Option<&LoadBalancerSettings>,
    locality: Option<&LocalitySetting>,
) {
    if builder.is_dynamic() {
        return;
    }

    if builder.common_lb().healthy_panic_threshold.is_none()
        && sends_unhealthy(&mesh.settings, service)
    {
        // Unhealthy endpoints are sent to be counted, not to be used.
        builder.common_lb().healthy_panic_threshold = Some(Percent { value: 0.0 });
    }
    apply_locality(builder, mesh, locality);
    if builder.discovery == Discovery::OriginalDst {
        return set_policy(builder, LbPolicy::ClusterProvided);
    }

    if mesh.settings.redis_filter && protocol == Protocol::Redis {
        return set_policy(builder, LbPolicy::Maglev);
    }

    match settings
        .and_then(|settings| settings.simple)
        .unwrap_or_default()
    {
        SimpleLb::Unspecified | SimpleLb::LeastConn | SimpleLb::LeastRequest => {
            set_policy(builder, LbPolicy::LeastRequest);
            let slow_start_config = settings.and_then(slow_start);
            if slow_start_config.is_some() {
                let config = LeastRequestLbConfig {
                    slow_start_config,
                    ..LeastRequestLbConfig::default()
                };
                builder.cluster.lb_config = Some(LbConfig::LeastRequestLbConfig(config));
            }
        }
        SimpleLb::RoundRobin => {
            set_policy(builder, LbPolicy::RoundRobin);
            let slow_start_config = settings.and_then(slow_start);
            if slow_start_config.is_some() {
                let config = RoundRobinLbConfig { slow_start_config };
                builder.cluster.lb_config = Some(LbConfig::RoundRobinLbConfig(config));
            }
        }
        SimpleLb::Random => set_policy(builder, LbPolicy::Random),
        SimpleLb::Passthrough => {
            set_policy(builder, LbPolicy::ClusterProvided);
            builder.discovery = Discovery::OriginalDst;
            builder.endpoints.clear();
        }
    }

    if let Some(hash) = settings.and_then(|settings| settings.consistent_hash.as_ref()) {
        apply_hash(&mut builder.cluster, hash);
    }
}

/// Whether the panic threshold must be disabled since the service always sends unhealthy endpoints.
pub(super) fn forbids_panic(mesh: &Mesh, service: &Service) -> bool {
    sends_unhealthy_always(&mesh.settings, service)
}

/// The locality settings of the cluster.
fn apply_locality(builder: &mut ClusterBuilder, mesh: &Mesh, locality: Option<&LocalitySetting>) {
    let fails_over = builder.cluster.outlier_detection.is_some();
    let weighted = match locality {
        Some(LocalitySetting::ZoneAware(setting)) => {
            let off = setting.enabled == Some(false);
            let config = ZoneAwareLbConfig {
                routing_enabled: off.then_some(Percent { value: 0.0 }),
                min_cluster_size: setting.min_cluster_size,
                ..ZoneAwareLbConfig::default()
            };
            builder.common_lb().locality_config_specifier =
                Some(LocalityConfigSpecifier::ZoneAwareLbConfig(config));
            return;
        }
        Some(LocalitySetting::Locality { setting, forced }) => {
            let ordered = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
            ((fails_over || *forced) && ordered) || !setting.distribute.is_empty()
        }
        None => false,
    };

    if weighted || mesh.settings.locality_weighted_lb {
        builder.common_lb().locality_config_specifier = Some(
            LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {}),
        );
    }
}

/// Consistent hash settings that Envoy would reject, which are skipped.
pub(super) fn rejected(hash: &ConsistentHashLb) -> Option<String> {
    let size = hash
        .ring_hash
        .as_ref()
        .map_or(hash.minimum_ring_size, |ring| ring.minimum_ring_size);
    if size > MAX_RING_SIZE {
        return Some(format!(
            "minimumRingSize {size} is ignored: Envoy accepts at most {MAX_RING_SIZE}"
        ));
    }

    let named = [
        ("httpHeaderName", hash.http_header_name.as_deref()),
        (
            "httpCookie.name",
            hash.http_cookie.as_ref().map(|cookie| cookie.name.as_str()),
        ),
        (
            "httpQueryParameterName",
            hash.http_query_parameter_name.as_deref(),
        ),
    ];

    let empty = named.into_iter().find(|(_, name)| *name == Some(""));
    empty.map(|(field, _)| format!("{field} is ignored: it is empty"))
}

/// Applies consistent hashing.
pub(crate) fn apply_hash(cluster: &mut Cluster, hash: &ConsistentHashLb) {
    if let Some(maglev) = &hash.maglev {
        cluster.lb_policy = LbPolicy::Maglev.into();
        if maglev.table_size != 0 {
            let config = MaglevLbConfig {
                table_size: Some(maglev.table_size),
            };
            cluster.lb_config = Some(LbConfig::MaglevLbConfig(config));
        }
        return;
    }

    cluster.lb_policy = LbPolicy::RingHash.into();
    let minimum = match &hash.ring_hash {
        Some(ring) => Some(ring.minimum_ring_size).filter(|size| *size != 0),
        None if hash.minimum_ring_size != 0 => Some(hash.minimum_ring_size),
        None => Some(DEFAULT_RING_SIZE),
    };
    let minimum = minimum.filter(|size| *size <= MAX_RING_SIZE);

    if minimum.is_some() {
        let config = RingHashLbConfig {
            minimum_ring_size: minimum,
            ..RingHashLbConfig::default()
        };
        cluster.lb_config = Some(LbConfig::RingHashLbConfig(config));
    }
}

/// The slow start of new endpoints, if enabled.
fn slow_start(settings: &LoadBalancerSettings) -> Option<SlowStartConfig> {
    if let Some(WarmupConfiguration {
        duration,
        minimum_percent,
        aggression,
    }) = &settings.warmup
    {
        return Some(SlowStartConfig {
            slow_start_window: duration.map(Into::into),
            aggression: Some(RuntimeDouble {
                default_value: aggression.unwrap_or(DEFAULT_WARMUP_AGGRESSION),
                runtime_key: NO_RUNTIME_KEY.to_owned(),
            }),
            min_weight_percent: Some(percent(minimum_percent.unwrap_or(DEFAULT_WARMUP_PERCENT))),
        });
    }

    settings.warmup_duration_secs.map(|window| SlowStartConfig {
        slow_start_window: Some(window.into()),
        ..SlowStartConfig::default()
    })
}

/// Sets the load balancing policy.
fn set_policy(builder: &mut ClusterBuilder, policy: LbPolicy) {
    builder.cluster.lb_policy = policy.into();
}

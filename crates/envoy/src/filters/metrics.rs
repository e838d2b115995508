//! Filters for metrics of requests and connections.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::listener::v3::Filter;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use navarch_proto::stats::{PluginConfig, Reporter};

use super::class::ListenerClass;
use super::http::packed_filter;
use super::network::packed_network_filter;
use super::telemetry::{Counting, CountingProvider, MetricsOf};
use crate::policy::PolicyService;
use navarch_api::duration::Duration;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Istio's metrics filter.
const STATS: &str = "istio.stats";

/// The metrics filters of the listeners of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetricsFiltersOf {
    /// Selects the Telemetry rules by mode: `SERVER` for `SidecarInbound`, `CLIENT` for the others.
    pub class: ListenerClass,
    /// The service of the listeners, at its waypoint.
    pub service: Option<PolicyService>,
}

impl MetricsFiltersOf {
    /// For listeners that are not for one service of a waypoint.
    #[must_use]
    pub fn of_class(class: ListenerClass) -> Self {
        Self {
            class,
            service: None,
        }
    }
}

/// One `istio.stats` filter for each Prometheus provider; none if the proxy's Envoy lacks the
/// extension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsFilters {
    /// For HTTP connection managers.
    pub http: Vec<HttpFilter>,
    /// For TCP filter chains.
    pub tcp: Vec<Filter>,
}

impl Query for MetricsFiltersOf {
    type Value = MetricsFilters;

    fn compute(&self, view: &View<'_>) -> MetricsFilters {
        let mut filters = MetricsFilters::default();

        for CountingProvider { provider, counting } in view
            .get(&MetricsOf {
                class: self.class,
                service: self.service.clone(),
            })
            .iter()
        {
            if provider.prometheus.is_none() {
                continue;
            }
            let config = pack(&stats_config(view, self.class, counting));
            if view.proxy().supports("envoy.filters.http.istio_stats") {
                filters.http.push(packed_filter(STATS, config.clone()));
            }
            if view.proxy().supports("envoy.filters.network.istio_stats") {
                filters.tcp.push(packed_network_filter(STATS, config));
            }
        }

        filters
    }
}

/// The configuration of Istio's stats filter.
fn stats_config(view: &View<'_>, class: ListenerClass, counting: &Counting) -> PluginConfig {
    let disable_host_header_fallback = match class {
        ListenerClass::SidecarInbound | ListenerClass::Gateway => true,
        ListenerClass::SidecarOutbound => false,
    };
    let reporter = match view.proxy().kind() {
        ProxyKind::Waypoint => Reporter::ServerGateway,
        ProxyKind::Sidecar | ProxyKind::Router | ProxyKind::Ztunnel | ProxyKind::AgentGateway => {
            Reporter::Unspecified
        }
    };
    PluginConfig {
        disable_host_header_fallback,
        reporter: reporter.into(),
        tcp_reporting_duration: counting.interval.map(Duration::to_proto),
        metrics: counting.metrics.clone(),
        ..PluginConfig::default()
    }
}

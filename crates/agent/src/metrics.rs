//! The agent's metrics, under pilot-agent's names (`istio_agent_…`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tonic::Code;

use crate::Clock;
use navarch_base::counter::Count;

/// pilot-agent's label value for certificate requests.
const CSR: &str = "csr";
/// pilot-agent's label value for the workload's own certificate.
const WORKLOAD: &str = "default";

/// Handles of all metrics. Clones share them; by default they are not registered.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    /// Forwarded requests of Envoy.
    xds_requests: Count,
    /// Responses of the control plane.
    xds_responses: Count,
    /// Failed connections to the control plane.
    connection_failures: Count,
    /// Ended streams to the control plane.
    upstream_ends: Family<EndLabel, Count>,
    /// Ended streams of Envoy.
    downstream_ends: Family<EndLabel, Count>,
    /// Requests to the CA, and their total duration (ms).
    requests: Family<RequestLabel, Count>,
    failed_requests: Family<RequestLabel, Count>,
    request_time: Family<RequestLabel, Count>,
    /// Queries to the DNS server.
    dns_requests: Counter,
    /// Forwarded DNS queries.
    dns_forwarded: Counter,
    dns_failures: Counter,
    dns_time: Histogram,
    /// Failed scrapes, by target.
    scrape_failures: Family<ScrapeLabel, Counter>,
    /// Requests to the CA after a failed one.
    retries: Family<RequestLabel, Count>,
    /// Directories that could not be watched, and files without a valid secret.
    file_watcher_failures: Counter,
    file_secret_failures: Counter,
    /// Size of Envoy's largest request in bytes.
    largest_request: Gauge,
    /// Start of the agent, and seconds from then until the pod was first ready.
    begun: Instant,
    startup: Gauge<f64, AtomicU64>,
    /// Cached Wasm modules.
    modules: Gauge,
    /// Lookups of Wasm modules, by hit or miss.
    module_lookups: Family<HitLabel, Count>,
    /// Fetches of Wasm modules, and conversions of extension configs, by result.
    module_fetches: Family<ResultLabel, Count>,
    conversions: Family<ResultLabel, Count>,
    /// Duration of conversions in milliseconds.
    conversion_time: Histogram,
    /// Attempts to replace Envoy by another version, by result.
    proxy_upgrades: Family<ResultLabel, Counter>,
    /// Seconds until certificates expire.
    certificates: Family<ResourceLabel, Gauge>,
    /// Expiry of the workload's certificate, and the clock for it.
    ends: Arc<Mutex<Option<(SystemTime, Clock)>>>,
}

/// The kind of a stream's end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabel {
    /// `error` or `cancelled`.
    r#type: &'static str,
}

impl EndLabel {
    fn of(code: Code) -> Self {
        // Normal ends of a stream are not errors.
        let is_cancelled = matches!(code, Code::Ok | Code::Cancelled | Code::DeadlineExceeded);
        Self {
            r#type: if is_cancelled { "cancelled" } else { "error" },
        }
    }
}

/// The kind of a CA request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    request_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScrapeLabel {
    r#type: &'static str,
}

/// Whether a lookup found the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HitLabel {
    hit: &'static str,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource_name: &'static str,
}

/// The target of a failed scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrapeTarget {
    /// Envoy's `/stats/prometheus`; label `type="envoy"`.
    Envoy,
    /// A port and path of `ISTIO_PROMETHEUS_ANNOTATIONS`; label `type="application"`.
    Application,
    /// The agent itself, and with it all targets.
    Agent,
}

impl Default for AgentMetrics {
    fn default() -> Self {
        Self::begun(Instant::now())
    }
}

impl AgentMetrics {
    /// Metrics of an agent that was started at this time.
    #[must_use]
    pub fn begun(begun: Instant) -> Self {
        Self {
            xds_requests: Count::default(),
            xds_responses: Count::default(),
            connection_failures: Count::default(),
            upstream_ends: Family::default(),
            downstream_ends: Family::default(),

            requests: Family::default(),
            failed_requests: Family::default(),
            request_time: Family::default(),

            dns_requests: Counter::default(),
            dns_forwarded: Counter::default(),
            dns_failures: Counter::default(),
            dns_time: Histogram::new([0.001, 0.005, 0.01, 0.1, 1.0, 5.0]),

            scrape_failures: Family::default(),
            retries: Family::default(),
            file_watcher_failures: Counter::default(),
            file_secret_failures: Counter::default(),
            largest_request: Gauge::default(),
            begun,
            startup: Gauge::default(),

            modules: Gauge::default(),
            module_lookups: Family::default(),
            module_fetches: Family::default(),
            conversions: Family::default(),
            conversion_time: Histogram::new((0..15).map(|power| f64::from(1_u32 << power))),

            proxy_upgrades: Family::default(),
            certificates: Family::default(),
            ends: Arc::default(),
        }
    }

    /// Adds the metrics to `registry` with the prefix `istio_agent_`. Clones of `self` update the
    /// registered values.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("istio_agent");

        self.register_streams(registry);
        self.register_secrets(registry);
        self.register_dns(registry);
        self.register_status(registry);
        self.register_modules(registry);
        self.register_certificates(registry);
        self.register_upgrades(registry);
    }

    /// Registers the metrics of xDS streams, of Envoy and to the control plane.
    fn register_streams(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register(
            "xds_proxy_requests",
            "xDS requests forwarded to the control plane",
            m.xds_requests,
        );

        registry.register(
            "xds_proxy_responses",
            "xDS responses received from the control plane",
            m.xds_responses,
        );

        registry.register(
            "istiod_connection_failures",
            "Failed connections to the control plane",
            m.connection_failures,
        );

        registry.register(
            "istiod_connection_terminations",
            "Streams to the control plane that ended",
            m.upstream_ends,
        );

        registry.register(
            "envoy_connection_terminations",
            "Streams of Envoy that ended",
            m.downstream_ends,
        );

        registry.register(
            "pilot_xds_recv_max",
            "Size of Envoy's largest xDS request so far, in bytes",
            m.largest_request,
        );
    }

    /// Registers the metrics of requests to the CA and of secrets in files.
    fn register_secrets(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register("num_outgoing_requests", "Requests to the CA", m.requests);
        registry.register(
            "num_failed_outgoing_requests",
            "Failed requests to the CA",
            m.failed_requests,
        );

        registry.register(
            "outgoing_latency",
            "Total latency of requests to the CA, in milliseconds",
            m.request_time,
        );

        registry.register(
            "num_outgoing_retries",
            "Retries of requests to the CA",
            m.retries,
        );

        registry.register(
            "num_file_watcher_failures",
            "Certificate directories that could not be watched",
            m.file_watcher_failures,
        );

        registry.register(
            "num_file_secret_failures",
            "Certificate and root files that could not be loaded",
            m.file_secret_failures,
        );
    }

    /// Registers the metrics of the DNS server.
    fn register_dns(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register("dns_requests", "DNS queries received", m.dns_requests);
        registry.register(
            "dns_upstream_requests",
            "DNS queries forwarded to upstream resolvers",
            m.dns_forwarded,
        );

        registry.register(
            "dns_upstream_failures",
            "Forwarded DNS queries without a response",
            m.dns_failures,
        );

        registry.register(
            "dns_upstream_request_duration_seconds",
            "Latency of upstream DNS resolvers, in seconds",
            m.dns_time,
        );
    }

    /// Registers the metrics of the status server.
    fn register_status(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register(
            "scrape_failures",
            "Failed scrapes, by source",
            m.scrape_failures,
        );

        registry.register(
            "startup_duration_seconds",
            "Seconds from start until the pod was first ready; 0 until then",
            m.startup,
        );
    }

    /// Registers the metrics of Wasm modules.
    fn register_modules(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register("wasm_cache_entries", "Wasm modules in the cache", m.modules);
        registry.register(
            "wasm_cache_lookup_count",
            "Wasm module cache lookups, by hit",
            m.module_lookups,
        );

        registry.register(
            "wasm_remote_fetch_count",
            "Wasm module fetches, by result",
            m.module_fetches,
        );

        registry.register(
            "wasm_config_conversion_count",
            "Wasm filter configurations converted, by result",
            m.conversions,
        );

        registry.register(
            "wasm_config_conversion_duration",
            "Duration of a Wasm filter configuration conversion, in milliseconds",
            m.conversion_time,
        );
    }

    /// Registers the metric of certificates' expiry.
    fn register_certificates(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register(
            "cert_expiry_seconds",
            "Seconds until certificates expire",
            m.certificates,
        );
    }

    /// Registers the metric of other versions of Envoy.
    fn register_upgrades(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register(
            "proxy_upgrades",
            "Attempts to replace Envoy by another version, by result: done, refused, failed",
            m.proxy_upgrades,
        );
    }

    /// Counts a forwarded request of Envoy.
    pub(crate) fn requested(&self) {
        self.xds_requests.inc();
    }

    /// Records the size of a request, in bytes.
    pub(crate) fn received(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.largest_request
            .inner()
            .fetch_max(bytes, Ordering::Relaxed);
    }

    /// Counts a response of the control plane.
    pub(crate) fn answered(&self) {
        self.xds_responses.inc();
    }

    /// Counts a failed connection to the control plane.
    pub(crate) fn unreachable(&self) {
        self.connection_failures.inc();
    }

    /// Counts the end of a stream to the control plane, which ends Envoy's stream, too.
    pub(crate) fn ended(&self, code: Code) {
        self.upstream_ends.get_or_create(&EndLabel::of(code)).inc();
    }

    /// Counts the end of Envoy's stream.
    pub(crate) fn count_stream_end(&self, code: Code) {
        self.downstream_ends
            .get_or_create(&EndLabel::of(code))
            .inc();
    }

    /// Counts a request to the CA and its duration.
    pub(crate) fn observe_ca_request(&self, took: Duration, is_signed: bool) {
        let label = RequestLabel { request_type: CSR };
        self.requests.get_or_create(&label).inc();
        self.request_time
            .get_or_create(&label)
            .inc_by(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        if !is_signed {
            self.failed_requests.get_or_create(&label).inc();
        }
    }

    /// Counts a retry of a failed request to the CA.
    pub(crate) fn count_ca_retry(&self) {
        self.retries
            .get_or_create(&RequestLabel { request_type: CSR })
            .inc();
    }

    /// Counts a directory that could not be watched.
    pub(crate) fn watcher_failed(&self) {
        self.file_watcher_failures.inc();
    }

    /// Counts files without a valid secret.
    pub(crate) fn file_failed(&self) {
        self.file_secret_failures.inc();
    }

    /// Records the expiry of the workload's certificate, by this clock.
    pub(crate) fn certificate_ends(&self, ends: SystemTime, clock: Clock) {
        *self.ends.lock() = Some((ends, clock));
    }

    /// Updates time-dependent metrics before a scrape.
    pub(crate) fn refresh(&self) {
        let Some((ends, clock)) = *self.ends.lock() else {
            return;
        };
        let whole = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        let left = ends
            .duration_since(clock())
            .map_or_else(|past| -whole(past.duration()), whole);
        self.certificates
            .get_or_create(&ResourceLabel {
                resource_name: WORKLOAD,
            })
            .set(left);
    }

    pub(crate) fn count_dns_query(&self) {
        self.dns_requests.inc();
    }

    /// Counts a forwarded DNS query and its duration.
    pub(crate) fn dns_forwarded(&self, took: Duration, is_answered: bool) {
        self.dns_forwarded.inc();
        self.dns_time.observe(took.as_secs_f64());
        if !is_answered {
            self.dns_failures.inc();
        }
    }

    /// Counts a failed scrape.
    pub(crate) fn scrape_failed(&self, target: ScrapeTarget) {
        let r#type = match target {
            ScrapeTarget::Envoy => "envoy",
            ScrapeTarget::Application => "application",
            ScrapeTarget::Agent => "agent",
        };
        self.scrape_failures
            .get_or_create(&ScrapeLabel { r#type })
            .inc();
    }

    /// Counts a lookup of a Wasm module.
    pub(crate) fn module_looked_up(&self, is_there: bool) {
        let hit = if is_there { "true" } else { "false" };
        self.module_lookups.get_or_create(&HitLabel { hit }).inc();
    }

    /// Counts a fetch of a Wasm module, with pilot-agent's result label.
    pub(crate) fn module_fetched(&self, result: &'static str) {
        self.module_fetches
            .get_or_create(&ResultLabel { result })
            .inc();
    }

    /// Records the number of cached Wasm modules.
    pub(crate) fn keeps_modules(&self, count: usize) {
        self.modules.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a conversion of a Wasm filter config, with pilot-agent's result label, and its
    /// duration.
    pub(crate) fn module_converted(&self, result: &'static str, took: Duration) {
        self.conversions
            .get_or_create(&ResultLabel { result })
            .inc();
        self.conversion_time.observe(took.as_secs_f64() * 1000.0);
    }

    /// Counts an attempt to replace Envoy.
    pub(crate) fn proxy_upgraded(&self, result: &'static str) {
        self.proxy_upgrades
            .get_or_create(&ResultLabel { result })
            .inc();
    }

    /// Records that the pod is ready; only the first call has an effect.
    pub(crate) fn ready(&self) {
        // Elapsed time has a resolution of nanoseconds, so it is above 0.
        if self.startup.get() == 0.0 {
            self.startup.set(self.begun.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    /// pilot-agent's names of what is counted here.
    const NAMES: [&str; 26] = [
        "cert_expiry_seconds{resource_name=\"default\"} -60",
        "dns_requests_total 1",
        "dns_upstream_failures_total 1",
        "dns_upstream_request_duration_seconds_count 1",
        "dns_upstream_requests_total 1",
        "envoy_connection_terminations{type=\"cancelled\"} 1",
        "envoy_connection_terminations{type=\"error\"} 1",
        "istiod_connection_failures 1",
        "istiod_connection_terminations{type=\"error\"} 1",
        "num_failed_outgoing_requests{request_type=\"csr\"} 1",
        "num_file_secret_failures_total 1",
        "num_file_watcher_failures_total 1",
        "num_outgoing_requests{request_type=\"csr\"} 1",
        "num_outgoing_retries{request_type=\"csr\"} 1",
        "outgoing_latency{request_type=\"csr\"} 20",
        "pilot_xds_recv_max 300",
        "scrape_failures_total{type=\"agent\"} 1",
        "scrape_failures_total{type=\"envoy\"} 1",
        "startup_duration_seconds 0",
        "wasm_cache_entries 3",
        "wasm_cache_lookup_count{hit=\"true\"} 1",
        "wasm_config_conversion_count{result=\"success\"} 1",
        "wasm_config_conversion_duration_count 1",
        "wasm_remote_fetch_count{result=\"success\"} 1",
        "xds_proxy_requests 1",
        "xds_proxy_responses 1",
    ];

    #[test]
    fn names_and_labels_are_pilot_agents() {
        let metrics = AgentMetrics::default();
        metrics.requested();
        metrics.answered();
        metrics.unreachable();
        metrics.ended(Code::Unavailable);
        metrics.count_stream_end(Code::Cancelled);
        metrics.count_stream_end(Code::InvalidArgument);
        metrics.observe_ca_request(Duration::from_millis(20), false);

        metrics.count_ca_retry();
        metrics.received(300);
        metrics.received(200);
        metrics.watcher_failed();
        metrics.file_failed();
        metrics.certificate_ends(SystemTime::UNIX_EPOCH, || {
            SystemTime::UNIX_EPOCH + Duration::from_mins(1)
        });

        metrics.count_dns_query();
        metrics.dns_forwarded(Duration::from_millis(1), false);
        metrics.scrape_failed(ScrapeTarget::Envoy);
        metrics.scrape_failed(ScrapeTarget::Agent);
        metrics.module_looked_up(true);
        metrics.module_fetched("success");
        metrics.keeps_modules(3);
        metrics.module_converted("success", Duration::from_millis(3));

        metrics.refresh();
        let mut registry = Registry::default();
        let mut text = String::new();
        metrics.register(&mut registry);
        encode(&mut text, &registry).unwrap();

        for name in NAMES {
            let line = format!("istio_agent_{name}");
            assert!(
                text.lines().any(|one| one.trim_end_matches(".0") == line),
                "{line}: {text}"
            );
        }
    }
}

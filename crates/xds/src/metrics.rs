//! Metrics of the streams, under Istio's names and with its buckets (`pilot/pkg/xds/monitoring.go`,
//! `pkg/xds/monitoring.go`).

mod traffic;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tonic::Code;

use self::traffic::Traffic;
use crate::compression::Encoding;
use crate::connections::Connections;
use crate::session::encoding_cache::EncodingCache;
use navarch_base::counter::Count;
use navarch_base::label_text::LabelText;
use navarch_push::resource::ResourceType;
use navarch_tables::hash::KeyedMap;

/// Maximum number of proxy versions with a time series of their own; all others share one.
const MAX_VERSIONS: usize = 100;
const MAX_VERSION_BYTES: usize = 64;
/// Maximum bytes of `<pod>.<namespace>`.
const MAX_NAME_BYTES: usize = 320;
/// The label value that replaces all invalid values.
const UNKNOWN: &str = "unknown";

/// Handles of all metrics of this crate. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// `pilot_xds`.
    connected: Family<VersionLabel, Gauge>,
    /// Number of proxies per version that has a time series.
    versions: Arc<Mutex<KeyedMap<Arc<str>, i64>>>,
    /// `pilot_xds_pushes`.
    pushes: Family<TypeLabel, Count>,
    /// `pilot_xds_push_time`.
    push_time: Family<TypeLabel, Histogram>,
    /// `pilot_xds_send_time`.
    send_time: Histogram,
    /// `pilot_xds_config_size_bytes`.
    size: Family<TypeLabel, Histogram>,
    /// `pilot_proxy_convergence_time`.
    convergence: Histogram,
    /// `pilot_proxy_queue_time`.
    queue: Histogram,
    /// `pilot_total_xds_rejects`.
    rejects: Family<TypeLabel, Count>,
    /// `pilot_xds_cds_reject`.
    rejected_clusters: Family<RejectLabel, Gauge>,
    /// `pilot_xds_eds_reject`.
    rejected_endpoints: Family<RejectLabel, Gauge>,
    /// `pilot_xds_lds_reject`.
    rejected_listeners: Family<RejectLabel, Gauge>,
    /// `pilot_xds_rds_reject`.
    rejected_routes: Family<RejectLabel, Gauge>,
    /// `pilot_xds_expired_nonce`.
    expired_nonces: Family<TypeLabel, Count>,
    /// `pilot_total_xds_internal_errors`.
    errors: Count,
    /// `pilot_xds_recv_max`.
    largest_request: Gauge,
    /// `navarch_on_demand_clusters_total`.
    on_demand: Counter,
    /// Handles for each type's responses, looked up once, as they are used for each of thousands of
    /// proxies.
    responses: Arc<[OnceLock<Responses>; ResourceType::ALL.len()]>,
    /// The streams whose history is measured, once set.
    connections: Arc<OnceLock<Arc<Connections>>>,
    /// Bytes of responses.
    traffic: Traffic,
}

/// Measures the memory of the streams' histories at each scrape.
#[derive(Debug)]
struct HistoryBytes(Arc<OnceLock<Arc<Connections>>>);

impl Collector for HistoryBytes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let bytes = self
            .0
            .get()
            .map_or(0, |connections| connections.history_bytes());
        let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
        let help = "Memory of the response history of open streams, in bytes";
        gauge.encode(encoder.encode_descriptor(
            "navarch_push_history_bytes",
            help,
            None,
            gauge.metric_type(),
        )?)
    }
}

/// Handles for the responses of one type.
#[derive(Clone, Debug)]
struct Responses {
    /// Handle of `pilot_xds_pushes`.
    pushes: Count,
    /// Handle of `pilot_xds_push_time`.
    push_time: Histogram,
    /// Handle of `pilot_xds_config_size_bytes`.
    size: Histogram,
}

/// The proxy's `ISTIO_VERSION`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabel {
    version: LabelText,
}

/// The type: its short name, or its URL where Istio uses that.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    /// The name or URL.
    r#type: &'static str,
}

/// The proxy that rejected a response, and the code. Bounded by the connected proxies:
/// [`Metrics::forget`] removes entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct RejectLabel {
    /// `<pod>.<namespace>`.
    node: LabelText,
    /// The name of the gRPC code.
    err: LabelText,
}

impl Metrics {
    /// Registers `pilot_xds_*` and further metrics with the names that istiod gives them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();

        metrics.register_responses(registry);
        metrics.register_rejections(registry);
        metrics.register_streams(registry);

        metrics
    }

    fn unregistered() -> Self {
        let seconds = || Histogram::new([0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]);

        Self {
            connected: Family::default(),
            versions: Arc::default(),
            pushes: Family::default(),
            push_time: Family::new_with_constructor(seconds),
            send_time: Histogram::new([0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
            size: Family::new_with_constructor(|| {
                Histogram::new([
                    1.0,
                    10_000.0,
                    1_000_000.0,
                    4_000_000.0,
                    10_000_000.0,
                    40_000_000.0,
                ])
            }),
            convergence: Histogram::new([0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
            queue: Histogram::new([0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
            rejects: Family::default(),
            rejected_clusters: Family::default(),
            rejected_endpoints: Family::default(),
            rejected_listeners: Family::default(),
            rejected_routes: Family::default(),
            expired_nonces: Family::default(),
            errors: Count::default(),
            largest_request: Gauge::default(),
            on_demand: Counter::default(),
            responses: Arc::default(),
            connections: Arc::default(),
            traffic: Traffic::unregistered(),
        }
    }

    /// Registers the metrics of connected proxies and of the responses to them.
    fn register_responses(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register(
            "pilot_xds",
            "Proxies connected over xDS, by their version",
            m.connected,
        );
        registry.register("pilot_xds_pushes", "Responses sent, by type", m.pushes);
        registry.register(
            "pilot_xds_push_time",
            "Seconds to build a response",
            m.push_time,
        );

        registry.register(
            "pilot_xds_send_time",
            "Seconds until a response is written to the stream",
            m.send_time,
        );

        registry.register(
            "pilot_xds_config_size_bytes",
            "Size of responses in bytes, by type URL",
            m.size,
        );

        registry.register(
            "pilot_proxy_convergence_time",
            "Seconds from the completed push of a change until all of it is sent to a proxy",
            m.convergence,
        );

        registry.register(
            "pilot_proxy_queue_time",
            "Seconds from the completed push of a change until a proxy's stream handles it",
            m.queue,
        );
    }

    /// Registers the metrics of responses that proxies rejected.
    fn register_rejections(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register(
            "pilot_total_xds_rejects",
            "Responses rejected by proxies, by type",
            m.rejects,
        );

        registry.register(
            "pilot_xds_cds_reject",
            "Rejected clusters, by proxy and code",
            m.rejected_clusters,
        );

        registry.register(
            "pilot_xds_eds_reject",
            "Rejected endpoints, by proxy and code",
            m.rejected_endpoints,
        );

        registry.register(
            "pilot_xds_lds_reject",
            "Rejected listeners, by proxy and code",
            m.rejected_listeners,
        );

        registry.register(
            "pilot_xds_rds_reject",
            "Rejected routes, by proxy and code",
            m.rejected_routes,
        );
    }

    /// Registers the metrics of streams and of requests.
    fn register_streams(&self, registry: &mut Registry) {
        let m = self.clone();

        registry.register(
            "pilot_xds_expired_nonce",
            "Requests with an outdated nonce",
            m.expired_nonces,
        );

        registry.register(
            "pilot_total_xds_internal_errors",
            "Streams that ended with an error",
            m.errors,
        );

        registry.register(
            "pilot_xds_recv_max",
            "Size of the largest request so far, in bytes",
            m.largest_request,
        );
        registry.register(
            "navarch_on_demand_clusters",
            "Clusters that sidecars with a learned scope have requested by name, again with each stream",
            m.on_demand,
        );
        registry.register_collector(Box::new(HistoryBytes(m.connections)));
        m.traffic.register(registry);
    }

    /// Sets the streams whose history is measured. Only the first call has an effect.
    pub(super) fn count_history_of(&self, connections: Arc<Connections>) {
        // All other metrics sum up the streams of servers that share them, too.
        let _ = self.connections.set(connections);
    }

    /// Sets the cache of encoded responses that is measured. Only the first call has an effect.
    pub(super) fn measure(&self, cache: Arc<EncodingCache>) {
        self.traffic.measure(cache);
    }

    /// Counts clusters that a sidecar with a learned scope has requested.
    pub(super) fn requested_on_demand(&self, clusters: usize) {
        self.on_demand
            .inc_by(u64::try_from(clusters).unwrap_or(u64::MAX));
    }

    /// Counts a response that was handed to HTTP/2 by its bytes on the wire.
    pub(super) fn sent(&self, encoding: Option<Encoding>, bytes: usize) {
        self.traffic.sent(encoding, bytes);
    }

    /// Counts a proxy that connected. Returns the version label under which it is counted.
    pub(super) fn connected(&self, version: &str) -> Arc<str> {
        let mut versions = self.versions.lock();
        let known = version_label(version)
            .filter(|version| versions.len() < MAX_VERSIONS || versions.contains_key(*version));
        let version: Arc<str> = Arc::from(known.unwrap_or(UNKNOWN));
        let count = versions.entry(version.clone()).or_default();
        *count += 1;
        self.connected
            .get_or_create(&VersionLabel {
                version: version.clone().into(),
            })
            .set(*count);
        version
    }

    /// Removes a disconnected proxy from the count of this version label.
    pub(super) fn disconnected(&self, version: &Arc<str>) {
        let mut versions = self.versions.lock();
        let label = VersionLabel {
            version: version.clone().into(),
        };
        match versions.get_mut(version) {
            Some(count) if *count > 1 => {
                *count -= 1;
                self.connected.get_or_create(&label).set(*count);
            }
            Some(_) | None => {
                versions.remove(version);
                self.connected.remove(&label);
            }
        }
    }

    /// Records a response that was handed to HTTP/2, with its size before compression.
    pub(super) fn pushed(&self, resource_type: ResourceType, bytes: usize, took: Duration) {
        let place = ResourceType::ALL
            .iter()
            .position(|other| *other == resource_type);
        let Some(slot) = place.and_then(|place| self.responses.get(place)) else {
            return;
        };

        let responses = slot.get_or_init(|| {
            let label = TypeLabel {
                r#type: resource_type.short_name(),
            };
            Responses {
                pushes: self.pushes.get_or_create(&label).clone(),
                push_time: self.push_time.get_or_create(&label).clone(),
                size: self
                    .size
                    .get_or_create(&TypeLabel {
                        r#type: resource_type.type_url(),
                    })
                    .clone(),
            }
        });

        responses.pushes.inc();
        responses.push_time.observe(took.as_secs_f64());
        responses
            .size
            .observe(u32::try_from(bytes).map_or(f64::from(u32::MAX), f64::from));
    }

    /// Records how long a response waited for HTTP/2 flow control.
    pub(super) fn waited(&self, time: Duration) {
        self.send_time.observe(time.as_secs_f64());
    }

    /// Records the time from the computation of a change until a proxy was sent all of it.
    pub(super) fn converged(&self, after: Duration) {
        self.convergence.observe(after.as_secs_f64());
    }

    /// Records the time from the computation of a change until a proxy's stream received it.
    pub(super) fn observe_queue_time(&self, after: Duration) {
        self.queue.observe(after.as_secs_f64());
    }

    /// Counts a rejected response. The returned label must be passed to [`Metrics::forget`] when
    /// the proxy disconnects.
    pub(super) fn rejected(
        &self,
        resource_type: ResourceType,
        node: &Arc<str>,
        code: i32,
    ) -> RejectLabel {
        self.rejects
            .get_or_create(&TypeLabel {
                r#type: resource_type.short_name(),
            })
            .inc();

        let node = if is_name(node) {
            node.clone()
        } else {
            Arc::from(UNKNOWN)
        };

        let label = RejectLabel {
            node: node.into(),
            err: format!("{:?}", Code::from_i32(code)).into(),
        };
        if let Some(family) = self.rejections_of(resource_type) {
            family.get_or_create(&label).inc();
        }

        label
    }

    /// Removes the rejections of a proxy.
    pub(super) fn forget(&self, resource_type: ResourceType, label: &RejectLabel) {
        if let Some(family) = self.rejections_of(resource_type) {
            family.remove(label);
        }
    }

    /// Counts a request with an outdated nonce.
    pub(super) fn expired(&self, resource_type: ResourceType) {
        self.expired_nonces
            .get_or_create(&TypeLabel {
                r#type: resource_type.short_name(),
            })
            .inc();
    }

    /// Counts a stream that ended with an error.
    pub(super) fn failed(&self) {
        self.errors.inc();
    }

    /// Records the size of a request.
    pub(super) fn received(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.largest_request
            .inner()
            .fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
    }

    /// The gauge for rejections of a type. Istio has none for the rarer types.
    fn rejections_of(&self, resource_type: ResourceType) -> Option<&Family<RejectLabel, Gauge>> {
        match resource_type {
            ResourceType::Cluster => Some(&self.rejected_clusters),
            ResourceType::Endpoint => Some(&self.rejected_endpoints),
            ResourceType::Listener => Some(&self.rejected_listeners),
            ResourceType::Route => Some(&self.rejected_routes),
            ResourceType::VirtualHost
            | ResourceType::Secret
            | ResourceType::ExtensionConfig
            | ResourceType::NameTable
            | ResourceType::ProxyConfig
            | ResourceType::Bootstrap
            | ResourceType::Locality
            | ResourceType::ObjectStatus
            | ResourceType::Address
            | ResourceType::Workload
            | ResourceType::Authorization
            | ResourceType::Object(_) => None,
        }
    }
}

/// A version as a label value, or `None` if it is invalid. The value comes from the proxy and stays
/// in the metrics while it is connected.
fn version_label(version: &str) -> Option<&str> {
    let (version, _) = version.split_at(version.floor_char_boundary(MAX_VERSION_BYTES));
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || matches!(sign, b'.' | b'+' | b'-');
    Some(version).filter(|version| !version.is_empty() && version.bytes().all(is_sign))
}

/// Whether a text is a possible `<pod>.<namespace>`.
fn is_name(text: &str) -> bool {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || matches!(sign, b'.' | b'-' | b'_');
    text.len() <= MAX_NAME_BYTES && text.bytes().all(is_sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn proxy_metric_labels_are_bounded_and_removed_with_proxies() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let rows = || {
            text(&registry)
                .lines()
                .filter(|line| line.starts_with("pilot_xds{"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };

        let strange =
            ["", "1.30\n", "v 1", "\"", "1.30.0-ä"].map(|version| metrics.connected(version));
        assert_eq!(rows(), ["pilot_xds{version=\"unknown\"} 5"]);
        let long = metrics.connected(&"9".repeat(1 << 20));
        assert_eq!(long.len(), MAX_VERSION_BYTES);
        let many: Vec<Arc<str>> = (0..10 * MAX_VERSIONS)
            .map(|number| metrics.connected(&format!("1.{number}")))
            .collect();

        assert_eq!(rows().len(), MAX_VERSIONS);
        strange
            .iter()
            .chain([&long])
            .chain(&many)
            .for_each(|version| metrics.disconnected(version));
        assert!(rows().is_empty() && metrics.versions.lock().is_empty());
        let label = metrics.rejected(ResourceType::Cluster, &Arc::from("x".repeat(1 << 20)), 3);
        assert_eq!(label.node.as_str(), UNKNOWN);
    }

    #[test]
    fn names_are_istios_to_the_letter() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let node: Arc<str> = Arc::from("web.shop");
        metrics.pushed(ResourceType::Cluster, 5, Duration::ZERO);
        let label = metrics.rejected(ResourceType::Listener, &node, 13);
        metrics.connected("1.30.0");
        let written = text(&registry);

        for line in [
            "# TYPE pilot_xds_pushes counter",
            "pilot_xds_pushes{type=\"cds\"} 1",
            "pilot_total_xds_rejects{type=\"lds\"} 1",
            "pilot_xds_lds_reject{node=\"web.shop\",err=\"Internal\"} 1",
            "pilot_xds{version=\"1.30.0\"} 1",
            "pilot_total_xds_internal_errors 0",
        ] {
            assert!(
                written.lines().any(|found| found == line),
                "{line} in\n{written}"
            );
        }

        metrics.forget(ResourceType::Listener, &label);
        assert!(!text(&registry).contains("web.shop"));
    }
}

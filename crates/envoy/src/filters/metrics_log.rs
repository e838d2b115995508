//! The access logs from which the agent computes the metrics of Istio's filter, for Envoys without
//! it.
//!
//! The agent announces support in node metadata. The name of the log determines what is counted;
//! values that entries do not contain are in tags: the endpoint, the services of the cluster,
//! identities in certificates, and values of expressions, which Envoy evaluates.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use navarch_proto::envoy::config::accesslog::v3::{AccessLog, AccessLogFilter, LogTypeFilter};
use navarch_proto::envoy::data::accesslog::v3::AccessLogType;
use navarch_proto::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::TcpAccessLogOptions;
use navarch_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use navarch_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_kind};
use navarch_proto::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use navarch_proto::stats::MetricConfig;

use super::access_logger::{grpc_destination, log};
use super::class::ListenerClass;
use super::peer_attribute;
use super::provider::ProviderCluster;
use super::telemetry::{self, Counting, CountingProvider, MetricsOf};
use crate::hbone;
use crate::policy::PolicyService;
use navarch_api::duration::Duration;
use navarch_api::validation::check_cel;
use navarch_base::metrics_log::{
    BAGGAGE_TAG, CLUSTER, CLUSTER_TAG, LabelValue, MetricChange, MetricsLog, NODE_KEY, OWN_TAG,
    PEER_TAG, PeerAttribute, PeerField, Reporter, SERVICES_TAG, VALUE_TAG, WORKLOAD_TAG,
};
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;

/// Default interval at which open connections are reported, as by Istio's filter.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Buffer size in bytes at which Envoy sends entries; it also sends them every second.
const BUFFER: u32 = 64 << 10;
/// The filter state object of the gRPC stats filter.
const GRPC_STATS: &str = "envoy.filters.http.grpc_stats";
/// Events of connections other than their end.
const INTERMEDIATE: [AccessLogType; 3] = [
    AccessLogType::TcpUpstreamConnected,
    AccessLogType::TcpPeriodic,
    AccessLogType::TcpConnectionStart,
];

/// The logs of the listeners of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MetricsLogsOf {
    pub(super) class: ListenerClass,
    /// The service of the listeners, at its waypoint.
    pub(super) service: Option<PolicyService>,
}

/// The logs by place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MetricsLogs {
    /// For HTTP connection managers.
    pub(super) http: Vec<AccessLog>,
    /// For TCP proxies.
    pub(super) tcp: Vec<AccessLog>,
    /// When TCP proxies write logs, besides at the end; set if there is a log for them.
    pub(super) tcp_options: Option<TcpAccessLogOptions>,
}

impl Query for MetricsLogsOf {
    type Value = MetricsLogs;

    fn compute(&self, view: &View<'_>) -> MetricsLogs {
        let mut logs = MetricsLogs::default();
        if !are_taken(view) {
            return logs;
        }

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

            let common = common(view, self, counting);
            let headers = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            logs.http.push(log(
                "envoy.access_loggers.http_grpc",
                &HttpGrpcAccessLogConfig {
                    common_config: Some(CommonGrpcAccessLogConfig {
                        filter_state_objects_to_log: vec![GRPC_STATS.to_owned()],
                        ..common.clone()
                    }),
                    additional_request_headers_to_log: headers(&["content-type"]),
                    additional_response_headers_to_log: headers(&["grpc-status"]),
                    additional_response_trailers_to_log: headers(&["grpc-status"]),
                },
            ));

            logs.tcp.push(log(
                "envoy.access_loggers.tcp_grpc",
                &TcpGrpcAccessLogConfig {
                    common_config: Some(with_cluster(common, self.class)),
                },
            ));

            logs.tcp_options = Some(TcpAccessLogOptions {
                access_log_flush_interval: Some(
                    counting.interval.unwrap_or(REPORT_INTERVAL).to_proto(),
                ),
                // A server's proxy connects to the application before the client has sent its
                // certificate.
                flush_access_log_on_connected: reporter_of(view, self.class)
                    != Reporter::Destination,
                flush_access_log_on_start: false,
            });
        }

        logs
    }
}

/// Whether the proxy's agent computes metrics from logs.
pub(crate) fn are_taken(view: &View<'_>) -> bool {
    let proxy = view.proxy();
    match proxy.kind() {
        ProxyKind::Sidecar | ProxyKind::Router | ProxyKind::Waypoint => {}
        ProxyKind::Ztunnel | ProxyKind::AgentGateway => return false,
    }
    proxy.meta(NODE_KEY).as_deref() == Some("true")
        && !proxy.supports("envoy.filters.http.istio_stats")
        && proxy.supports("envoy.access_loggers.http_grpc")
}

/// The side of the listeners of a class.
fn reporter_of(view: &View<'_>, class: ListenerClass) -> Reporter {
    match class {
        _ if view.proxy().kind() == ProxyKind::Waypoint => Reporter::Waypoint,
        ListenerClass::SidecarInbound => Reporter::Destination,
        ListenerClass::SidecarOutbound | ListenerClass::Gateway => Reporter::Source,
    }
}

/// The filter that restricts a user's log to the end of connections.
pub(super) fn at_end() -> AccessLogFilter {
    let types = INTERMEDIATE.into_iter().map(i32::from).collect();
    AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::LogTypeFilter(LogTypeFilter {
            types,
            exclude: true,
        })),
    }
}

/// The log destination, its content and its name.
fn common(view: &View<'_>, logs: &MetricsLogsOf, counting: &Counting) -> CommonGrpcAccessLogConfig {
    let reporter = reporter_of(view, logs.class);
    let mut tags = vec![of_metadata(
        SERVICES_TAG,
        metadata_kind::Kind::Cluster(metadata_kind::Cluster {}),
    )];

    if reporter != Reporter::Destination {
        tags.push(of_metadata(
            WORKLOAD_TAG,
            metadata_kind::Kind::Host(metadata_kind::Host {}),
        ));
    }

    if reporter == Reporter::Source {
        tags.push(formatted(PEER_TAG, "%UPSTREAM_PEER_URI_SAN%".to_owned()));
        tags.push(formatted(OWN_TAG, "%UPSTREAM_LOCAL_URI_SAN%".to_owned()));
    } else if reporter == Reporter::Waypoint || hbone::is_taken_by_sidecar(view) {
        let state = [
            (PEER_TAG, hbone::PEER_PRINCIPAL),
            (OWN_TAG, hbone::LOCAL_PRINCIPAL),
            (BAGGAGE_TAG, hbone::BAGGAGE),
        ];
        tags.extend(state.map(|(tag, key)| formatted(tag, format!("%FILTER_STATE({key}:PLAIN)%"))));
    }

    let mut values = Values {
        view,
        service: logs.service.as_ref(),
        tags: BTreeMap::new(),
    };
    let changes = counting.metrics.iter().map(|metric| values.change(metric));

    let name = MetricsLog {
        reporter,
        host_names_service: logs.class == ListenerClass::SidecarOutbound,
        finds_peers: reporter == Reporter::Destination,
        metrics: changes.collect(),
    }
    .to_name();
    tags.extend(
        values
            .tags
            .into_iter()
            .map(|(expression, tag)| formatted(&tag, format!("%CEL({expression})%"))),
    );

    let cluster = ProviderCluster {
        host: String::new(),
        cluster: CLUSTER.to_owned(),
    };
    CommonGrpcAccessLogConfig {
        buffer_size_bytes: Some(BUFFER),
        custom_tags: tags,
        ..grpc_destination(&name, &cluster, &[])
    }
}

/// The log of TCP connections: that of clients and gateways names the cluster, by which they may
/// close a connection.
fn with_cluster(
    mut common: CommonGrpcAccessLogConfig,
    class: ListenerClass,
) -> CommonGrpcAccessLogConfig {
    match class {
        ListenerClass::SidecarOutbound | ListenerClass::Gateway => {
            // Without `_RAW` it would be the name in statistics, which ends in a semicolon.
            let cluster = formatted(CLUSTER_TAG, "%UPSTREAM_CLUSTER_RAW%".to_owned());
            common.custom_tags.push(cluster);
        }
        ListenerClass::SidecarInbound => {}
    }
    common
}

/// The expressions in entries, each with its tag.
struct Values<'a> {
    view: &'a View<'a>,
    /// The service of the listeners, at its waypoint.
    service: Option<&'a PolicyService>,
    tags: BTreeMap<String, String>,
}

impl Values<'_> {
    /// The changes of a metric.
    fn change(&mut self, metric: &MetricConfig) -> MetricChange {
        let mut change = MetricChange {
            name: metric.name.clone(),
            drop: metric.drop,
            remove: metric.tags_to_remove.clone(),
            ..MetricChange::default()
        };

        for (label, expression) in &metric.dimensions {
            let expression = expression.trim();
            if let Some(attribute) = peer_attribute::of_expression(expression) {
                self.check_exchanged(label, expression, &attribute);
                change.peers.insert(label.clone(), attribute);
            } else if let Some(value) = self.of(label, expression) {
                change.set.insert(label.clone(), value);
            }
        }

        change
    }

    /// Warns of a label of a peer that proxies do not exchange.
    fn check_exchanged(&self, label: &str, expression: &str, attribute: &PeerAttribute) {
        let PeerField::Label(name) = &attribute.field else {
            return;
        };
        let settings = &self.view.mesh().settings;
        let mut exchanged = settings.metadata_exchange_labels.split(',');
        if !exchanged.any(|known| known == name) {
            let fault = format!("is unknown: PILOT_MX_ADDITIONAL_LABELS does not list {name:?}");
            self.warn(label, expression, &fault);
        }
    }

    /// Warns of a label, with the Telemetry that sets it.
    fn warn(&self, label: &str, expression: &str, fault: &str) {
        let telemetry = telemetry::setting_label(self.view, self.service, label, expression);
        let name = telemetry.map_or_else(String::new, |name| format!(" {name}"));
        let remark = format!("Telemetry{name}: the tag override {label:?} {fault}");
        self.view.remark(remark);
    }

    /// The value of a label; `None` if Envoy could not evaluate it.
    fn of(&mut self, label: &str, expression: &str) -> Option<LabelValue> {
        if let Some(text) = plain_text(expression) {
            return Some(LabelValue::Literal(text.to_owned()));
        }

        // The command ends with these characters, and must be on one line.
        let fits = !expression.contains(")%") && !expression.contains(['\n', '\r']);
        let checked = check_cel(expression).map_err(|fault| fault.to_string());
        let checked = checked.and_then(|()| match fits {
            true => Ok(()),
            false => Err("it contains a line break or the characters )%".to_owned()),
        });

        if let Err(fault) = checked {
            self.warn(label, expression, &format!("is ignored: {fault}"));
            return None;
        }

        if peer_attribute::mentions_peer(expression) {
            let fault = "is computed without the peer, of which this Envoy has no filter state: \
                         only an attribute alone is supported, such as filter_state.upstream_peer.app, \
                         and neither its name nor its type";
            self.warn(label, expression, fault);
        }

        let next = self.tags.len();
        let tag = self
            .tags
            .entry(expression.to_owned())
            .or_insert_with(|| format!("{VALUE_TAG}{next}"));

        Some(LabelValue::Tag(tag.clone()))
    }
}

/// The string literal of an expression that is nothing else.
fn plain_text(expression: &str) -> Option<&str> {
    let quote = expression
        .chars()
        .next()
        .filter(|quote| matches!(quote, '\'' | '"'))?;
    let inner = expression.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains([quote, '\\', '\n'])).then_some(inner)
}

/// A tag with the value of its name in Istio's metadata.
fn of_metadata(name: &str, kind: metadata_kind::Kind) -> CustomTag {
    let segment = PathSegment {
        segment: Some(path_segment::Segment::Key(name.to_owned())),
    };
    let metadata = custom_tag::Metadata {
        kind: Some(MetadataKind { kind: Some(kind) }),
        metadata_key: Some(MetadataKey {
            key: "istio".to_owned(),
            path: vec![segment],
        }),
        ..custom_tag::Metadata::default()
    };
    CustomTag {
        tag: name.to_owned(),
        r#type: Some(custom_tag::Type::Metadata(metadata)),
    }
}

/// A tag with a formatted value.
fn formatted(name: &str, format: String) -> CustomTag {
    CustomTag {
        tag: name.to_owned(),
        r#type: Some(custom_tag::Type::Value(format)),
    }
}

#[cfg(test)]
mod tests {
    use navarch_api::settings::Settings;
    use navarch_base::metrics_log::Peer;
    use navarch_proto::envoy::config::accesslog::v3::access_log::ConfigType;
    use prost::Message;

    use super::*;
    use crate::test_mesh::TestMesh;

    /// The requests' changes in the log of a client, and the remarks, with these tag overrides and
    /// exchanged labels.
    fn translated(overrides: &str, exchanged: &str) -> (MetricChange, String) {
        let telemetry = format!(
            "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\n\
             metadata: {{name: extra, namespace: shop}}\n\
             spec: {{metrics: [{{providers: [{{name: prometheus}}], \
             overrides: [{{match: {{metric: REQUEST_COUNT}}, tagOverrides: {{{overrides}}}}}]}}]}}\n"
        );
        let settings = Settings {
            metadata_exchange_labels: exchanged.to_owned(),
            ..Settings::default()
        };
        let mut mesh = TestMesh::with_settings(&telemetry, settings);
        mesh.mesh_config("{}");
        let client = mesh.with_agent_metrics("sidecar", "shop");
        let logs = mesh.query(
            client,
            &MetricsLogsOf {
                class: ListenerClass::SidecarOutbound,
                service: None,
            },
        );

        let Some(ConfigType::TypedConfig(config)) = &logs.http[0].config_type else {
            panic!("{logs:?}")
        };
        let config = HttpGrpcAccessLogConfig::decode(config.value.as_slice()).unwrap();
        let name = config.common_config.unwrap().log_name;
        let changes = MetricsLog::from_name(&name).unwrap().metrics;
        let [change] = changes.as_slice() else {
            panic!("{changes:?}")
        };
        (change.clone(), mesh.remarks().join("\n"))
    }

    #[test]
    fn an_attribute_of_a_peer_is_left_to_the_agent() {
        let overrides = "up: {value: \"filter_state.upstream_peer.labels['tier']\"}, \
                         down: {value: filter_state.downstream_peer.app}, \
                         path: {value: request.url_path}";
        let (change, remarks) = translated(overrides, "app,tier");
        let attribute = |peer, field| PeerAttribute { peer, field };
        let tier = PeerField::Label("tier".to_owned());
        assert_eq!(
            change.peers,
            BTreeMap::from([
                (
                    "down".to_owned(),
                    attribute(Peer::Downstream, PeerField::App)
                ),
                ("up".to_owned(), attribute(Peer::Upstream, tier)),
            ])
        );
        let path = LabelValue::Tag("value.0".to_owned());
        assert_eq!(change.set, BTreeMap::from([("path".to_owned(), path)]));
        assert_eq!(remarks, "");

        let (_, remarks) = translated(overrides, "app");
        assert_eq!(
            remarks,
            "Telemetry shop/extra: the tag override \"up\" is unknown: \
             PILOT_MX_ADDITIONAL_LABELS does not list \"tier\""
        );
    }

    #[test]
    fn clients_and_gateways_name_the_cluster_of_a_connection() {
        let telemetry = "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\n\
                         metadata: {name: all, namespace: shop}\n\
                         spec: {metrics: [{providers: [{name: prometheus}]}]}\n";
        let mut mesh = TestMesh::new(telemetry);
        mesh.mesh_config("{}");

        for (kind, class, names_cluster) in [
            ("sidecar", ListenerClass::SidecarOutbound, true),
            ("router", ListenerClass::Gateway, true),
            ("sidecar", ListenerClass::SidecarInbound, false),
        ] {
            let proxy = mesh.with_agent_metrics(kind, "shop");
            let of_class = MetricsLogsOf {
                class,
                service: None,
            };
            let logs = mesh.query(proxy, &of_class);
            let Some(ConfigType::TypedConfig(config)) = &logs.tcp[0].config_type else {
                panic!("{logs:?}")
            };
            let config = TcpGrpcAccessLogConfig::decode(config.value.as_slice()).unwrap();
            let tags = config.common_config.unwrap().custom_tags;
            let named = tags.into_iter().find(|tag| tag.tag == "cluster");
            let expected =
                names_cluster.then(|| formatted("cluster", "%UPSTREAM_CLUSTER_RAW%".to_owned()));
            assert_eq!(named, expected, "{class:?}");
        }
    }

    #[test]
    fn an_expression_that_needs_filter_state_of_peers_is_reported() {
        let overrides = "pod: {value: filter_state.upstream_peer.name}";
        let (change, remarks) = translated(overrides, "");
        assert!(change.set.contains_key("pod") && change.peers.is_empty());
        let begin = "Telemetry shop/extra: the tag override \"pod\" is computed without the peer";
        assert!(remarks.starts_with(begin), "{remarks}");
    }

    #[test]
    fn a_text_alone_needs_no_expression() {
        for (expression, text) in [
            ("'a b'", Some("a b")),
            ("\"x\"", Some("x")),
            ("''", Some("")),
            ("'", None),
            ("'a' + 'b'", None),
            (r"'a\n'", None),
            ("request.host", None),
        ] {
            assert_eq!(plain_text(expression), text, "{expression}");
        }
    }
}

//! Envoy's metrics: which ones Envoy keeps, how names are split into tags, and the stats sinks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{BootstrapError, BootstrapInput, discovers_metadata, socket_address};
use navarch_api::duration::Duration;

/// Prefixes that are always included, because readiness depends on them.
const PREFIXES: [&str; 5] = [
    "cluster_manager",
    "listener_manager",
    "server",
    "cluster.xds-grpc",
    "wasm",
];
/// Suffixes that are always included.
const SUFFIXES: [&str; 4] = [
    "rbac.allowed",
    "rbac.denied",
    "shadow_allowed",
    "shadow_denied",
];
/// The suffix of the gauge by which the agent counts connections during drain.
const ACTIVE_CONNECTIONS: &str = "downstream_cx_active";
/// Pattern that is always included: metrics of a VirtualService's `stat_prefix`.
const PATTERN: &str = r"vhost\..*\.route\..*";
/// In an inclusion rule: each of the pod's IPs.
const POD_IP: &str = "{pod_ip}";
/// The longest text of an IP address.
const MAX_IP_LENGTH: usize = 45;
/// What an entry costs besides its text.
const ENTRY_SIZE: usize = 64;

/// Tags before the user's tags, each with its pattern.
const TAGS_BEFORE: [(&str, &str); 9] = [
    ("cluster_name", r"^cluster(\.(.+);)"),
    (
        "http_conn_manager_prefix",
        r"^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)",
    ),
    ("thread_name", r"^server(\.(.+))\.watchdog"),
    ("tcp_prefix", r"^tcp\.((.*?)\.)\w+?$"),
    ("response_code", r"_rq(_(\d{3}))$"),
    ("response_code_class", r"_rq(_(\dxx))$"),
    (
        "http_conn_manager_listener_prefix",
        r"^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)",
    ),
    (
        "listener_address",
        r"^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)",
    ),
    (
        "mongo_prefix",
        r"^mongo\.(.+?)\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$",
    ),
];

/// Tags after the user's tags.
const TAGS_AFTER: [(&str, &str); 7] = [
    ("cache", r"(cache\.(.+?)\.)"),
    ("component", r"(component\.(.+?)\.)"),
    ("tag", r"(tag\.(.+?);\.)"),
    ("wasm_filter", r"(wasm_filter\.(.+?)\.)"),
    ("authz_enforce_result", r"rbac(\.(allowed|denied))"),
    ("authz_dry_run_action", r"(\.istio_dry_run_(allow|deny)_)"),
    ("authz_dry_run_result", r"(\.shadow_(allowed|denied))"),
];

/// The stats config: tags and inclusion rules.
pub(super) fn config(input: &BootstrapInput<'_>) -> Value {
    let tag = |(name, regex): (&str, &str)| json!({ "tag_name": name, "regex": regex });
    let extra = extra_tags(input);
    let extra = extra
        .iter()
        .map(|tag| json!({ "tag_name": tag, "regex": format!(r"({tag}=\.=(.*?);\.;)") }));
    let tags: Vec<_> = TAGS_BEFORE
        .into_iter()
        .map(tag)
        .chain(extra)
        .chain(TAGS_AFTER.into_iter().map(tag))
        .collect();

    let mut config = Map::new();
    config.insert("use_all_default_tags".to_owned(), false.into());
    config.insert("stats_tags".to_owned(), tags.into());
    let buckets = histogram_buckets(input);
    if !buckets.is_empty() {
        config.insert("histogram_bucket_settings".to_owned(), buckets.into());
    }

    config.insert(
        "stats_matcher".to_owned(),
        json!({ "inclusion_list": { "patterns": patterns(input) } }),
    );

    Value::Object(config)
}

/// The user's additional tags, without duplicates.
pub(super) fn extra_tags(input: &BootstrapInput<'_>) -> Vec<String> {
    let annotated = annotation(input, "extraStatTags")
        .unwrap_or_default()
        .split(',');
    let all = input
        .config
        .extra_stat_tags
        .iter()
        .map(String::as_str)
        .chain(annotated);
    let mut seen = BTreeSet::new();
    all.filter(|tag| !tag.is_empty() && seen.insert(*tag))
        .map(str::to_owned)
        .collect()
}

/// The inclusion rules as matchers.
fn patterns(input: &BootstrapInput<'_>) -> Vec<Value> {
    let prefix = |text: String| json!({ "prefix": text });
    let discovery = discovers_metadata(input).then(|| "workload_discovery".to_owned());
    let first = ["reporter=".to_owned()]
        .into_iter()
        .chain(discovery)
        .chain(prefixes(input))
        .map(prefix);
    let suffixes = suffixes(input)
        .into_iter()
        .map(|text| json!({ "suffix": text }));
    let regexps = regexps(input)
        .into_iter()
        .map(|text| json!({ "safe_regex": { "regex": text } }));
    let last = ["component", "istio"].map(|text| prefix(text.to_owned()));
    first.chain(suffixes).chain(regexps).chain(last).collect()
}

/// The included prefixes.
pub(super) fn prefixes(input: &BootstrapInput<'_>) -> Vec<String> {
    let matcher = input.config.proxy_stats_matcher.as_ref();
    let configured = matcher.map_or(&[][..], |matcher| &matcher.inclusion_prefixes);
    included_stats(input, "statsInclusionPrefixes", configured, &PREFIXES)
}

/// The included suffixes.
pub(super) fn suffixes(input: &BootstrapInput<'_>) -> Vec<String> {
    let matcher = input.config.proxy_stats_matcher.as_ref();
    let configured = matcher.map_or(&[][..], |matcher| &matcher.inclusion_suffixes);
    let mut required = SUFFIXES.to_vec();
    if input.settings.exit_on_zero_active_connections {
        required.push(ACTIVE_CONNECTIONS);
    }
    included_stats(input, "statsInclusionSuffixes", configured, &required)
}

/// The included regular expressions.
pub(super) fn regexps(input: &BootstrapInput<'_>) -> Vec<String> {
    let matcher = input.config.proxy_stats_matcher.as_ref();
    let configured = matcher.map_or(&[][..], |matcher| &matcher.inclusion_regexps);
    included_stats(input, "statsInclusionRegexps", configured, &[PATTERN])
}

/// The size that the user's tags and inclusion rules have in the bootstrap, with [`ENTRY_SIZE`] for
/// each of them: computed without making them.
pub(super) fn size(input: &BootstrapInput<'_>) -> usize {
    let tags: usize = extra_tags(input)
        .iter()
        .map(|tag| tag.len().saturating_add(ENTRY_SIZE))
        .sum();

    let matcher = input.config.proxy_stats_matcher.as_ref();
    let prefixes = matcher.map_or(&[][..], |matcher| &matcher.inclusion_prefixes);
    let suffixes = matcher.map_or(&[][..], |matcher| &matcher.inclusion_suffixes);
    let regexps = matcher.map_or(&[][..], |matcher| &matcher.inclusion_regexps);

    [
        ("statsInclusionPrefixes", prefixes),
        ("statsInclusionSuffixes", suffixes),
        ("statsInclusionRegexps", regexps),
    ]
    .into_iter()
    .flat_map(|(key, configured)| users_stats(input, key, configured))
    .map(|text| filled_size(text, input.addresses.0.len()))
    .fold(tags, usize::saturating_add)
}

/// The size of an inclusion rule for this many pod IPs.
fn filled_size(text: &str, addresses: usize) -> usize {
    let entry = text.len().saturating_add(ENTRY_SIZE);
    match text.matches(POD_IP).count() {
        0 => entry,
        uses => uses
            .saturating_mul(MAX_IP_LENGTH)
            .saturating_add(entry)
            .saturating_mul(addresses),
    }
}

/// Included stats from the annotation or proxy config, plus the required ones. Each pod IP replaces
/// `{pod_ip}`.
fn included_stats(
    input: &BootstrapInput<'_>,
    key: &str,
    configured: &[String],
    required: &[&str],
) -> Vec<String> {
    let fill = |text: &str| match text.contains(POD_IP) {
        true => input
            .addresses
            .0
            .iter()
            .map(|ip| text.replace(POD_IP, &ip.to_string()))
            .collect(),
        false => vec![text.to_owned()],
    };

    users_stats(input, key, configured)
        .into_iter()
        .chain(required.iter().copied())
        .flat_map(fill)
        .collect()
}

/// Included stats from the annotation or proxy config.
fn users_stats<'a>(
    input: &BootstrapInput<'a>,
    key: &str,
    configured: &'a [String],
) -> Vec<&'a str> {
    match annotation(input, key).filter(|text| !text.is_empty()) {
        Some(text) => text.split(',').collect(),
        None => configured.iter().map(String::as_str).collect(),
    }
}

/// Histogram buckets by prefix.
fn histogram_buckets(input: &BootstrapInput<'_>) -> Vec<Value> {
    let Some(text) = annotation(input, "statsHistogramBuckets") else {
        return Vec::new();
    };
    match serde_json::from_str::<BTreeMap<String, Vec<serde_json::Number>>>(text) {
        Ok(buckets) => buckets
            .into_iter()
            .map(|(prefix, buckets)| json!({ "match": { "prefix": prefix }, "buckets": buckets }))
            .collect(),
        Err(error) => {
            tracing::warn!(%error, "invalid annotation statsHistogramBuckets; ignored");
            Vec::new()
        }
    }
}

/// The flush and eviction intervals, if the annotations set them.
pub(super) fn intervals(input: &BootstrapInput<'_>) -> Map<String, Value> {
    let mut intervals = Map::new();
    let span = |key: &str| {
        let text = annotation(input, key)?;
        let span = Duration::parse(text).ok();
        if span.is_none() {
            tracing::warn!(
                annotation = key,
                value = text,
                "annotation is not a duration"
            );
        }
        span
    };

    let flush = span("statsFlushInterval");
    if let Some(flush) = flush {
        intervals.insert("stats_flush_interval".to_owned(), json!(flush));
    }

    let flush = flush.unwrap_or(Duration::from_secs(5));

    match span("statsEvictionInterval") {
        Some(eviction) if eviction.as_nanos().checked_rem(flush.as_nanos()) == Some(0) => {
            intervals.insert(
                "stats_eviction_interval".to_owned(),
                format!("{}s", eviction.as_secs()).into(),
            );
        }
        Some(_) => tracing::warn!("statsEvictionInterval is not a multiple of statsFlushInterval"),
        None => {}
    }

    intervals
}

/// The stats sinks.
pub(super) fn sinks(input: &BootstrapInput<'_>) -> Result<Option<Value>, BootstrapError> {
    let mut sinks = Vec::new();

    if metrics_service(input).is_some() {
        sinks.push(json!({
            "name": "envoy.stat_sinks.metrics_service",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig",
                "transport_api_version": "V3",
                "grpc_service": { "envoy_grpc": { "cluster_name": "envoy_metrics_service" } },
            },
        }));
    }

    if !input.config.statsd_udp_address.is_empty() {
        let address = socket_address(input, "statsd", &input.config.statsd_udp_address)?;
        sinks.push(json!({
            "name": "envoy.stat_sinks.statsd",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.config.metrics.v3.StatsdSink",
                "address": { "socket_address": address },
            },
        }));
    }

    Ok((!sinks.is_empty()).then(|| sinks.into()))
}

/// The address of the metrics service, if configured.
pub(super) fn metrics_service<'a>(input: &BootstrapInput<'a>) -> Option<&'a str> {
    let service = input
        .config
        .envoy_metrics_service
        .as_ref()
        .map(|service| service.address.as_str());
    let service = service.filter(|address| !address.is_empty());
    service
        .or(Some(input.config.envoy_metrics_service_address.as_str()))
        .filter(|address| !address.is_empty())
}

/// An annotation of the pod for the sidecar.
pub(super) fn annotation<'a>(input: &BootstrapInput<'a>, key: &str) -> Option<&'a str> {
    input
        .node
        .annotations
        .get(&format!("sidecar.istio.io/{key}"))
        .map(String::as_str)
}

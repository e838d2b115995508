//! Metrics providers and their settings.

use std::collections::{BTreeMap, BTreeSet};

use navarch_proto::stats::MetricConfig;

use super::{TelemetriesOf, names, side};
use crate::filters::class::ListenerClass;
use crate::filters::provider;
use crate::policy::PolicyService;
use navarch_api::duration::Duration;
use navarch_api::istio::{
    IstioMetric, MetricSelector, Metrics, MetricsOverrides, TagOperation, TagOverride,
    TelemetryMode,
};
use navarch_api::mesh::ExtensionProvider;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The metrics providers of the listeners of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::filters) struct MetricsOf {
    pub(in crate::filters) class: ListenerClass,
    /// The service of the listeners, at its waypoint.
    pub(in crate::filters) service: Option<PolicyService>,
}

/// One metrics provider.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::filters) struct CountingProvider {
    pub(in crate::filters) provider: ExtensionProvider,
    pub(in crate::filters) counting: Counting,
}

/// The metric settings of a provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::filters) struct Counting {
    /// Changed metrics, Istio's by their Prometheus names, others by their own.
    pub(in crate::filters) metrics: Vec<MetricConfig>,
    /// The reporting interval of open connections.
    pub(in crate::filters) interval: Option<Duration>,
}

/// The settings of one provider while levels are merged.
#[derive(Debug, Default)]
struct ProviderDraft<'a> {
    /// Whether metrics are disabled.
    disabled: bool,
    /// The reporting interval of open connections.
    interval: Option<Duration>,
    /// Changes, by the metric's name in the API; custom metrics by their own.
    changes: BTreeMap<&'a str, Change<'a>>,
}

/// A change to a metric.
#[derive(Debug, Default)]
struct Change<'a> {
    /// Whether the metric is disabled.
    disabled: bool,
    tags: BTreeMap<&'a str, &'a TagOverride>,
}

/// Istio's own metrics, in the order of their names in the API, with their names in Prometheus.
const METRICS: [(IstioMetric, &str); 10] = [
    (IstioMetric::GrpcRequestMessages, "request_messages_total"),
    (IstioMetric::GrpcResponseMessages, "response_messages_total"),
    (IstioMetric::RequestCount, "requests_total"),
    (
        IstioMetric::RequestDuration,
        "request_duration_milliseconds",
    ),
    (IstioMetric::RequestSize, "request_bytes"),
    (IstioMetric::ResponseSize, "response_bytes"),
    (
        IstioMetric::TcpClosedConnections,
        "tcp_connections_closed_total",
    ),
    (
        IstioMetric::TcpOpenedConnections,
        "tcp_connections_opened_total",
    ),
    (IstioMetric::TcpReceivedBytes, "tcp_received_bytes_total"),
    (IstioMetric::TcpSentBytes, "tcp_sent_bytes_total"),
];

impl Query for MetricsOf {
    type Value = Vec<CountingProvider>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mesh = &view.mesh().config;
        let telemetries = view.get(&TelemetriesOf {
            service: self.service.clone(),
        });
        let entries: Vec<&Metrics> = telemetries
            .iter()
            .flat_map(|object| &object.spec.metrics)
            .collect();

        let defaults: Vec<&str> = mesh
            .default_providers
            .metrics
            .iter()
            .map(String::as_str)
            .collect();

        let merged = merge(&entries, &defaults, side(self.class));
        let known = merged.into_iter().filter_map(|(name, counting)| {
            let provider = provider::find(&mesh.extension_providers, name)?.clone();
            Some(CountingProvider { provider, counting })
        });

        known.collect()
    }
}

/// Merges entries over the defaults; disabled providers are omitted. The last entry with providers
/// determines the list; settings of earlier entries for these still apply.
fn merge<'a>(
    entries: &[&'a Metrics],
    defaults: &[&'a str],
    side: TelemetryMode,
) -> BTreeMap<&'a str, Counting> {
    if entries.is_empty() {
        return defaults
            .iter()
            .map(|name| (*name, Counting::default()))
            .collect();
    }

    let last_named = entries
        .iter()
        .rev()
        .map(|entry| names(&entry.providers))
        .find(|named| !named.is_empty());
    let in_force: BTreeSet<&str> = last_named
        .unwrap_or_else(|| defaults.to_vec())
        .into_iter()
        .collect();
    let mut drafts: BTreeMap<&str, ProviderDraft<'_>> = BTreeMap::new();
    let mut inherited: Vec<&str> = defaults.to_vec();

    for entry in entries {
        let named = names(&entry.providers);
        if !named.is_empty() {
            inherited = named;
        }

        for name in inherited
            .iter()
            .copied()
            .filter(|name| in_force.contains(name))
        {
            let draft = drafts.entry(name).or_default();
            draft.interval = entry.reporting_interval.or(draft.interval);
            for change in entry
                .overrides
                .iter()
                .filter(|change| is_for(change.matches.as_ref(), side))
            {
                draft.apply(change);
            }
        }
    }

    drafts
        .into_iter()
        .filter(|(_, draft)| !draft.disabled)
        .map(|(name, draft)| (name, draft.finish()))
        .collect()
}

/// Whether a change applies to a side.
fn is_for(selector: Option<&MetricSelector>, side: TelemetryMode) -> bool {
    selector.is_none_or(|selector| {
        selector.mode == TelemetryMode::ClientAndServer || selector.mode == side
    })
}

/// The metric of a selector. `None` means all.
fn selected(selector: Option<&MetricSelector>) -> Option<&str> {
    let selector = selector?;
    if let Some(custom) = &selector.custom_metric {
        // A custom metric may also be the API name of a metric.
        return Some(custom);
    }
    METRICS
        .iter()
        .find(|(metric, _)| Some(*metric) == selector.metric)
        .map(|(metric, _)| metric.as_str())
}

impl<'a> ProviderDraft<'a> {
    /// Applies an override to earlier ones.
    fn apply(&mut self, change: &'a MetricsOverrides) {
        let selected = selected(change.matches.as_ref());
        if selected.is_none() && change.disabled == Some(true) {
            self.disabled = true;
            return;
        }

        self.disabled = false;
        let all = METRICS
            .iter()
            .map(|(metric, _)| metric.as_str())
            .filter(|_| selected.is_none());
        for name in all.chain(selected) {
            let metric = self.changes.entry(name).or_default();
            metric.disabled = change.disabled.unwrap_or(metric.disabled);
            metric.tags.extend(
                change
                    .tag_overrides
                    .iter()
                    .map(|(tag, value)| (tag.as_str(), value)),
            );
        }
    }

    /// The settings of the provider.
    fn finish(self) -> Counting {
        Counting {
            metrics: self
                .changes
                .into_iter()
                .map(|(name, change)| change.finish(prometheus_name(name)))
                .collect(),
            interval: self.interval,
        }
    }
}

/// The name of a metric in Prometheus.
fn prometheus_name(name: &str) -> &str {
    METRICS
        .iter()
        .find(|(metric, _)| metric.as_str() == name)
        .map_or(name, |(_, known)| known)
}

impl Change<'_> {
    /// The overrides of one metric for the provider.
    fn finish(self, name: &str) -> MetricConfig {
        let mut config = MetricConfig {
            name: name.to_owned(),
            drop: self.disabled,
            ..MetricConfig::default()
        };
        for (tag, change) in self.tags {
            match change.operation {
                TagOperation::Remove => config.tags_to_remove.push(tag.to_owned()),
                TagOperation::Upsert => {
                    _ = config
                        .dimensions
                        .insert(tag.to_owned(), change.value.clone())
                }
            }
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(json: &str) -> Metrics {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn disabled_metrics_stay_off_until_an_override() {
        let off = metrics(r#"{"overrides":[{"disabled":true}]}"#);
        let on = metrics(
            r#"{"overrides":[{"match":{"metric":"REQUEST_COUNT","mode":"SERVER"},"disabled":false}]}"#,
        );
        assert!(merge(&[&off], &["p"], TelemetryMode::Server).is_empty());
        let merged = merge(&[&off, &on], &["p"], TelemetryMode::Server);
        assert_eq!(
            merged["p"]
                .metrics
                .iter()
                .map(|metric| metric.name.as_str())
                .collect::<Vec<_>>(),
            ["requests_total"]
        );
        assert!(merge(&[&off, &on], &["p"], TelemetryMode::Client).is_empty());
    }

    #[test]
    fn tags_are_laid_over_each_other() {
        let wide = metrics(
            r#"{"overrides":[{"match":{"metric":"REQUEST_COUNT"},"tagOverrides":{"a":{"value":"1"},"b":{"operation":"REMOVE"}}}]}"#,
        );
        let narrow = metrics(
            r#"{"overrides":[{"match":{"metric":"REQUEST_COUNT"},"tagOverrides":{"b":{"value":"2"},"c":{"operation":"REMOVE"}}}]}"#,
        );
        let merged = merge(&[&wide, &narrow], &["p"], TelemetryMode::Client);
        let metric = &merged["p"].metrics[0];
        assert_eq!(
            metric
                .dimensions
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect::<Vec<_>>(),
            ["a=1", "b=2"]
        );
        assert_eq!(metric.tags_to_remove, ["c"]);
    }
}

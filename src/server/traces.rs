//! Starts traces of changes for an OpenTelemetry collector (`OTEL_*`). Without a collector there is
//! no task; the records that traces are made of are kept in any case.

use std::sync::Arc;

use navarch_otlp::{Config as TracesConfig, Metrics, attribute};
use navarch_push::worker::PushHandle;
use navarch_traces::{Follower, Parts};
use navarch_xds::connections::Connections;

use super::Config;
use super::boot::Boot;
use crate::admin::input_in_words;

/// Starts the task that creates and sends traces, if enabled.
pub(super) fn start(
    config: &Config,
    push: &PushHandle,
    connections: Arc<Connections>,
    boot: &mut Boot,
) {
    let Some(traces) = &config.traces else { return };
    let metrics = boot.register(Metrics::register);
    let endpoint = traces.endpoint.authority();
    let protocol = traces.protocol;
    tracing::info!(
        endpoint,
        ?protocol,
        "sending traces of changes (OTEL_EXPORTER_OTLP_ENDPOINT)"
    );

    if config.limits.push_history == 0 {
        tracing::warn!(
            "NAVARCH_PUSH_HISTORY=0: traces do not include responses and ACKs of proxies"
        );
    }

    let resource = resource(config, traces)
        .into_iter()
        .map(|(key, value)| attribute(&key, value))
        .collect();
    let (queue, exporter) = navarch_otlp::start(
        traces.clone(),
        resource,
        config.build.version,
        metrics.clone(),
    );

    let follower = Follower::new(Parts {
        push: push.clone(),
        connections,
        queue,
        metrics,
        sampler: traces.sampler,
        describe: input_in_words,
    });

    boot.spawn("traces", follower.run(boot.stop.clone()));
    boot.spawn("OTLP", exporter.run(boot.stop.clone()));
}

/// Resource attributes: the detected ones, overridden by the configured ones.
fn resource(config: &Config, traces: &TracesConfig) -> Vec<(String, String)> {
    let known = [
        ("service.name", "navarch"),
        ("service.version", config.build.version),
        ("service.instance.id", &*config.pod),
        ("k8s.pod.name", &*config.pod),
        (
            "k8s.namespace.name",
            config.settings.system_namespace.as_str(),
        ),
        ("k8s.cluster.name", config.settings.cluster_id.as_str()),
    ];
    let known = known
        .into_iter()
        .filter(|(key, value)| !value.is_empty() && !traces.resource.contains_key(*key));
    let known = known.map(|(key, value)| (key.to_owned(), value.to_owned()));
    known.chain(traces.resource.clone()).collect()
}

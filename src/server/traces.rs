//! Traces of changes for an OpenTelemetry collector (`OTEL_*`): each from the watch event to the
//! last ACK.
//!
//! The traced code itself is not instrumented: the push thread's records describe a push, and each
//! stream's response history describes its distribution. A task checks both twice a second while
//! changes are in progress, and creates the spans of a change once it is complete. Without a
//! collector there is no task; the records are kept in any case.

mod change;
mod open;
mod spans;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use navarch_otlp::{Config as TracesConfig, Ids, Metrics, Sampler, SpanQueue, attribute};
use navarch_push::worker::{Ended, PushHandle};
use navarch_xds::connections::Connections;
use tokio_util::sync::CancellationToken;

use self::change::TracedChange;
use self::open::OpenTrace;
use self::spans::Clock;
use super::Config;
use super::boot::{Boot, until};

/// Interval of the check while changes are in progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of changes that are followed at once.
const MAX_OPEN: usize = 128;

struct Follower {
    push: PushHandle,
    connections: Arc<Connections>,
    queue: SpanQueue,
    metrics: Metrics,
    sampler: Sampler,
    ids: Ids,
    /// The last processed revision.
    seen: u64,
    /// The changes that are followed, oldest first.
    open: VecDeque<OpenTrace>,
}

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

    let follower = Follower {
        push: push.clone(),
        connections,
        queue,
        metrics,
        sampler: traces.sampler,
        ids: Ids::default(),
        seen: 0,
        open: VecDeque::new(),
    };

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

impl Follower {
    /// Follows changes until shutdown; unfinished traces are then sent as they are.
    async fn run(mut self, stop: CancellationToken) -> Result<(), Ended> {
        let mut contexts = self.push.contexts();
        loop {
            if self.open.is_empty()
                && until(&stop, contexts.changed())
                    .await
                    .is_none_or(|changed| changed.is_err())
            {
                return Ok(());
            }
            let is_stopping = until(&stop, tokio::time::sleep(CHECK_INTERVAL))
                .await
                .is_none();
            self.take_changes().await?;
            self.look(is_stopping);
            if is_stopping {
                return Ok(());
            }
        }
    }

    /// Starts to follow new changes.
    async fn take_changes(&mut self) -> Result<(), Ended> {
        let seen = self.seen;
        let looked = self.push.inspect(move |inspect| {
            let oldest = inspect.pushes.front().map(|push| push.revision);
            let new = inspect.pushes.iter().filter(|push| push.revision > seen);
            (oldest, new.map(TracedChange::of).collect::<Vec<_>>())
        });
        let (oldest, changes) = looked.await?;

        if seen > 0 {
            self.metrics
                .missed(oldest.unwrap_or_default().saturating_sub(seen + 1));
        }

        for change in changes {
            self.seen = change.revision;
            let id = self.ids.trace();
            if !self.sampler.is_sampled(id) {
                continue;
            }
            if self.open.len() < MAX_OPEN {
                self.open.push_back(OpenTrace::new(id, change));
            } else {
                self.metrics.missed(1);
            }
        }

        Ok(())
    }

    /// Updates the progress of changes, and sends the traces of completed ones; at shutdown, of
    /// all.
    fn look(&mut self, is_end: bool) {
        let Some(first) = self.open.front().map(|trace| trace.change.revision) else {
            return;
        };
        self.open.iter_mut().for_each(OpenTrace::begin_count);
        self.connections.each_with_changes_since(first, |stream| {
            self.open.iter_mut().for_each(|trace| trace.see(&stream));
        });
        let clock = Clock::now();
        let (done, open) = self
            .open
            .drain(..)
            .partition::<VecDeque<_>, _>(|trace| is_end || trace.is_done(clock.steady));
        self.open = open;
        for trace in done {
            self.queue.offer(spans::of(&trace, &clock, &self.ids));
        }
    }
}

#[cfg(test)]
mod tests;

//! The queue of spans, and the task that exports them.

use std::sync::Arc;
use std::time::Duration;

use navarch_base::error_chain::chain;
use navarch_net::backoff::Backoff;
use navarch_proto::opentelemetry::proto::common::v1::{InstrumentationScope, KeyValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::collector::{Collector, SendError};
use crate::messages::{ExportTraceServiceRequest, Resource, ResourceSpans, ScopeSpans, Span};
use crate::metrics::{Metrics, SpanOutcome};
use crate::variables::{Batching, Config};

/// Maximum retry delay, also if a collector asks for a longer one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// Delays before a batch is sent again.
const RETRY_DELAYS: Backoff = Backoff::new(Duration::from_millis(500), MAX_RETRY_DELAY);
/// Maximum time to send the remaining spans at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// The sending half: accepts the spans of traces without waiting.
#[derive(Clone, Debug)]
pub struct SpanQueue {
    traces: mpsc::UnboundedSender<Waiting>,
    /// Limits the queue: a permit for each span that is neither sent nor dropped.
    room: Arc<Semaphore>,
    metrics: Metrics,
}

/// The spans of a trace, with their permits.
#[derive(Debug)]
struct Waiting {
    spans: Vec<Span>,
    room: OwnedSemaphorePermit,
}

/// The receiving half: sends the queued spans.
pub struct Exporter {
    traces: mpsc::UnboundedReceiver<Waiting>,
    collector: Collector,
    batching: Batching,
    /// Resource attributes of the process.
    resource: Vec<KeyValue>,
    scope: InstrumentationScope,
    metrics: Metrics,
    /// Whether the last batch failed, which has been logged.
    is_failing: bool,
}

/// A queue and its exporter. `resource` has the attributes of the process, `version` is the control
/// plane's release.
#[must_use]
pub fn start(
    config: Config,
    resource: Vec<KeyValue>,
    version: &str,
    metrics: Metrics,
) -> (SpanQueue, Exporter) {
    let (sender, traces) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(config.batching.queue));
    let queue = SpanQueue {
        traces: sender,
        room,
        metrics: metrics.clone(),
    };

    let scope = InstrumentationScope {
        name: "navarch".to_owned(),
        version: version.to_owned(),
        ..Default::default()
    };
    let batching = config.batching;
    let exporter = Exporter {
        traces,
        collector: Collector::new(config),
        batching,
        resource,
        scope,
        metrics,
        is_failing: false,
    };

    (queue, exporter)
}

impl SpanQueue {
    /// Queues all spans of a trace, or drops and counts all if the queue is full.
    pub fn offer(&self, spans: Vec<Span>) {
        let count = spans.len();
        let room = u32::try_from(count)
            .ok()
            .and_then(|count| self.room.clone().try_acquire_many_owned(count).ok());
        let sent = room.is_some_and(|room| self.traces.send(Waiting { spans, room }).is_ok());
        if !sent {
            self.metrics.count(SpanOutcome::QueueFull, count);
        }
    }
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter")
            .field("batching", &self.batching)
            .finish_non_exhaustive()
    }
}

impl Exporter {
    /// Sends until the queue is closed and empty; after `stop` is cancelled, for two seconds at
    /// most.
    pub async fn run(mut self, stop: CancellationToken) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        };
        tokio::select! {
            () = self.send_all(&stop) => {}
            () = late => tracing::warn!("the collector did not accept the last traces before shutdown; dropped"),
        }
    }

    /// Sends until the queue is closed and empty.
    async fn send_all(&mut self, stop: &CancellationToken) {
        while let Some(first) = self.traces.recv().await {
            let mut gathered = vec![first];
            let mut count = gathered
                .iter()
                .map(|waiting| waiting.spans.len())
                .sum::<usize>();
            let until = Instant::now() + self.batching.delay;

            while count < self.batching.batch {
                let Ok(Some(next)) = tokio::time::timeout_at(until, self.traces.recv()).await
                else {
                    break;
                };
                count += next.spans.len();
                gathered.push(next);
            }

            let (spans, room): (Vec<_>, Vec<_>) = gathered
                .into_iter()
                .map(|batch| (batch.spans, batch.room))
                .unzip();
            let spans: Vec<Span> = spans.into_iter().flatten().collect();
            for batch in spans.chunks(self.batching.batch) {
                self.send(batch, stop).await;
            }

            drop(room);
        }
    }

    /// Sends a batch, with retries.
    async fn send(&mut self, spans: &[Span], stop: &CancellationToken) {
        let request = self.request(spans);
        let until = Instant::now() + self.batching.timeout;
        let mut backoff = RETRY_DELAYS;

        loop {
            let error = match self.collector.send(&request).await {
                Ok(answer) => {
                    let rejected = answer.partial_success.unwrap_or_default();
                    return self.accepted(
                        spans.len(),
                        rejected.rejected_spans,
                        &rejected.error_message,
                    );
                }
                Err(error) => error,
            };

            let delay = backoff.next_delay();
            let wait = error.retry_after().unwrap_or(delay).min(MAX_RETRY_DELAY);
            let is_last = stop.is_cancelled() || Instant::now() + wait >= until;
            if is_last || !error.is_retryable() {
                return self.failed(spans.len(), &error);
            }

            tracing::debug!(error = chain(&error), "failed to send traces; retrying");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// The request for a batch.
    fn request(&self, spans: &[Span]) -> ExportTraceServiceRequest {
        let scope_spans = vec![ScopeSpans {
            scope: Some(self.scope.clone()),
            spans: spans.to_vec(),
        }];
        let resource = Some(Resource {
            attributes: self.resource.clone(),
        });
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource,
                scope_spans,
            }],
        }
    }

    /// The collector accepted a batch but rejected this many spans, for a reason.
    fn accepted(&mut self, all: usize, rejected: i64, reason: &str) {
        let rejected = usize::try_from(rejected).unwrap_or_default().min(all);
        self.metrics.count(SpanOutcome::Sent, all - rejected);
        self.metrics.count(SpanOutcome::Rejected, rejected);
        match (rejected, self.is_failing) {
            (0, true) => tracing::info!("sending traces works again"),
            (0, false) => {}
            (_, true) => return,
            (_, false) => tracing::warn!(rejected, reason, "the collector rejected some spans"),
        }
        self.is_failing = rejected > 0;
    }

    /// Drops a batch.
    fn failed(&mut self, spans: usize, error: &SendError) {
        self.metrics.count(SpanOutcome::Failed, spans);
        if !std::mem::replace(&mut self.is_failing, true) {
            let error = chain(error);
            tracing::warn!(
                error,
                spans,
                "failed to send traces (OTEL_EXPORTER_OTLP_ENDPOINT); spans are dropped until that works"
            );
        }
    }
}

#[cfg(test)]
mod tests;

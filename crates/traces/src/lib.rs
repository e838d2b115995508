//! Traces of changes: each from the watch event to the last ACK.
//!
//! ```text
//! push thread's records ──────▶ change ─┐
//! streams' response histories ──────────┴▶ open (a change in progress) ──complete──▶ spans ─▶ SpanQueue
//! ```
//!
//! The traced code itself is not instrumented: the push thread's records describe a push, and each
//! stream's response history describes its distribution. A [`Follower`] checks both twice a second
//! while changes are in progress, and creates the spans of a change once it is complete.

mod change;
mod open;
mod spans;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use navarch_otlp::{Ids, Metrics, Sampler, SpanQueue};
use navarch_push::fact::FactKey;
use navarch_push::worker::{Ended, PushHandle};
use navarch_xds::connections::Connections;
use tokio_util::sync::CancellationToken;

use change::TracedChange;
use open::OpenTrace;
use spans::Clock;

/// Interval of the check while changes are in progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of changes that are followed at once.
const MAX_OPEN: usize = 128;

/// Names an input that is not an object, such as the mesh config; `None` for all others.
pub type DescribeInput = fn(&FactKey) -> Option<String>;

/// What a [`Follower`] reads, and where its spans go.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The push thread, whose records are read.
    pub push: PushHandle,
    /// The streams, whose response histories are read.
    pub connections: Arc<Connections>,
    /// Sends the spans.
    pub queue: SpanQueue,
    /// Counts changes that were not followed.
    pub metrics: Metrics,
    /// Chooses the changes that are traced.
    pub sampler: Sampler,
    /// Names the inputs of a change without objects.
    pub describe: DescribeInput,
}

/// Follows changes, and creates their spans.
#[derive(Debug)]
pub struct Follower {
    parts: Parts,
    ids: Ids,
    /// The last processed revision.
    seen: u64,
    /// The changes that are followed, oldest first.
    open: VecDeque<OpenTrace>,
}

impl Follower {
    /// Follows no change yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            ids: Ids::default(),
            seen: 0,
            open: VecDeque::new(),
        }
    }

    /// Follows changes until `stop` is cancelled; unfinished traces are then sent as they are.
    ///
    /// # Errors
    /// If the push thread has stopped.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Ended> {
        let mut contexts = self.parts.push.contexts();
        loop {
            if self.open.is_empty()
                && stop
                    .run_until_cancelled(contexts.changed())
                    .await
                    .is_none_or(|changed| changed.is_err())
            {
                return Ok(());
            }

            let is_stopping = stop
                .run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL))
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
        let looked = self.parts.push.inspect(move |inspect| {
            let oldest = inspect.pushes.front().map(|push| push.revision);
            let new = inspect.pushes.iter().filter(|push| push.revision > seen);
            (oldest, new.map(TracedChange::of).collect::<Vec<_>>())
        });
        let (oldest, changes) = looked.await?;

        if seen > 0 {
            self.parts
                .metrics
                .missed(oldest.unwrap_or_default().saturating_sub(seen + 1));
        }

        for change in changes {
            self.seen = change.revision;
            let id = self.ids.trace();
            if !self.parts.sampler.is_sampled(id) {
                continue;
            }
            if self.open.len() < MAX_OPEN {
                self.open.push_back(OpenTrace::new(id, change));
            } else {
                self.parts.metrics.missed(1);
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
        self.parts
            .connections
            .each_with_changes_since(first, |stream| {
                self.open.iter_mut().for_each(|trace| trace.see(&stream));
            });
        let clock = Clock::now();
        let (done, open) = self
            .open
            .drain(..)
            .partition::<VecDeque<_>, _>(|trace| is_end || trace.is_done(clock.steady));
        self.open = open;
        for trace in done {
            let spans = spans::of(&trace, &clock, &self.ids, self.parts.describe);
            self.parts.queue.offer(spans);
        }
    }
}

#[cfg(test)]
mod tests;

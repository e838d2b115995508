//! An unfinished trace: the change and the proxies that it reaches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_otlp::TraceId;
use navarch_xds::change_progress::{ChangeProgress, ChangeResponse};
use tokio::time::Instant;

use super::change::TracedChange;

/// Maximum number of proxies in a trace: those that rejected the change, those that have not
/// answered, and the slowest.
const MAX_PROXIES: usize = 32;
/// Maximum number of responses per proxy.
const MAX_RESPONSES: usize = 16;
/// Timeout of answers: warming clusters and slow clients take seconds.
const ACK_TIMEOUT: Duration = Duration::from_secs(20);

/// A change in progress.
#[derive(Debug)]
pub(super) struct OpenTrace {
    pub(super) id: TraceId,
    pub(super) change: TracedChange,
    /// Some of the proxies that were sent it, by their streams' numbers.
    pub(super) proxies: BTreeMap<u64, ReachedProxy>,
    /// The counts of the last check.
    pub(super) counts: Counts,
    /// Whether something was unsent or unanswered at the previous check.
    was_waiting: bool,
}

/// Numbers of proxies by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Proxies that were sent the change.
    pub(super) sent: usize,
    /// Proxies that rejected a part of it.
    pub(super) rejected: usize,
    /// Proxies that have not answered everything.
    pub(super) unanswered: usize,
    /// Proxies with unsent parts.
    pub(super) unsent: usize,
}

/// A proxy that was sent the change.
#[derive(Clone, Debug)]
pub(super) struct ReachedProxy {
    /// `<pod>.<namespace>`.
    pub(super) name: Arc<str>,
    /// `<pod>.<namespace>-<number>`.
    pub(super) stream: Arc<str>,
    /// By their numbers.
    pub(super) responses: BTreeMap<u64, ChangeResponse>,
    outcome: ChangeOutcome,
}

/// The outcome of a change at a proxy, the worst last, with its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeOutcome {
    Taken(Duration),
    Unanswered(Duration),
    Rejected(Duration),
}

impl OpenTrace {
    pub(super) fn new(id: TraceId, change: TracedChange) -> Self {
        Self {
            id,
            change,
            proxies: BTreeMap::new(),
            counts: Counts::default(),
            was_waiting: true,
        }
    }

    /// Counts anew.
    pub(super) fn begin_count(&mut self) {
        self.was_waiting = self.is_waiting();
        self.counts = Counts::default();
    }

    /// Applies the state of one stream.
    pub(super) fn see(&mut self, stream: &ChangeProgress) {
        let revision = self.change.revision;
        self.counts.unsent += usize::from(stream.unsent.is_some_and(|first| first <= revision));
        let is_of = |response: &&ChangeResponse| {
            (response.changes[0]..=response.changes[1]).contains(&revision)
        };
        let began = self.change.began;
        let Some(outcome) = stream
            .responses
            .iter()
            .filter(is_of)
            .map(|response| outcome(response, began))
            .max()
        else {
            return;
        };

        self.counts.sent += 1;

        match outcome {
            ChangeOutcome::Taken(_) => {}
            ChangeOutcome::Unanswered(_) => self.counts.unanswered += 1,
            ChangeOutcome::Rejected(_) => self.counts.rejected += 1,
        }

        if !self.proxies.contains_key(&stream.number) && !self.has_room_for(outcome) {
            return;
        }

        let reached = self
            .proxies
            .entry(stream.number)
            .or_insert_with(|| ReachedProxy {
                name: stream.proxy.name.clone(),
                stream: stream.id.clone(),
                responses: BTreeMap::new(),
                outcome,
            });

        reached.outcome = outcome;

        for response in stream.responses.iter().filter(is_of) {
            if reached.responses.len() < MAX_RESPONSES
                || reached.responses.contains_key(&response.number)
            {
                reached.responses.insert(response.number, response.clone());
            }
        }
    }

    /// Whether a proxy with this outcome has room; one with a better outcome is replaced.
    fn has_room_for(&mut self, outcome: ChangeOutcome) -> bool {
        if self.proxies.len() < MAX_PROXIES {
            return true;
        }
        let best = self
            .proxies
            .iter()
            .map(|(number, proxy)| (proxy.outcome, *number))
            .min();
        match best.filter(|(other, _)| *other < outcome) {
            Some((_, number)) => self.proxies.remove(&number).is_some(),
            None => false,
        }
    }

    /// Whether the trace is complete. Between a stream's mailbox and its session an update is in
    /// neither: two consecutive checks must agree.
    pub(super) fn is_done(&self, now: Instant) -> bool {
        let is_late = now.saturating_duration_since(self.change.published()) >= ACK_TIMEOUT;
        is_late || !self.is_waiting() && !self.was_waiting
    }

    fn is_waiting(&self) -> bool {
        self.counts.unsent > 0
            || self
                .proxies
                .values()
                .flat_map(|proxy| proxy.responses.values())
                .any(is_unanswered)
    }

    /// Number of proxies that were sent the change but have no span.
    pub(super) fn skipped(&self) -> usize {
        self.counts.sent.saturating_sub(self.proxies.len())
    }
}

fn is_unanswered(response: &ChangeResponse) -> bool {
    response.answer.is_none()
}

fn outcome(response: &ChangeResponse, began: Instant) -> ChangeOutcome {
    let sent = response.at.saturating_duration_since(began);
    match &response.answer {
        None => ChangeOutcome::Unanswered(sent),
        Some(answer) if answer.is_taken => ChangeOutcome::Taken(sent + answer.after),
        Some(answer) => ChangeOutcome::Rejected(sent + answer.after),
    }
}

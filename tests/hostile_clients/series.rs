//! Latencies and failures of well-behaved clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// The requests of one kind of client.
#[derive(Default)]
pub(crate) struct Series(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    /// Open requests, by number.
    open: BTreeMap<u64, Instant>,
    /// The start of each request, and its outcome.
    ended: Vec<(Instant, Result<Duration, String>)>,
    /// The number of requests.
    count: u64,
}

/// One open request. If it is dropped, it counts as cancelled.
pub(crate) struct Question {
    series: Arc<Series>,
    number: u64,
    begun: Instant,
    answered: Result<(), String>,
}

impl Series {
    /// Starts a request.
    pub(crate) fn ask(self: &Arc<Self>) -> Question {
        let begun = Instant::now();
        let mut questions = self.0.lock();
        let number = questions.count;
        questions.count += 1;
        questions.open.insert(number, begun);
        Question {
            series: self.clone(),
            number,
            begun,
            answered: Err("not answered".to_owned()),
        }
    }

    /// Records a failure without a request.
    pub(crate) fn lost(&self, what: String) {
        self.0.lock().ended.push((Instant::now(), Err(what)));
    }

    /// Waits until all requests from before a moment have ended, at most until `end`; returns
    /// whether they have.
    pub(crate) async fn settled(&self, before: Instant, end: Instant) -> bool {
        while self.0.lock().open.values().any(|begun| *begun < before) {
            if Instant::now() > end {
                return false;
            }
            sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Summarizes the requests started between two moments.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Summary {
        let questions = self.0.lock();
        let mut summary = Summary::default();
        let mut taken = Vec::new();

        for (_, outcome) in questions
            .ended
            .iter()
            .filter(|(begun, _)| (from..to).contains(begun))
        {
            match outcome {
                Ok(time) => taken.push(*time),
                Err(why) => summary.failed.push(why.clone()),
            }
        }

        let open = questions
            .open
            .values()
            .filter(|begun| (from..to).contains(begun))
            .count();
        summary
            .failed
            .extend((0..open).map(|_| "not answered long after".to_owned()));

        taken.sort_unstable();
        summary.count = taken.len();
        summary.p99 = taken
            .get(taken.len() * 99 / 100)
            .copied()
            .unwrap_or_default();

        summary
    }
}

/// The requests of a kind of client in an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// The number of successful requests.
    pub(crate) count: usize,
    /// The 99th percentile of their latency.
    pub(crate) p99: Duration,
    /// The errors of failed requests.
    pub(crate) failed: Vec<String>,
}

impl Question {
    pub(crate) fn answered(mut self) {
        self.answered = Ok(());
    }

    /// Ends the request with a result.
    pub(crate) fn end(mut self, outcome: anyhow::Result<()>) {
        self.answered = outcome.map_err(|error| format!("{error:#}"));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut questions = self.series.0.lock();
        questions.open.remove(&self.number);
        let answered = std::mem::replace(&mut self.answered, Ok(()));
        questions
            .ended
            .push((self.begun, answered.map(|()| self.begun.elapsed())));
    }
}

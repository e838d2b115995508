//! How long well-behaved clients waited, and what was refused to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// What one sort of client asked.
#[derive(Default)]
pub(crate) struct Series(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    /// What is under way, by number.
    open: BTreeMap<u64, Instant>,
    /// When it began, and how it ended.
    ended: Vec<(Instant, Result<Duration, String>)>,
    /// How many there were.
    count: u64,
}

/// One question under way; dropped, it counts as given up.
pub(crate) struct Question {
    series: Arc<Series>,
    number: u64,
    begun: Instant,
    answered: Result<(), String>,
}

impl Series {
    /// A question that is asked now.
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

    /// Something was lost that should not have been.
    pub(crate) fn lost(&self, what: String) {
        self.0.lock().ended.push((Instant::now(), Err(what)));
    }

    /// Waits until all is answered that was asked before a moment, at most until `end`; whether it
    /// is.
    pub(crate) async fn settled(&self, before: Instant, end: Instant) -> bool {
        while self.0.lock().open.values().any(|begun| *begun < before) {
            if Instant::now() > end {
                return false;
            }
            sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// What was asked between two moments.
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

/// What a sort of client met with in some time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// What was answered.
    pub(crate) count: usize,
    /// Of that, how long 99 of 100 waited at most.
    pub(crate) p99: Duration,
    /// What was not answered, and why.
    pub(crate) failed: Vec<String>,
}

impl Question {
    pub(crate) fn answered(mut self) {
        self.answered = Ok(());
    }

    /// It was answered, or why not.
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

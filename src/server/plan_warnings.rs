//! Warns users who store or delete an object about the effects (`NAVARCH_PLAN_WARNINGS`): a summary
//! of the plan of `navarch plan`, as warnings of a webhook.
//!
//! Requests wait for a plan at most [`PLAN_TIMEOUT`]; a plan that takes longer runs to its end. All
//! plans together take [`CPU_BURST`] and then [`CPU_SHARE`] of a core, as anyone who can reach the
//! webhooks' port can cause plans.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::admin::{PlanAsker, Plans};
use navarch_answers::STACK;
use navarch_answers::plan::plan_of;
use navarch_net::background;
use navarch_push::mesh_state::Change;
use navarch_push::worker::PushHandle;
use navarch_webhook::{Advice, Adviser, Intent};
use navarch_xds::connections::Connections;

/// How long an admission request waits for the plan.
const PLAN_TIMEOUT: Duration = Duration::from_millis(500);
/// CPU time that plans may take after an idle time.
const CPU_BURST: Duration = Duration::from_secs(10);
/// The share of CPU time that plans may take in the long run.
const CPU_SHARE: f64 = 0.1;

/// Plans the effects of objects that webhooks receive.
#[derive(Clone, Debug)]
pub(super) struct PlanWarnings {
    push: PushHandle,
    connections: Arc<Connections>,
    plans: Plans,
    spent: Arc<Mutex<UsedCpuTime>>,
}

/// Recently used CPU time of plans.
#[derive(Clone, Copy, Debug, Default)]
struct UsedCpuTime {
    /// Seconds, less the recovered share.
    seconds: f64,
    /// When it was last updated.
    at: Option<Instant>,
}

impl UsedCpuTime {
    /// Whether another plan may start.
    fn has_room(&mut self, now: Instant) -> bool {
        let since = self
            .at
            .map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.seconds = (self.seconds - since * CPU_SHARE).max(0.0);
        self.at = Some(now);
        self.seconds < CPU_BURST.as_secs_f64()
    }

    /// Adds the duration of a plan.
    fn add(&mut self, took: Duration) {
        self.seconds += took.as_secs_f64();
    }
}

impl PlanWarnings {
    /// Plans against the current configuration; only one plan runs at a time, including those of
    /// pages.
    pub(super) fn new(push: &PushHandle, connections: Arc<Connections>, plans: &Plans) -> Self {
        Self {
            push: push.clone(),
            connections,
            plans: plans.clone(),
            spent: Arc::default(),
        }
    }

    /// The function that the webhooks call.
    pub(super) fn adviser(self) -> Adviser {
        Arc::new(move |intent| {
            let this = self.clone();
            Box::pin(async move { this.advise(intent).await })
        })
    }

    /// The effects of an intent.
    async fn advise(&self, intent: Intent) -> Advice {
        if !self.push.is_synced() {
            return Advice::Unknown;
        }

        let context = self.push.context();
        let change = match intent {
            Intent::Put(object) => {
                let old = context.objects.any(&object.object_ref());
                if old.is_some_and(|old| old.same_content(&object)) {
                    return Advice::Warnings(Vec::new());
                }
                Change::Put(*object)
            }
            Intent::Remove(name) if context.objects.contains(&name) => Change::Removed(name),
            Intent::Remove(_) => return Advice::Warnings(Vec::new()),
        };

        let now = Instant::now();
        if !self.spent.lock().has_room(now) {
            return Advice::Busy;
        }

        let Ok(turn) = self.plans.turn() else {
            return Advice::Busy;
        };

        let source = PlanAsker::new(&self.push, &self.connections);
        let (answer, made) = oneshot::channel();
        let spent = self.spent.clone();
        let work = move || {
            let mut mirror = source.mirror();
            let lines = mirror
                .as_mut()
                .map(|mirror| plan_of(mirror, change).summary());
            drop(turn);
            // The caller may have disconnected. The response does not wait until the copies are
            // freed.
            _ = answer.send(lines);
            drop(mirror);
            spent.lock().add(now.elapsed());
        };

        if let Err(error) = background::spawn("plan", STACK, work) {
            tracing::warn!(%error, "failed to start the thread that plans the warnings of an object");
            return Advice::Unknown;
        }

        match timeout(PLAN_TIMEOUT, made).await {
            Ok(Ok(Some(lines))) => Advice::Warnings(lines),
            Ok(Ok(None) | Err(_)) => Advice::Unknown,
            Err(_) => Advice::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_take_a_tenth_of_the_time_in_the_long_run() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut spent = UsedCpuTime::default();
        let mut made = 0;
        for at in 0..1000 {
            if spent.has_room(start + second * at) {
                spent.add(second);
                made += 1;
            }
        }
        assert!(
            (105..=112).contains(&made),
            "10 at first, then one in ten seconds: {made}"
        );
    }
}

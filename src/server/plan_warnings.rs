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
use navarch_net::cpu_budget::CpuBudget;
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
    budget: Arc<Mutex<CpuBudget>>,
}

impl PlanWarnings {
    /// Plans against the current configuration; only one plan runs at a time, including those of
    /// pages.
    pub(super) fn new(push: &PushHandle, connections: Arc<Connections>, plans: &Plans) -> Self {
        Self {
            push: push.clone(),
            connections,
            plans: plans.clone(),
            budget: Arc::new(Mutex::new(CpuBudget::new(CPU_BURST, CPU_SHARE))),
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
        if !self.budget.lock().has_room(now) {
            return Advice::Busy;
        }

        let Ok(turn) = self.plans.turn() else {
            return Advice::Busy;
        };

        let source = PlanAsker::new(&self.push, &self.connections);
        let (answer, made) = oneshot::channel();
        let budget = self.budget.clone();
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
            budget.lock().add(now.elapsed());
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

//! The record of a migration, and why a step is not done.

use navarch_migration::{DoneStep, Objects, Plan, PlannedStep, State};

use super::ApplyOptions;

/// The ConfigMap with the record.
pub(super) const RECORD: &str = "navarch-migration";

/// The record in a namespace.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) namespace: String,
    /// `None` before the first step.
    pub(super) state: Option<State>,
    /// The resource version of its ConfigMap.
    pub(super) version: Option<String>,
}

impl Record {
    /// The step that was begun and not finished.
    pub(super) fn begun(&self) -> Option<&DoneStep> {
        self.state.as_ref()?.begun.as_ref()
    }

    /// The step to undo: the one that was begun, or the last one.
    pub(super) fn last(&self) -> Option<&DoneStep> {
        let state = self.state.as_ref()?;
        state.begun.as_ref().or_else(|| state.done.last())
    }

    /// The number of the next step, from 1.
    pub(super) fn next_number(&self) -> usize {
        let done = self.state.as_ref().map_or(0, |state| state.done.len());
        done + 1
    }

    /// Why the first step of a plan must not be done.
    pub(super) fn refusal(&self, plan: &Plan, options: ApplyOptions) -> Option<String> {
        if let Some(reason) = refusal_of_plan(plan) {
            return Some(reason);
        }
        if let Some(state) = self.state.as_ref().filter(|_| !options.replans)
            && let Err(error) = state.check(plan)
        {
            return Some(format!(
                "{error}. --replan records the plan as it is now, and goes on with it"
            ));
        }
        self.refusal_of_step(plan.steps.first()?, options)
    }

    /// Why the step that was begun must not be finished, by a plan made now. The record may have
    /// been edited, so the step is judged as if it were not begun.
    pub(super) fn refusal_to_finish(
        &self,
        plan: &Plan,
        objects: &Objects,
        options: ApplyOptions,
    ) -> Option<String> {
        if let Some(reason) = refusal_of_plan(plan) {
            return Some(reason);
        }
        let Some(planned) = self.begun()?.planned(objects, plan) else {
            let namespace = &self.namespace;
            return Some(format!(
                "the recorded step that was begun is not the next step of a plan made now: the \
                 objects have changed, or somebody else has written the record. navarch migrate \
                 undo {namespace} undoes it; or delete ConfigMap {namespace}/{RECORD}, and plan \
                 again"
            ));
        };
        self.refusal_of_step(planned, options)
    }

    /// Why a step must not be done although it is the next one of its plan.
    fn refusal_of_step(&self, planned: &PlannedStep, options: ApplyOptions) -> Option<String> {
        let number = self.next_number();
        if options.step.is_some_and(|step| step != number) {
            return Some(format!("the next step has the number {number}"));
        }
        (planned.has_unjudged() && !options.accepts_unjudged).then(|| {
            "not everything that requests depend on is judged, see above: --accept-unjudged does \
             the step all the same"
                .to_owned()
        })
    }
}

/// Why no step of a plan must be done.
fn refusal_of_plan(plan: &Plan) -> Option<String> {
    if plan.is_refused() {
        return Some("a verdict would change, or something must be done first".to_owned());
    }
    (!plan.waiting.is_empty()).then(|| {
        format!(
            "an earlier step is not finished: {}",
            plan.waiting.join("; ")
        )
    })
}

//! Conditions of objects about their rollout or quarantine, from the current snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::quarantine::Quarantined;
use navarch_push::rollout::{Rollout, RolloutProgress};
use navarch_status::ObjectReport;

/// The conditions of quarantined objects.
pub(super) fn quarantined(context: &PushContext) -> BTreeMap<ObjectRef, ObjectReport> {
    let report = |one: &Arc<Quarantined>| {
        ObjectReport {
        is_true: true,
        reason: "RefusedByProxies",
        message: one.message.clone(),
        warning: Some(
            format!("Proxies reject the configuration of this object; the previous version is served: {}", one.message)
                .into(),
        ),
    }
    };
    context
        .quarantined
        .iter()
        .map(|(name, one)| (name.clone(), report(one)))
        .collect()
}

/// The conditions of objects in a staged rollout, or whose rollout was stopped.
pub(super) fn rolled_out(context: &PushContext) -> BTreeMap<ObjectRef, ObjectReport> {
    context
        .rollouts
        .iter()
        .map(|(name, rollout)| (name.clone(), rollout_report(rollout)))
        .collect()
}

/// The condition of one rollout: the same at all replicas.
fn rollout_report(rollout: &Rollout) -> ObjectReport {
    let generation = rollout.generation;
    let shares = rollout.plan.stages.shares();
    let (reason, message, warning): (_, Arc<str>, Option<Arc<str>>) = match &rollout.progress {
        RolloutProgress::Waiting => (
            "Waiting",
            format!("no proxy has generation {generation} yet").into(),
            None,
        ),
        RolloutProgress::Stage { at, .. } => {
            let share = shares.get(*at).map(ToString::to_string).unwrap_or_default();
            let stage = at + 1;
            let stages = shares.len();
            (
                "Rolling",
                format!(
                    "stage {stage} of {stages}: {share} of the proxies have generation {generation}"
                )
                .into(),
                None,
            )
        }
        RolloutProgress::Stopped(why) => {
            let warning =
                format!("The rollout was stopped; all proxies have the previous version: {why}");
            ("Stopped", why.clone(), Some(warning.into()))
        }
    };

    ObjectReport {
        is_true: false,
        reason,
        message,
        warning,
    }
}

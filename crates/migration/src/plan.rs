//! The plan of a migration: its steps, and what each changes for which requests.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::at_rest::{bring_to_rest, restart};
use super::counterpart::{Counterpart, Loss, NotJudged, counterparts};
use super::edit::Edit;
use super::judge::{Judge, MeshSettings};
use super::objects::{DAEMON_SET, ObjectName, Objects};
use super::pods::{DataPlane, Owner, by_owner};
use super::requests::Requests;
use super::steps::{Step, Steps, waiting};
use super::verdict::{Effect, Verdict, VerdictChange, change};

/// The maximum number of listed requests with a changed verdict in a step.
const MAX_CHANGES: usize = 50;
/// The DaemonSets that ambient mode needs.
const ZTUNNEL: &str = "ztunnel";
const CNI: &str = "istio-cni-node";

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A namespace does not exist.
    #[error("namespace {0} does not exist, or is not among the objects")]
    NoNamespace(String),
}

/// The plan of the migration of namespaces, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// In the order in which they move.
    pub namespaces: Vec<String>,
    /// What must be done before the first step.
    pub blockers: Vec<String>,
    /// What the cluster has not finished of earlier steps.
    pub waiting: Vec<String>,
    /// The number of kinds of requests that are compared.
    pub requests: usize,
    /// The steps in their order.
    pub steps: Vec<PlannedStep>,
    /// What sidecars do without a counterpart in ambient mode.
    pub counterparts: BTreeSet<Counterpart>,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStep {
    /// Its number, from 1.
    pub number: usize,
    /// What is done.
    #[serde(flatten)]
    pub step: Step,
    /// The edits that undo it, in their order.
    pub undo: Vec<Edit>,
    /// Whether verdicts were compared; those of a step behind a refused one are not.
    pub is_judged: bool,
    /// The first requests whose verdict changes, or is not known, the worst first.
    pub changes: Vec<VerdictChange>,
    /// The number of all of them.
    pub changed: usize,
    /// What else is not judged.
    pub not_judged: BTreeSet<NotJudged>,
}

impl PlannedStep {
    /// Whether a verdict would change.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.effect != Effect::NotJudged)
    }

    /// Whether something that requests depend on is not judged.
    #[must_use]
    pub fn has_unjudged(&self) -> bool {
        !self.not_judged.is_empty()
            || self
                .changes
                .iter()
                .any(|change| change.effect == Effect::NotJudged)
    }
}

impl Plan {
    /// Whether no step may be done: something must be done first, or a step changes a verdict.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.blockers.is_empty() || self.steps.iter().any(PlannedStep::is_refused)
    }
}

/// Plans the migration of namespaces. `progress` is called with the title of each step before it is
/// judged. The calling thread's stack must be as large as [`navarch_answers::STACK`].
///
/// # Errors
/// If a namespace does not exist.
pub fn plan(
    objects: &Objects,
    settings: &MeshSettings,
    namespaces: &[String],
    progress: &mut dyn FnMut(&str),
) -> Result<Plan, PlanError> {
    let mut planner = Planner::new(objects, settings, namespaces);
    planner.check_mesh();
    for namespace in namespaces {
        planner.add_namespace(namespace, progress)?;
    }
    Ok(planner.plan)
}

/// A plan in the making, and the mesh after its last step.
struct Planner<'a> {
    settings: &'a MeshSettings,
    objects: Objects,
    requests: Requests,
    /// The verdicts after the last step, by the index of the request.
    verdicts: Vec<Vec<Verdict>>,
    /// The objects that the control plane does not read, as they are of other revisions.
    of_other_revisions: BTreeSet<ObjectName>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn new(objects: &Objects, settings: &'a MeshSettings, namespaces: &[String]) -> Self {
        let mut plan = Plan {
            namespaces: namespaces.to_vec(),
            ..Plan::default()
        };
        let mut at_rest = objects.clone();
        let of_other_revisions = at_rest.take_others(settings.revision());
        for namespace in namespaces {
            plan.waiting.extend(waiting(&at_rest, namespace));
            plan.counterparts
                .extend(counterparts(&at_rest, namespace, settings));
        }

        bring_to_rest(&mut at_rest, settings.domain());
        let moving = namespaces.iter().cloned().collect();
        let mut requests = Requests::of(&at_rest, &moving, settings.root(), settings.domain());
        plan.requests = requests.kinds.len();

        let judge = Judge::of(&at_rest, settings);
        for problem in &judge.problems {
            let reason = "it cannot be read, and is left out".to_owned();
            requests.missing.insert((problem.clone(), reason));
        }
        let verdicts = requests
            .kinds
            .iter()
            .map(|kind| judge.verdicts(kind))
            .collect();
        Self {
            settings,
            objects: at_rest,
            requests,
            verdicts,
            of_other_revisions,
            plan,
        }
    }

    /// Notes what the mesh lacks for ambient mode.
    fn check_mesh(&mut self) {
        if !self.settings.settings.ambient {
            self.plan.blockers.push(
                "ambient mode is off: set PILOT_ENABLE_AMBIENT=true at the control plane"
                    .to_owned(),
            );
        }
        // A ztunnel that the control plane does not trust is another mesh's.
        let trusted = &self.settings.ztunnel_namespaces;
        let has_ztunnel = self
            .objects
            .of(DAEMON_SET)
            .any(|(name, _)| name.name == ZTUNNEL && trusted.contains(&name.namespace));
        if !has_ztunnel {
            let namespaces: Vec<&str> = trusted.iter().map(String::as_str).collect();
            self.plan.blockers.push(format!(
                "there is no DaemonSet {ZTUNNEL} in the namespace {}: install the components of \
                 ambient mode, or name the namespace by CA_TRUSTED_NODE_ACCOUNTS",
                namespaces.join(" or ")
            ));
        }

        let has_cni = self
            .objects
            .of(DAEMON_SET)
            .any(|(name, _)| name.name == CNI);
        if !has_cni {
            self.plan.blockers.push(format!(
                "there is no DaemonSet {CNI}: install the components of ambient mode"
            ));
        }
    }

    /// Adds the steps of a namespace.
    fn add_namespace(
        &mut self,
        namespace: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), PlanError> {
        let Some((name, object)) = self.objects.namespace(namespace) else {
            return Err(PlanError::NoNamespace(namespace.to_owned()));
        };
        let steps = Steps::of(&self.objects, name, object, self.settings);
        self.plan.blockers.extend(steps.blockers);
        for step in steps.steps {
            let created = step.edits.iter().map(|edit| &edit.object);
            for name in created.filter(|name| self.of_other_revisions.contains(name)) {
                self.plan.blockers.push(format!(
                    "{name} exists, and is of another revision: delete it"
                ));
            }
            progress(&step.title);
            self.add_step(step);
        }
        Ok(())
    }

    /// Adds a step, and judges it unless an earlier one is refused.
    fn add_step(&mut self, step: Step) {
        let undo = step
            .edits
            .iter()
            .rev()
            .filter_map(|edit| edit.inverse(self.objects.get(&edit.object)))
            .collect();
        let mut planned = PlannedStep {
            number: self.plan.steps.len() + 1,
            not_judged: self.not_judged(&step),
            step,
            undo,
            is_judged: !self.plan.steps.iter().any(PlannedStep::is_refused),
            changes: Vec::new(),
            changed: 0,
        };

        for edit in &planned.step.edits {
            edit.apply(&mut self.objects);
        }

        let restarts = planned.step.restarts.clone();
        let mut changes: BTreeMap<usize, VerdictChange> = BTreeMap::new();
        for pods in self.rounds(restarts.as_ref()) {
            for pod in &pods {
                restart(&mut self.objects, pod);
            }
            bring_to_rest(&mut self.objects, self.settings.domain());
            if planned.is_judged {
                self.judge(&mut changes);
            }
        }

        planned.changes = changes.into_values().collect();
        planned.changes.sort_by_key(|change| change.effect);
        planned.changed = planned.changes.len();
        planned.changes.truncate(MAX_CHANGES);
        self.plan.steps.push(planned);
    }

    /// The pods that are restarted one round after the other: the first one alone, since both kinds
    /// exist during a rollout. One round without pods if none is restarted.
    fn rounds(&self, restarts: Option<&Owner>) -> Vec<Vec<ObjectName>> {
        let Some(owner) = restarts else {
            return vec![Vec::new()];
        };
        let owners = by_owner(&self.objects, &owner.namespace);
        let mut pods: Vec<ObjectName> = owners
            .get(owner)
            .into_iter()
            .flatten()
            .map(|name| (*name).clone())
            .collect();
        pods.retain(|name| {
            let pod = self.objects.get(name);
            pod.is_some_and(|pod| DataPlane::of(pod) == DataPlane::Sidecar)
        });

        let rest = pods.split_off(pods.len().min(1));
        if rest.is_empty() {
            vec![pods]
        } else {
            vec![pods, rest]
        }
    }

    /// Compares the verdicts of the mesh with those before. Changes are added by the index of the
    /// request, the first one of each.
    fn judge(&mut self, changes: &mut BTreeMap<usize, VerdictChange>) {
        let judge = Judge::of(&self.objects, self.settings);
        let compared = self.requests.kinds.iter().zip(&mut self.verdicts);
        for (index, (kind, before)) in compared.enumerate() {
            let after = judge.verdicts(kind);
            if let Some(found) = change(kind, before, &after) {
                changes.entry(index).or_insert(found);
            }
            *before = after;
        }
    }

    /// What a step changes without being judged.
    fn not_judged(&self, step: &Step) -> BTreeSet<NotJudged> {
        let moves_requests = step.restarts.is_some()
            || step
                .edits
                .iter()
                .any(|edit| edit.object.kind == "Namespace");
        if !moves_requests {
            return BTreeSet::new();
        }

        let of_workload = |counterpart: &&Counterpart| {
            counterpart.loss == Loss::NotJudged
                && counterpart.namespace == step.namespace
                && (step.restarts.is_none()
                    || counterpart.workload.is_none()
                    || counterpart.workload == step.restarts)
        };
        let mut found: BTreeSet<NotJudged> = self
            .plan
            .counterparts
            .iter()
            .filter(of_workload)
            .map(NotJudged::from)
            .collect();
        found.extend(
            self.requests
                .missing
                .iter()
                .map(|(what, reason)| NotJudged {
                    what: what.clone(),
                    reason: reason.clone(),
                }),
        );
        found
    }
}

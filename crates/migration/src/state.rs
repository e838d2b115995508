//! How far a migration has come, as it is recorded in the namespace that moves.

use navarch_base::printable::escape;
use navarch_base::state_format::{self, FormatError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::edit::{Change, Edit, RESTARTED};
use super::edited::{Role, role_in_record};
use super::plan::{Plan, PlannedStep};
use super::steps::{
    DATAPLANE_MODE, INGRESS_USE_WAYPOINT, INJECT, INJECTION, PREPARE_WAYPOINT, RESTARTED_AT,
    SIDECAR_USE_WAYPOINT, USE_WAYPOINT,
};

/// The format of [`State`]. A program refuses records of a later one.
pub const FORMAT: u32 = 1;
/// The labels of namespaces that steps change.
const NAMESPACE_LABELS: [&str; 6] = [
    DATAPLANE_MODE,
    INJECTION,
    PREPARE_WAYPOINT,
    USE_WAYPOINT,
    INGRESS_USE_WAYPOINT,
    SIDECAR_USE_WAYPOINT,
];

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// It is not JSON of a record.
    #[error("the record of the migration is malformed: {0}")]
    Malformed(String),
    /// Its format is not one that this release reads.
    #[error("the record of the migration cannot be read: {0}")]
    Format(#[from] FormatError),
    /// It names an edit that no step makes.
    #[error(
        "the record of the migration names an edit of {0} that no step makes: somebody else has \
         written it. Delete its ConfigMap, and plan again"
    )]
    Foreign(String),
    /// The plan is another one than that which was recorded.
    #[error("the plan has changed since the first step: {0}")]
    Changed(String),
}

impl From<serde_json::Error> for StateError {
    fn from(error: serde_json::Error) -> Self {
        // It may have text of the record.
        Self::Malformed(escape(&error.to_string()).into_owned())
    }
}

/// A recorded migration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// [`FORMAT`].
    #[serde(default = "state_format::first")]
    pub format: u32,
    /// The plan at its first step, without verdicts.
    pub steps: Vec<RecordedStep>,
    /// The steps that were done.
    pub done: Vec<DoneStep>,
    /// The step that was begun and not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<DoneStep>,
}

/// A step of the recorded plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedStep {
    /// What is done.
    pub title: String,
    /// As [`Step::edits`](crate::Step::edits), before it was done.
    pub edits: Vec<Edit>,
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoneStep {
    /// What was done.
    pub title: String,
    /// When, as RFC 3339.
    pub time: String,
    /// The edits as they were made.
    pub edits: Vec<Edit>,
    /// The edits that restore the objects, in their order.
    pub undo: Vec<Edit>,
}

impl PlannedStep {
    /// The step as it is recorded when it begins, at a time in RFC 3339. `None` if some edit cannot
    /// be undone.
    #[must_use]
    pub fn begun(&self, time: &str) -> Option<DoneStep> {
        let edits = self.step.edits.iter();
        let begun = DoneStep {
            title: self.step.title.clone(),
            time: time.to_owned(),
            edits: edits
                .map(|edit| edit.with_text(RESTARTED_AT, time))
                .collect(),
            undo: self.undo.clone(),
        };
        (begun.undo.len() == begun.edits.len()).then_some(begun)
    }
}

impl From<&PlannedStep> for RecordedStep {
    fn from(planned: &PlannedStep) -> Self {
        Self {
            title: planned.step.title.clone(),
            edits: planned.step.edits.clone(),
        }
    }
}

impl State {
    /// The record of a plan before its first step.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self {
            format: FORMAT,
            steps: plan.steps.iter().map(RecordedStep::from).collect(),
            done: Vec::new(),
            begun: None,
        }
    }

    /// Reads a record of the migration of a namespace.
    ///
    /// # Errors
    /// If it is malformed, of a later format, or names an edit that no step makes: whoever writes
    /// ConfigMaps in the namespace must not gain the rights of who undoes a step.
    pub fn parse(text: &str, namespace: &str) -> Result<Self, StateError> {
        state_format::check_json(text.as_bytes(), FORMAT)?;
        let state: Self = serde_json::from_str(text)?;
        match state.foreign(namespace) {
            Some(edit) => Err(StateError::Foreign(
                escape(&edit.object.to_string()).into_owned(),
            )),
            None => Ok(state),
        }
    }

    /// The first edit of the record that is none of the migration of a namespace.
    fn foreign(&self, namespace: &str) -> Option<&Edit> {
        let planned = self.steps.iter().flat_map(|step| &step.edits);
        let steps = self.done.iter().chain(&self.begun);
        let done = steps.flat_map(|step| step.edits.iter().chain(&step.undo));
        planned
            .chain(done)
            .find(|edit| !is_permitted(edit, namespace))
    }

    /// Fails unless a plan, computed now, has exactly the steps that the record has left.
    ///
    /// # Errors
    /// With the first difference.
    pub fn check(&self, plan: &Plan) -> Result<(), StateError> {
        let mut left = self.steps.iter().skip(self.done.len());

        for planned in &plan.steps {
            let title = &planned.step.title;
            match left.next() {
                Some(recorded) if recorded.title != *title => {
                    return Err(StateError::Changed(format!(
                        "the next step was to {}, and is now to {title}",
                        recorded.title
                    )));
                }
                Some(recorded) if recorded.edits != planned.step.edits => {
                    return Err(StateError::Changed(format!(
                        "the edits to {title} are others"
                    )));
                }
                Some(_) => {}
                None => {
                    return Err(StateError::Changed(format!("it also has to {title}")));
                }
            }
        }

        match left.next() {
            Some(recorded) => Err(StateError::Changed(format!(
                "it no longer has to {}",
                recorded.title
            ))),
            None => Ok(()),
        }
    }

    /// Replaces the steps that are left by those of a plan.
    pub fn replan(&mut self, plan: &Plan) {
        self.steps.truncate(self.done.len());
        self.steps.extend(plan.steps.iter().map(RecordedStep::from));
    }
}

/// Whether an edit is one that steps of the migration of a namespace make: of the labels of the
/// namespace, of its waypoint, its policies and the annotations that restart its workloads.
#[must_use]
pub fn is_permitted(edit: &Edit, namespace: &str) -> bool {
    let Some(role) = role_in_record(&edit.object, namespace) else {
        return false;
    };
    match (&edit.change, role) {
        (
            Change::Create { content },
            Role::Waypoint | Role::Authorization | Role::Authentication,
        ) => super::objects::ObjectName::of(content) == edit.object,
        (Change::Delete, Role::Waypoint | Role::Authorization | Role::Authentication) => true,
        (Change::Patch { patch }, Role::Namespace) => {
            has_only(patch, &["metadata", "labels"], &NAMESPACE_LABELS)
        }
        (Change::Patch { patch }, Role::Authorization) => has_only(patch, &["spec"], &["rules"]),
        (Change::Patch { patch }, Role::Workload) => is_restart(patch),
        (Change::Create { .. } | Change::Delete, Role::Namespace | Role::Workload)
        | (Change::Patch { .. }, Role::Waypoint | Role::Authentication) => false,
    }
}

/// Whether a patch of a workload only restarts its pods, and turns their injection on or off.
fn is_restart(patch: &Value) -> bool {
    let path = ["spec", "template", "metadata"];
    let fields = ["labels", "annotations"];
    has_only(patch, &path, &fields)
        && fields.iter().all(|field| {
            let pointer = format!("/spec/template/metadata/{field}");
            patch
                .pointer(&pointer)
                .is_none_or(|map| has_only(map, &[], &[INJECT, RESTARTED]))
        })
}

/// Whether a patch has only these keys at a path.
fn has_only(patch: &Value, path: &[&str], keys: &[&str]) -> bool {
    let Some(fields) = patch.as_object() else {
        return false;
    };
    match path.split_first() {
        None => fields.keys().all(|key| keys.contains(&key.as_str())),
        Some((first, rest)) => {
            fields.len() == 1
                && fields
                    .get(*first)
                    .is_some_and(|one| has_only(one, rest, keys))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::objects::ObjectName;
    use super::*;

    fn edit(api_version: &str, kind: &str, namespace: &str, name: &str, change: Change) -> Edit {
        Edit {
            object: ObjectName {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            change,
        }
    }

    fn patch(patch: Value) -> Change {
        Change::Patch { patch }
    }

    #[test]
    fn records_name_only_edits_that_steps_make() {
        let labels = |name: &str, value: Value| {
            let labels = patch(json!({ "metadata": { "labels": value } }));
            edit("v1", "Namespace", "", name, labels)
        };
        let policy = |namespace: &str, change: Change| {
            edit(
                "security.istio.io/v1",
                "AuthorizationPolicy",
                namespace,
                "p",
                change,
            )
        };
        let workload = |template: Value| {
            let change = patch(json!({ "spec": { "template": template } }));
            edit("apps/v1", "Deployment", "shop", "web", change)
        };
        let restarted = json!({ "metadata": {
            "labels": { "sidecar.istio.io/inject": null },
            "annotations": { "kubectl.kubernetes.io/restartedAt": "now" },
        } });

        for permitted in [
            labels("shop", json!({ "istio.io/dataplane-mode": null })),
            policy("shop", patch(json!({ "spec": { "rules": [] } }))),
            policy("shop", Change::Delete),
            workload(restarted),
        ] {
            assert!(is_permitted(&permitted, "shop"), "{permitted:?}");
        }

        let image = json!({ "spec": { "containers": [{ "name": "app", "image": "evil" }] } });
        for foreign in [
            labels("bank", json!({ "istio.io/dataplane-mode": null })),
            labels(
                "shop",
                json!({ "pod-security.kubernetes.io/enforce": "privileged" }),
            ),
            policy("bank", patch(json!({ "spec": { "rules": [] } }))),
            policy("bank", Change::Delete),
            policy(
                "shop",
                patch(json!({ "spec": { "rules": [], "action": "ALLOW" } })),
            ),
            workload(image),
            edit("v1", "Secret", "shop", "s", Change::Delete),
            edit(
                "security.istio.io/v1/namespaces/bank/authorizationpolicies/deny?x=",
                "AuthorizationPolicy",
                "shop",
                "p",
                patch(json!({ "spec": { "rules": [] } })),
            ),
            edit(
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                "",
                "shop",
                Change::Delete,
            ),
        ] {
            assert!(!is_permitted(&foreign, "shop"), "{foreign:?}");
        }
    }

    #[test]
    fn a_record_with_a_foreign_edit_or_of_a_later_format_is_refused() {
        let undo = edit("v1", "Namespace", "", "bank", Change::Delete);
        let mut state = State {
            format: FORMAT,
            steps: Vec::new(),
            done: vec![DoneStep {
                title: "a step".to_owned(),
                time: String::new(),
                edits: Vec::new(),
                undo: vec![undo],
            }],
            begun: None,
        };
        let read = |state: &State| State::parse(&serde_json::to_string(state).unwrap(), "shop");
        assert!(matches!(read(&state), Err(StateError::Foreign(_))));
        state.done.clear();
        assert_eq!(read(&state).unwrap(), state);
        state.format = FORMAT + 1;
        assert!(matches!(read(&state), Err(StateError::Format(error)) if error.is_newer()));
        assert!(State::parse("{}", "shop").is_err());
    }
}

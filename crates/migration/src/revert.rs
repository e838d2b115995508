//! What may be done for a record, which everybody who writes ConfigMaps in the namespace can write.
//!
//! A step that was begun is finished only as far as it is the next step of a plan that is made from
//! the objects as they are. A half-done step needs no exception: a plan leaves out the edits that
//! are in force, and the recorded previous values, which could be invented, are not asked. A step is
//! undone only if its edits are those of a step and the recorded previous values could have led to
//! them.

use serde_json::Value;

use super::edit::{Change, Edit, RESTARTED};
use super::edited::{Role, role_in_record};
use super::objects::{GATEWAY, MANAGED_BY, Objects, items, label, members, text};
use super::plan::{Plan, PlannedStep};
use super::policies::{action, is_copy, is_trusting};
use super::state::{DoneStep, is_permitted};
use super::steps::{
    AMBIENT, DATAPLANE_MODE, INJECT, INJECTION, PREPARE_WAYPOINT, RESTARTED_AT, USE_WAYPOINT,
    is_new_waypoint,
};

/// Where the labels of a namespace are, and those of a pod template.
const LABELS: &str = "/metadata/labels";
const TEMPLATE_LABELS: &str = "/spec/template/metadata/labels";
const TEMPLATE_ANNOTATIONS: &str = "/spec/template/metadata/annotations";
/// Why an edit is not undone.
const NOT_OF_A_STEP: &str = "no step makes the recorded edit";
const NOT_AS_CREATED: &str =
    "it is not as a step creates it: delete it yourself if nothing needs it";
const RULES_EDITED: &str = "its rules were edited since: restore them yourself";

/// A recorded edit with the one that undoes it, and its object.
#[derive(Clone, Copy)]
struct Reverted<'a> {
    edit: &'a Edit,
    undo: &'a Edit,
    object: Option<&'a Value>,
    namespace: &'a str,
}

impl DoneStep {
    /// The edits that are not in force.
    pub fn unfinished<'a>(&'a self, objects: &'a Objects) -> impl Iterator<Item = &'a Edit> {
        self.edits
            .iter()
            .filter(move |edit| !edit.holds(objects.get(&edit.object)))
    }

    /// The step of a plan, made now, that the edits that are not in force are: its first one, or
    /// none.
    #[must_use]
    pub fn planned<'a>(&self, objects: &Objects, plan: &'a Plan) -> Option<&'a PlannedStep> {
        let planned = plan.steps.first()?;
        let edits = planned.step.edits.iter();
        let is_same = self
            .unfinished(objects)
            .cloned()
            .eq(edits.map(|edit| edit.with_text(RESTARTED_AT, &self.time)));
        (is_same && self.title == planned.step.title).then_some(planned)
    }

    /// Why the step must not be undone, whoever wants it: its edits are not those of a step, an
    /// object to delete is not the one that a step creates, or rules of a policy were edited since.
    #[must_use]
    pub fn against_reverting(&self, objects: &Objects, namespace: &str) -> Vec<String> {
        if self.edits.len() != self.undo.len() {
            return vec!["the recorded edits and those that undo them differ in number".to_owned()];
        }
        let pairs = self.edits.iter().zip(self.undo.iter().rev());
        pairs
            .filter_map(|(edit, undo)| {
                let reverted = Reverted {
                    edit,
                    undo,
                    object: objects.get(&edit.object),
                    namespace,
                };
                let problem = reverted.problem()?;
                Some(format!("{}: {problem}", edit.object))
            })
            .collect()
    }
}

impl Reverted<'_> {
    /// Why it must not be undone.
    fn problem(self) -> Option<&'static str> {
        let is_permitted = self.edit.object == self.undo.object
            && is_permitted(self.edit, self.namespace)
            && is_permitted(self.undo, self.namespace);
        let role = role_in_record(&self.edit.object, self.namespace).filter(|_| is_permitted);
        let Some(role) = role.filter(|role| self.is_inverse(*role)) else {
            return Some(NOT_OF_A_STEP);
        };
        let object = self.object?;
        match &self.edit.change {
            Change::Create { content } => {
                let is_unchanged = self.edit.holds(self.object) && is_as_created(object, content);
                (!is_unchanged).then_some(NOT_AS_CREATED)
            }
            Change::Patch { .. } if role == Role::Authorization => {
                let is_known = self.edit.holds(self.object) || self.undo.holds(self.object);
                (!is_known).then_some(RULES_EDITED)
            }
            Change::Patch { .. } | Change::Delete => None,
        }
    }

    /// Whether a step makes the edit of an object with this role, and the other one undoes exactly
    /// this.
    fn is_inverse(self, role: Role) -> bool {
        match (&self.edit.change, &self.undo.change) {
            (Change::Create { content }, Change::Delete) => match role {
                Role::Waypoint => is_new_waypoint(content),
                Role::Authorization | Role::Authentication => is_copy(content),
                Role::Namespace | Role::Workload => false,
            },
            (Change::Patch { patch: after }, Change::Patch { patch: before }) => {
                self.restores(role, before, after)
            }
            (Change::Create { .. } | Change::Patch { .. } | Change::Delete, _) => false,
        }
    }

    /// Whether a patch restores what another one, of a step, has changed.
    fn restores(self, role: Role, before: &Value, after: &Value) -> bool {
        match role {
            Role::Namespace => is_each(before, after, LABELS, is_namespace_label),
            Role::Authorization => self.object.is_none_or(|policy| {
                let rules = |patch: &Value| -> Vec<Value> {
                    items(patch, "/spec/rules").cloned().collect()
                };
                let action = action(policy);
                is_trusting(&rules(before), &rules(after), action, self.namespace)
            }),
            Role::Workload => {
                is_each(before, after, TEMPLATE_LABELS, |_, before, after| {
                    after == "false" && is_text_or_none(before)
                }) && is_each(before, after, TEMPLATE_ANNOTATIONS, |key, before, after| {
                    let is_set = key == RESTARTED && after.is_string();
                    (is_set || key == INJECT && after.is_null()) && is_text_or_none(before)
                })
            }
            Role::Waypoint | Role::Authentication => false,
        }
    }
}

/// Whether a namespace gets this label by a step, and can have had that value before.
fn is_namespace_label(key: &str, before: &Value, after: &Value) -> bool {
    match key {
        DATAPLANE_MODE => after == AMBIENT && is_text_or_none(before),
        INJECTION => after == "disabled" && is_text_or_none(before),
        // A waypoint that is used already is never replaced by another one.
        USE_WAYPOINT => after.is_string() && (before.is_null() || before == after),
        PREPARE_WAYPOINT => after.is_string() && is_text_or_none(before),
        _ => after == "true" && is_text_or_none(before),
    }
}

/// Whether two patches have the same members in a map, and `accepts` each with its values before
/// and after.
fn is_each(
    before: &Value,
    after: &Value,
    pointer: &str,
    accepts: impl Fn(&str, &Value, &Value) -> bool,
) -> bool {
    let restored = before.pointer(pointer);
    members(before, pointer).count() == members(after, pointer).count()
        && members(after, pointer).all(|(key, after)| {
            restored
                .and_then(|restored| restored.get(key))
                .is_some_and(|before| accepts(key, before, after))
        })
}

fn is_text_or_none(value: &Value) -> bool {
    value.is_string() || value.is_null()
}

/// Whether an object is still the one that a step has created with this content: it has the mark of
/// the migration, and its spec is unchanged.
fn is_as_created(object: &Value, content: &Value) -> bool {
    if label(object, MANAGED_BY.0) != MANAGED_BY.1 {
        return false;
    }
    if GATEWAY.is_of(object) {
        text(object, "/spec/gatewayClassName") == text(content, "/spec/gatewayClassName")
            && object
                .pointer("/spec/infrastructure/parametersRef")
                .is_none()
    } else {
        object.get("spec") == content.get("spec")
    }
}

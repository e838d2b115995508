//! The status conditions of ambient mode: the waypoints of objects, and which proxies enforce
//! policies (Istio's `serviceregistry/ambient/statusqueue`, and the conditions in
//! `model/service.go`).

mod binding;
mod policy;

use bytes::Bytes;
use serde_json::{Value, json};

use navarch_api::istio::{AuthorizationPolicy, ServiceEntry, WorkloadEntry};
use navarch_api::kubernetes::Service;
use navarch_api::names::ResourceName;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_push::Stored;
use navarch_push::view::View;

/// The kinds that get conditions.
const KINDS: [Kind; 4] = [
    Kind::Service,
    Kind::ServiceEntry,
    Kind::WorkloadEntry,
    Kind::AuthorizationPolicy,
];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// The status: whether the condition is true.
    is_true: bool,
    reason: &'static str,
    message: String,
    /// `observedGeneration`, if set.
    generation: Option<i64>,
}

/// All conditions of ambient mode of an object, by type; `None` for those to be removed.
type Conditions = Vec<(&'static str, Option<Condition>)>;

impl Condition {
    /// A condition without a generation, which does not depend on the object's spec.
    fn new(is_true: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_true,
            reason,
            message: message.into(),
            generation: None,
        }
    }

    /// The condition as JSON, without `lastTransitionTime`, which the writer adds.
    fn to_json(&self, kind: &str) -> Value {
        let mut condition = json!({
            "type": kind,
            "status": if self.is_true { "True" } else { "False" },
            "reason": self.reason,
            "message": self.message,
        });
        if let (Some(generation), Some(members)) = (self.generation, condition.as_object_mut()) {
            // In Istio's conditions it is a string.
            members.insert(
                "observedGeneration".to_owned(),
                json!(generation.to_string()),
            );
        }
        condition
    }
}

/// The object whose status has this name; `None` if it has no conditions of ambient mode.
#[must_use]
pub fn subject(name: &str) -> Option<ObjectRef> {
    let mut parts = name.splitn(3, '/');
    let name = parts.next()?;
    let namespace = parts.next()?;
    let object = parts.next()?;
    let kind = KINDS.into_iter().find(|kind| kind.as_str() == name)?;
    Some(ObjectRef {
        kind,
        name: NamespacedName::new(namespace, object),
    })
}

/// The names of all statuses with at least one condition.
pub(crate) fn names(view: &View<'_>) -> Vec<ResourceName> {
    fn of<T: Stored>(view: &View<'_>, all: &mut Vec<ResourceName>) {
        let kind = T::KIND.as_str();
        let names = view
            .names::<T>()
            .map(|name| format!("{kind}/{}/{}", name.namespace, name.name));
        all.extend(names.map(ResourceName::new));
    }
    let mut all = Vec::new();
    if view.mesh().settings.ambient {
        of::<Service>(view, &mut all);
        of::<ServiceEntry>(view, &mut all);
        of::<WorkloadEntry>(view, &mut all);
        of::<AuthorizationPolicy>(view, &mut all);
    }
    all
}

/// The desired status of an object: its conditions, and the types of those to be removed.
pub(crate) fn resource(object: &ObjectRef, view: &View<'_>) -> Option<Bytes> {
    if !view.mesh().settings.ambient {
        return None;
    }

    let name = &object.name;
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other kinds have no conditions"
    )]
    let conditions = match object.kind {
        Kind::Service => binding::of_service(name, view)?,
        Kind::ServiceEntry => binding::of_service_entry(name, view)?,
        Kind::WorkloadEntry => binding::of_workload_entry(name, view)?,
        Kind::AuthorizationPolicy => policy::of_policy(name, view)?,
        _ => return None,
    };

    let has = conditions
        .iter()
        .filter_map(|(kind, condition)| Some(condition.as_ref()?.to_json(kind)));
    let has: Vec<Value> = has.collect();
    let without = conditions
        .iter()
        .filter(|(_, condition)| condition.is_none())
        .map(|(kind, _)| *kind);
    let without: Vec<&str> = without.collect();

    Some(Bytes::from(
        json!({ "conditions": has, "withoutConditions": without }).to_string(),
    ))
}

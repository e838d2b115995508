//! What objects are told of ambient mode: which waypoint is before them, and who enforces policies (Istio's
//! `serviceregistry/ambient/statusqueue`, and the conditions in `model/service.go`).

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

/// The kinds that are told.
const KINDS: [Kind; 4] = [Kind::Service, Kind::ServiceEntry, Kind::WorkloadEntry, Kind::AuthorizationPolicy];

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// Whether what its type says is so.
    is_true: bool,
    /// Why, in one word.
    reason: &'static str,
    /// Why, in words.
    message: String,
    /// The generation that was judged, where it matters.
    generation: Option<i64>,
}

/// All conditions that an object may have from here, by type; `None` for those that it is not to have.
type Conditions = Vec<(&'static str, Option<Condition>)>;

impl Condition {
    /// One that does not rest on what the object specifies.
    fn new(is_true: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_true, reason, message: message.into(), generation: None }
    }

    /// As a status holds it. When it last changed is for the writer to say.
    fn to_json(&self, kind: &str) -> Value {
        let mut condition = json!({
            "type": kind,
            "status": if self.is_true { "True" } else { "False" },
            "reason": self.reason,
            "message": self.message,
        });
        if let (Some(generation), Some(members)) = (self.generation, condition.as_object_mut()) {
            // Istio's conditions have it as a text.
            members.insert("observedGeneration".to_owned(), json!(generation.to_string()));
        }
        condition
    }
}

/// The object whose status has this name; `None` where it has nothing to do with ambient mode.
#[must_use]
pub fn subject(name: &str) -> Option<ObjectRef> {
    let mut parts = name.splitn(3, '/');
    let (name, namespace, object) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = KINDS.into_iter().find(|kind| kind.as_str() == name)?;
    Some(ObjectRef { kind, name: NamespacedName::new(namespace, object) })
}

/// The names of the statuses of all objects that are told anything.
pub(crate) fn names(view: &View<'_>) -> Vec<ResourceName> {
    fn of<T: Stored>(view: &View<'_>, all: &mut Vec<ResourceName>) {
        let kind = T::KIND.as_str();
        let names = view.names::<T>().map(|name| format!("{kind}/{}/{}", name.namespace, name.name));
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

/// What the status of an object should say: its conditions, and the types of those that it should not have.
pub(crate) fn resource(object: &ObjectRef, view: &View<'_>) -> Option<Bytes> {
    if !view.mesh().settings.ambient {
        return None;
    }
    let name = &object.name;
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are told nothing")]
    let conditions = match object.kind {
        Kind::Service => binding::of_service(name, view)?,
        Kind::ServiceEntry => binding::of_service_entry(name, view)?,
        Kind::WorkloadEntry => binding::of_workload_entry(name, view)?,
        Kind::AuthorizationPolicy => policy::of_policy(name, view)?,
        _ => return None,
    };
    let has = conditions.iter().filter_map(|(kind, condition)| Some(condition.as_ref()?.to_json(kind)));
    let has: Vec<Value> = has.collect();
    let without = conditions.iter().filter(|(_, condition)| condition.is_none()).map(|(kind, _)| *kind);
    let without: Vec<&str> = without.collect();
    Some(Bytes::from(json!({ "conditions": has, "withoutConditions": without }).to_string()))
}

//! Tells objects that they are quarantined: a condition in their status, of routes of the Gateway API for each of their parents, and an
//! Event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Resource as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use navarch_api::crds;
use navarch_api::decode::served_versions;
use navarch_api::object::{Kind, ObjectRef};
use navarch_kubernetes::{InWords, status_patch};

/// The type of the condition.
const TYPE: &str = "Quarantined";
/// How long it is waited before what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest note of an Event.
const NOTE: usize = 1024;

/// The objects that are quarantined here, each with what the proxy said.
pub type QuarantinedObjects = Arc<BTreeMap<ObjectRef, Arc<str>>>;

/// Writes conditions and Events.
#[derive(Clone, Debug)]
pub struct QuarantineReports {
    /// Cluster that is written to.
    pub cluster: Cluster,
    /// This replica.
    pub identity: String,
    /// The controller in whose name routes of the Gateway API are told of their parents.
    pub controller: String,
    /// Objects that are in quarantine now.
    pub quarantined: watch::Receiver<QuarantinedObjects>,
}

impl QuarantineReports {
    /// Runs until told to stop. What cannot be written is logged and tried again.
    pub async fn run(mut self, stop: CancellationToken) {
        let reporter = Reporter { controller: "navarch".to_owned(), instance: Some(self.identity.clone()) };
        let recorder = Recorder::new(self.cluster.0.clone(), reporter);
        let mut told: BTreeMap<ObjectRef, Arc<str>> = BTreeMap::new();
        loop {
            let now = self.quarantined.borrow_and_update().clone();
            let are_all_told = self.tell_all(&recorder, &now, &mut told).await;
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.quarantined.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(AGAIN), if !are_all_told => {}
            }
        }
    }

    /// Tells those objects that were told otherwise. Whether all could be.
    async fn tell_all(
        &self,
        recorder: &Recorder,
        now: &BTreeMap<ObjectRef, Arc<str>>,
        told: &mut BTreeMap<ObjectRef, Arc<str>>,
    ) -> bool {
        let mut are_all_told = true;
        for (name, said) in now {
            if told.get(name) == Some(said) {
                continue;
            }
            if self.tell(recorder, name, Some(said)).await {
                told.insert(name.clone(), said.clone());
            } else {
                are_all_told = false;
            }
        }
        let gone: Vec<ObjectRef> = told.keys().filter(|name| !now.contains_key(*name)).cloned().collect();
        for name in gone {
            if self.tell(recorder, &name, None).await {
                told.remove(&name);
            } else {
                are_all_told = false;
            }
        }
        are_all_told
    }

    /// Tells one object that it is quarantined, for what a proxy said, or that it is no more. Whether it could be.
    async fn tell(&self, recorder: &Recorder, name: &ObjectRef, said: Option<&Arc<str>>) -> bool {
        let Some(resource) = resource_of(name.kind) else { return true };
        let objects =
            Api::<DynamicObject>::namespaced_with(self.cluster.0.clone(), name.name.namespace.as_str(), &resource);
        let outcome = async {
            let Some(object) = objects.get_opt(&name.name.name).await? else { return Ok(()) };
            if let Some(said) = said {
                let note: String = format!("Proxies refuse what it makes; the version before it is served: {said}")
                    .chars()
                    .take(NOTE)
                    .collect();
                let event = Event {
                    type_: EventType::Warning,
                    reason: "Quarantined".to_owned(),
                    note: Some(note),
                    action: "Quarantine".to_owned(),
                    secondary: None,
                };
                recorder.publish(&event, &object.object_ref(&resource)).await?;
            }
            let status = object.data.get("status");
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let said = said.map(|said| &**said);
            let corrections = if is_route(name.kind) {
                parents_corrections(status, said, &now, &self.controller)
            } else {
                let of_all = correction(status, said, &now);
                of_all.map(|conditions| ("conditions".to_owned(), conditions)).into_iter().collect()
            };
            if corrections.is_empty() {
                return Ok(());
            }
            let patch = status_patch(object.metadata.resource_version.clone(), status.is_some(), corrections)?;
            objects.patch_status(&name.name.name, &PatchParams::default(), &patch).await.map(drop)
        };
        let outcome: Result<(), kube::Error> = outcome.await;
        outcome
            .inspect_err(|error| tracing::warn!(object = %name, error = %InWords(error), "failed to tell an object of its quarantine"))
            .is_ok()
    }
}

/// How objects of a kind are asked for; `None` for kinds whose objects are not told.
fn resource_of(kind: Kind) -> Option<ApiResource> {
    if is_route(kind) {
        let version = served_versions(kind).first()?;
        return Some(ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), version, kind.as_str())));
    }
    let defined = crds::kinds().find(|defined| defined.kind == kind.as_str() && defined.group == kind.group())?;
    let gvk = GroupVersionKind::gvk(&defined.group, defined.version, defined.kind);
    Some(ApiResource::from_gvk_with_plural(&gvk, defined.plural))
}

/// Whether objects of a kind are told of each of their parents by itself.
fn is_route(kind: Kind) -> bool {
    matches!(kind, Kind::HttpRoute | Kind::GrpcRoute)
}

/// The conditions that the parents of a route should have, each with its place, in the entries of a controller.
fn parents_corrections(
    status: Option<&Value>,
    said: Option<&str>,
    now: &str,
    controller: &str,
) -> Vec<(String, Vec<Value>)> {
    let parents = status.and_then(|status| status.get("parents")).and_then(Value::as_array);
    let ours = |(_, entry): &(usize, &Value)| entry.get("controllerName").is_some_and(|name| name == controller);
    let parents = parents.into_iter().flatten().enumerate().filter(ours);
    let correct = |(at, entry): (usize, &Value)| {
        let mut conditions = correction(Some(entry), said, now)?;
        // These conditions are held to their schema, which has no other time.
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("lastProbeTime");
        }
        Some((format!("parents/{at}/conditions"), conditions))
    };
    parents.filter_map(correct).collect()
}

/// The conditions that a status should have; `None` when they are right. Those of others stay as they are, in their places.
fn correction(status: Option<&Value>, said: Option<&str>, now: &str) -> Option<Vec<Value>> {
    let conditions = status.and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let mut conditions = conditions.cloned().unwrap_or_default();
    let place = conditions.iter().position(|condition| condition.get("type").is_some_and(|name| name == TYPE));
    let value = if said.is_some() { "True" } else { "False" };
    let before = place.and_then(|place| conditions.get(place));
    if before.is_none() && said.is_none() {
        return None;
    }
    let condition = json!({
        "type": TYPE, "status": value, "reason": if said.is_some() { "RefusedByProxies" } else { "Edited" },
        "message": said.unwrap_or_default(), "lastProbeTime": now, "lastTransitionTime": now,
    });
    let is = |member: &str| before.and_then(|before| before.get(member)) == condition.get(member);
    if is("status") && is("message") {
        return None;
    }
    match place.and_then(|place| conditions.get_mut(place)) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    Some(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_told_for_each_parent_of_ours() {
        let entry = |controller: &str| json!({ "controllerName": controller, "conditions": [{ "type": "Accepted" }] });
        let status = json!({ "parents": [entry("other"), entry("ours"), entry("ours")] });
        let told = parents_corrections(Some(&status), Some("no such filter"), "t1", "ours");
        let places: Vec<&str> = told.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["parents/1/conditions", "parents/2/conditions"]);
        let (_, conditions) = &told[0];
        assert_eq!((&conditions[0]["type"], &conditions[1]["status"]), (&json!("Accepted"), &json!("True")));
        assert_eq!(conditions[1].get("lastProbeTime"), None);
        assert_eq!(parents_corrections(Some(&status), None, "t2", "ours"), []);
        assert_eq!(resource_of(Kind::HttpRoute).map(|resource| resource.plural).as_deref(), Some("httproutes"));
        assert_eq!(resource_of(Kind::Pod), None);
    }

    #[test]
    fn one_condition_is_kept_right_among_those_of_others() {
        let theirs = json!({ "type": "Mine", "status": "True" });
        assert_eq!(correction(Some(&json!({ "conditions": [theirs] })), None, "t0"), None);
        let first = correction(Some(&json!({ "conditions": [theirs] })), Some("no such filter"), "t1").unwrap();
        assert_eq!(
            (&first[0], &first[1]["status"], &first[1]["message"]),
            (&theirs, &json!("True"), &json!("no such filter"))
        );
        let told = json!({ "conditions": first });
        assert_eq!(correction(Some(&told), Some("no such filter"), "t2"), None);
        let ended = correction(Some(&told), None, "t3").unwrap();
        assert_eq!((&ended[1]["status"], &ended[1]["reason"]), (&json!("False"), &json!("Edited")));
        assert_eq!(correction(Some(&json!({ "conditions": ended })), None, "t4"), None);
    }
}

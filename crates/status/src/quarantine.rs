//! Tells objects that they are quarantined: a condition in their status, and an Event.

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
use navarch_api::object::ObjectRef;
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
        let Some(kind) = crds::kinds().find(|kind| kind.kind == name.kind.as_str() && kind.group == name.kind.group())
        else {
            return true;
        };
        let gvk = GroupVersionKind::gvk(&kind.group, kind.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
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
            let Some(conditions) = correction(status, said.map(|said| &**said), &now) else { return Ok(()) };
            let conditions = [("conditions", json!(conditions))];
            let patch = status_patch(object.metadata.resource_version.clone(), status.is_some(), conditions)?;
            objects.patch_status(&name.name.name, &PatchParams::default(), &patch).await.map(drop)
        };
        let outcome: Result<(), kube::Error> = outcome.await;
        outcome
            .inspect_err(|error| tracing::warn!(object = %name, error = %InWords(error), "failed to tell an object of its quarantine"))
            .is_ok()
    }
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

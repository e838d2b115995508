//! Reports whether all proxies have an object as it is written: by a condition in the object's
//! status, for Gateway API routes in the status of each parent, and by an Event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Resource as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::conditions::Conditions;
use super::denials::Denials;
use super::events::{Events, Warning};
use navarch_api::crds;
use navarch_api::decode::served_versions;
use navarch_api::object::{Kind, ObjectRef};
use navarch_kubernetes::{InWords, is_stale, status_patch};

/// Delay before failed writes are retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Maximum number of immediate retries of a write conflict.
const MAX_ATTEMPTS: usize = 5;

/// The kind of report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedCondition {
    /// `Quarantined`: proxies reject the configuration of the object.
    Quarantined,
    /// `RolledOut`: all proxies have the object as it is written.
    RolledOut,
}

/// The condition that an object should have, and the Event about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectReport {
    /// Whether the condition is true.
    pub is_true: bool,
    /// The condition's reason.
    pub reason: &'static str,
    /// The condition's message.
    pub message: Arc<str>,
    /// The note of a warning Event, if one is written.
    pub warning: Option<Arc<str>>,
}

/// The reports to write; an object without one has its condition ended.
pub type ReportedObjects = Arc<BTreeMap<ObjectRef, ObjectReport>>;

#[derive(Debug, Default)]
struct WrittenReports {
    conditions: BTreeMap<ObjectRef, ObjectReport>,
    events: BTreeMap<ObjectRef, ObjectReport>,
}

/// Writes conditions and Events.
#[derive(Clone, Debug)]
pub struct ObjectReports {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The name of this replica.
    pub identity: String,
    /// The controller name of parent statuses of Gateway API routes.
    pub controller: String,
    /// The condition that is written.
    pub condition: ReportedCondition,
    /// The current reports by object.
    pub reported: watch::Receiver<ReportedObjects>,
}

impl ReportedCondition {
    /// The condition's type.
    fn name(self) -> &'static str {
        match self {
            Self::Quarantined => "Quarantined",
            Self::RolledOut => "RolledOut",
        }
    }

    /// The action of an Event.
    fn action(self) -> &'static str {
        match self {
            Self::Quarantined => "Quarantine",
            Self::RolledOut => "Rollout",
        }
    }

    /// The report that replaces an earlier one when the object needs none any more.
    fn end(self) -> ObjectReport {
        let (is_true, reason) = match self {
            Self::Quarantined => (false, "Edited"),
            Self::RolledOut => (true, "Complete"),
        };
        ObjectReport {
            is_true,
            reason,
            message: Arc::default(),
            warning: None,
        }
    }
}

impl ObjectReports {
    /// Runs until `stop` is cancelled. Failed writes are logged and retried.
    pub async fn run(mut self, stop: CancellationToken) {
        let events = Events {
            cluster: self.cluster.clone(),
            identity: self.identity.clone(),
            denials: Denials::default(),
        };
        let mut written = WrittenReports::default();
        loop {
            let now = self.reported.borrow_and_update().clone();
            let are_all_written = self.write_all(&events, &now, &mut written).await;
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.reported.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY_DELAY), if !are_all_written => {}
            }
        }
    }

    /// Writes the reports that have changed. Returns whether all writes succeeded.
    async fn write_all(
        &self,
        events: &Events,
        now: &BTreeMap<ObjectRef, ObjectReport>,
        written: &mut WrittenReports,
    ) -> bool {
        let mut are_all_written = true;

        for (name, report) in now {
            if written.conditions.get(name) == Some(report) {
                continue;
            }

            let warns = written.events.get(name) != Some(report);
            match self.write_report(events, name, Some(report), warns).await {
                Ok(is_there) => {
                    written.events.insert(name.clone(), report.clone());
                    // A route without parents has no place for the condition yet.
                    are_all_written &= is_there;
                    if is_there {
                        written.conditions.insert(name.clone(), report.clone());
                    }
                }
                Err(error) => are_all_written = failed(events, name, &error),
            }
        }

        let gone: Vec<ObjectRef> = written
            .events
            .keys()
            .filter(|name| !now.contains_key(*name))
            .cloned()
            .collect();

        for name in gone {
            match self.write_report(events, &name, None, false).await {
                Ok(_) => {
                    written.conditions.remove(&name);
                    written.events.remove(&name);
                }
                Err(error) => are_all_written = failed(events, &name, &error),
            }
        }

        are_all_written
    }

    /// Writes the condition of one object or clears it, and creates a warning Event if wanted.
    /// Returns whether the object has a place for the condition.
    async fn write_report(
        &self,
        events: &Events,
        name: &ObjectRef,
        report: Option<&ObjectReport>,
        warns: bool,
    ) -> Result<bool, kube::Error> {
        let Some(resource) = resource_of(name.kind) else {
            return Ok(true);
        };

        let objects = Api::<DynamicObject>::namespaced_with(
            self.cluster.0.clone(),
            name.name.namespace.as_str(),
            &resource,
        );
        let Some(object) = objects.get_opt(&name.name.name).await? else {
            return Ok(true);
        };

        let warning = report
            .filter(|_| warns)
            .and_then(|report| Some((report, report.warning.as_ref()?)));
        if let Some((report, warning)) = warning {
            let reason = match self.condition {
                ReportedCondition::Quarantined => self.condition.name(),
                ReportedCondition::RolledOut => report.reason,
            };
            let warning = Warning {
                reason,
                action: self.condition.action(),
                note: warning,
            };
            events.warn(object.object_ref(&resource), warning).await?;
        }

        self.write(&objects, object, name, report).await
    }

    /// Writes the condition into the status of an object. Returns whether the status has a place
    /// for it. Conflicts with other writers of the status are retried at once.
    async fn write(
        &self,
        objects: &Api<DynamicObject>,
        mut object: DynamicObject,
        name: &ObjectRef,
        report: Option<&ObjectReport>,
    ) -> Result<bool, kube::Error> {
        for _ in 1..MAX_ATTEMPTS {
            match self.patch(objects, &object, name, report).await {
                Err(error) if is_stale(&error) => {}
                outcome => return outcome,
            }
            let Some(now) = objects.get_opt(&name.name.name).await? else {
                return Ok(true);
            };
            object = now;
        }
        self.patch(objects, &object, name, report).await
    }

    /// Writes the condition, if the object is unchanged. Returns whether the status has a place for
    /// it.
    async fn patch(
        &self,
        objects: &Api<DynamicObject>,
        object: &DynamicObject,
        name: &ObjectRef,
        report: Option<&ObjectReport>,
    ) -> Result<bool, kube::Error> {
        let status = object.data.get("status");
        let now = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let corrections = if is_route(name.kind) {
            let of_parents =
                parents_corrections(status, self.condition, report, &now, &self.controller);
            let Some(of_parents) = of_parents else {
                return Ok(false);
            };
            of_parents
        } else {
            let of_all = correction(status, self.condition, report, &now);
            of_all
                .map(|conditions| ("conditions".to_owned(), conditions))
                .into_iter()
                .collect()
        };

        if corrections.is_empty() {
            return Ok(true);
        }

        let patch = status_patch(
            object.metadata.resource_version.clone(),
            status.is_some(),
            corrections,
        )?;

        objects
            .patch_status(&name.name.name, &PatchParams::default(), &patch)
            .await
            .map(|_| true)
    }
}

/// Logs a failed write; returns `false`. Istio's charts give no right to the statuses of its kinds
/// unless analysis is on.
fn failed(events: &Events, name: &ObjectRef, error: &kube::Error) -> bool {
    if events.denials.covers(name.kind.as_str(), error) {
        return false;
    }
    tracing::warn!(object = %name, error = %InWords(error), "failed to write the object's status condition");
    false
}

/// The API resource of a kind; `None` for kinds without reports.
fn resource_of(kind: Kind) -> Option<ApiResource> {
    if is_route(kind) {
        let version = served_versions(kind).first()?;
        return Some(ApiResource::from_gvk(&GroupVersionKind::gvk(
            kind.group(),
            version,
            kind.as_str(),
        )));
    }
    let defined = crds::kinds()
        .find(|defined| defined.kind == kind.as_str() && defined.group == kind.group())?;
    let gvk = GroupVersionKind::gvk(&defined.group, defined.version, defined.kind);
    Some(ApiResource::from_gvk_with_plural(&gvk, defined.plural))
}

/// Whether objects of a kind have a status for each parent.
fn is_route(kind: Kind) -> bool {
    matches!(kind, Kind::HttpRoute | Kind::GrpcRoute)
}

/// The corrected conditions of the parents in the entries of a controller, each with its path in
/// the status; `None` if it has no entries.
fn parents_corrections(
    status: Option<&Value>,
    condition: ReportedCondition,
    report: Option<&ObjectReport>,
    now: &str,
    controller: &str,
) -> Option<Vec<(String, Vec<Value>)>> {
    let parents = status
        .and_then(|status| status.get("parents"))
        .and_then(Value::as_array);
    let ours = |(_, entry): &(usize, &Value)| {
        entry
            .get("controllerName")
            .is_some_and(|name| name == controller)
    };

    let parents: Vec<(usize, &Value)> = parents
        .into_iter()
        .flatten()
        .enumerate()
        .filter(ours)
        .collect();

    let correct = |(at, entry): (usize, &Value)| {
        let mut conditions = correction(Some(entry), condition, report, now)?;
        // The schema of these conditions has no time besides `lastTransitionTime`.
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("lastProbeTime");
        }
        Some((format!("parents/{at}/conditions"), conditions))
    };

    (!parents.is_empty()).then(|| parents.into_iter().filter_map(correct).collect())
}

/// The corrected conditions of a status; `None` if it is up to date. Other conditions keep their
/// content and order.
fn correction(
    status: Option<&Value>,
    condition: ReportedCondition,
    report: Option<&ObjectReport>,
    now: &str,
) -> Option<Vec<Value>> {
    let name = condition.name();
    let conditions = Conditions::of(status, name);
    let before = conditions.before();
    if before.is_none() && report.is_none() {
        return None;
    }

    let report = report.cloned().unwrap_or_else(|| condition.end());
    let condition = json!({
        "type": name, "status": if report.is_true { "True" } else { "False" }, "reason": report.reason,
        "message": &*report.message, "lastProbeTime": now, "lastTransitionTime": now,
    });

    let is = |member: &str| before.and_then(|before| before.get(member)) == condition.get(member);
    if is("status") && is("message") && is("reason") {
        return None;
    }
    Some(conditions.with(condition))
}

#[cfg(test)]
mod tests {
    use super::ReportedCondition::Quarantined;
    use super::*;

    fn nack(message: &str) -> ObjectReport {
        ObjectReport {
            is_true: true,
            reason: "RefusedByProxies",
            message: message.into(),
            warning: None,
        }
    }

    #[test]
    fn route_status_has_an_entry_for_each_own_parent() {
        let entry = |controller: &str| json!({ "controllerName": controller, "conditions": [{ "type": "Accepted" }] });
        let status = json!({ "parents": [entry("other"), entry("ours"), entry("ours")] });
        let corrections = parents_corrections(
            Some(&status),
            Quarantined,
            Some(&nack("no such filter")),
            "t1",
            "ours",
        )
        .unwrap();
        let places: Vec<&str> = corrections
            .iter()
            .map(|(place, _)| place.as_str())
            .collect();
        assert_eq!(places, ["parents/1/conditions", "parents/2/conditions"]);
        let (_, conditions) = &corrections[0];
        assert_eq!(
            (&conditions[0]["type"], &conditions[1]["status"]),
            (&json!("Accepted"), &json!("True"))
        );

        assert_eq!(conditions[1].get("lastProbeTime"), None);
        assert_eq!(
            parents_corrections(Some(&status), Quarantined, None, "t2", "ours"),
            Some(Vec::new())
        );

        // Before the controller has written of its parents there is no place.
        let empty = json!({ "parents": [entry("other")] });
        for status in [None, Some(&empty)] {
            assert_eq!(
                parents_corrections(status, Quarantined, Some(&nack("no")), "t3", "ours"),
                None
            );
        }

        assert_eq!(
            resource_of(Kind::HttpRoute)
                .map(|resource| resource.plural)
                .as_deref(),
            Some("httproutes")
        );

        assert_eq!(resource_of(Kind::Pod), None);
    }

    #[test]
    fn one_condition_is_corrected_and_those_of_others_stay() {
        let theirs = json!({ "type": "Mine", "status": "True" });
        let report = nack("no such filter");
        assert_eq!(
            correction(
                Some(&json!({ "conditions": [theirs] })),
                Quarantined,
                None,
                "t0"
            ),
            None
        );

        let first = correction(
            Some(&json!({ "conditions": [theirs] })),
            Quarantined,
            Some(&report),
            "t1",
        )
        .unwrap();
        assert_eq!(
            (&first[0], &first[1]["status"], &first[1]["message"]),
            (&theirs, &json!("True"), &json!("no such filter"))
        );

        let status = json!({ "conditions": first });
        assert_eq!(
            correction(Some(&status), Quarantined, Some(&report), "t2"),
            None
        );
        let ended = correction(Some(&status), Quarantined, None, "t3").unwrap();
        assert_eq!(
            (&ended[1]["status"], &ended[1]["reason"]),
            (&json!("False"), &json!("Edited"))
        );

        assert_eq!(
            correction(
                Some(&json!({ "conditions": ended })),
                Quarantined,
                None,
                "t4"
            ),
            None
        );

        // Another condition stands beside it.
        let stage = ObjectReport {
            is_true: false,
            reason: "Rolling",
            message: "stage 1 of 3".into(),
            warning: None,
        };

        let both = correction(
            Some(&status),
            ReportedCondition::RolledOut,
            Some(&stage),
            "t5",
        )
        .unwrap();
        assert_eq!(
            (&both[1]["type"], &both[2]["status"]),
            (&json!("Quarantined"), &json!("False"))
        );

        let status = json!({ "conditions": both });
        let complete = correction(Some(&status), ReportedCondition::RolledOut, None, "t6").unwrap();
        assert_eq!(
            (&complete[2]["status"], &complete[2]["reason"]),
            (&json!("True"), &json!("Complete"))
        );
    }
}

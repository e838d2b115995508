//! The connection state in a WorkloadEntry's annotations, and its transitions. The annotations are
//! istiod's.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// The annotation with the group of an auto-registered entry.
pub(super) const GROUP: &str = "istio.io/autoRegistrationGroup";
/// The annotation with the control plane that has the connection.
const CONTROLLER: &str = "istio.io/workloadController";
/// The annotation with the time of the connection.
const CONNECTED: &str = "istio.io/connectedAt";
/// The annotation with the time of the disconnect.
const DISCONNECTED: &str = "istio.io/disconnectedAt";
/// The annotation of entries with health checks.
pub(super) const CHECKED: &str = "proxy.istio.io/health-checks-enabled";
/// The condition type of the health.
pub(super) const HEALTHY: &str = "Healthy";

pub(super) type Annotations = BTreeMap<String, String>;

/// A connection of a workload to a control plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection<'a> {
    /// The control plane.
    pub(super) instance: &'a str,
    /// When the connection began.
    pub(super) at: Timestamp,
}

impl Connection<'_> {
    /// Writes the connection into annotations.
    pub(super) fn write(&self, annotations: &mut Annotations) {
        annotations.insert(CONTROLLER.to_owned(), self.instance.to_owned());
        annotations.insert(CONNECTED.to_owned(), self.at.to_string());
        annotations.remove(DISCONNECTED);
    }

    /// The annotations after this connection; `None` if this or a later one is already written.
    pub(super) fn begun(&self, annotations: &Annotations) -> Option<Annotations> {
        if moment(annotations, DISCONNECTED).is_some_and(|ended| self.at < ended) {
            return None;
        }
        let is_known = moment(annotations, CONNECTED).is_some_and(|begun| {
            self.at < begun || self.at == begun && is_controller(annotations, self.instance)
        });
        if is_known {
            return None;
        }
        let mut annotations = annotations.clone();
        self.write(&mut annotations);
        Some(annotations)
    }

    /// The annotations after its end at `now`; `None` if another connection is current.
    pub(super) fn ended(&self, annotations: &Annotations, now: Timestamp) -> Option<Annotations> {
        if !is_controller(annotations, self.instance) {
            return None;
        }
        // Without a connection time, the disconnect is already written.
        if moment(annotations, CONNECTED).is_none_or(|begun| begun > self.at) {
            return None;
        }
        let mut annotations = annotations.clone();
        annotations.remove(CONNECTED);
        annotations.insert(DISCONNECTED.to_owned(), now.to_string());
        Some(annotations)
    }
}

/// The cleanup of an entry whose workload is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleanup {
    /// It was auto-registered: it is deleted.
    Delete,
    /// It was written by users: only its health condition is removed.
    Forget,
}

/// The cleanup of an entry at `now`, if any. An entry is cleaned up if its workload was
/// disconnected for `grace`, or has been connected for longer than any connection lasts.
pub(super) fn cleanup(
    annotations: &Annotations,
    status: Option<&Value>,
    now: Timestamp,
    grace: Duration,
    longest: Option<Duration>,
) -> Option<Cleanup> {
    let is_past =
        |at: Timestamp, span: Duration| now.duration_since(at).unsigned_abs() >= span && at <= now;

    if let Some(begun) = annotations.get(CONNECTED).filter(|begun| !begun.is_empty()) {
        let begun = begun.parse::<Timestamp>().ok()?;
        if !is_past(begun, longest?) {
            return None;
        }
    } else {
        let ended = annotations
            .get(DISCONNECTED)
            .filter(|ended| !ended.is_empty())?;
        // An invalid time counts as long past.
        if ended
            .parse()
            .is_ok_and(|ended: Timestamp| !is_past(ended, grace))
        {
            return None;
        }
    }

    let has = |name: &str| annotations.get(name).is_some_and(|value| !value.is_empty());
    if has(GROUP) {
        Some(Cleanup::Delete)
    } else {
        (has(CONTROLLER) && condition(status).is_some()).then_some(Cleanup::Forget)
    }
}

/// Whether this control plane has the connection.
pub(super) fn is_controller(annotations: &Annotations, instance: &str) -> bool {
    annotations
        .get(CONTROLLER)
        .is_some_and(|controller| controller == instance)
}

/// The health of a workload as reported by its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadHealth {
    /// The probe of the agent succeeds: the condition `Healthy` becomes `True`, without a message.
    Healthy,
    /// Unhealthy, and why.
    Unhealthy(String),
}

/// The conditions with a health reported at `now`; `None` if there is a later report.
pub(super) fn with_health(
    status: Option<&Value>,
    health: &WorkloadHealth,
    now: Timestamp,
) -> Option<Vec<Value>> {
    let later = condition(status).and_then(|health_condition| {
        health_condition
            .get("lastProbeTime")?
            .as_str()?
            .parse::<Timestamp>()
            .ok()
    });

    if later.is_some_and(|later| later > now) {
        return None;
    }

    let (verdict, message) = match health {
        WorkloadHealth::Healthy => ("True", None),
        WorkloadHealth::Unhealthy(message) => ("False", Some(message)),
    };
    let now = now.to_string();
    let mut health_condition = serde_json::json!({
        "type": HEALTHY, "status": verdict, "lastProbeTime": now, "lastTransitionTime": now,
    });
    if let (Some(message), Some(health_condition)) = (message, health_condition.as_object_mut()) {
        health_condition.insert("message".to_owned(), Value::String(message.clone()));
    }

    let mut conditions = conditions(status);
    match conditions.iter_mut().find(|condition| is_health(condition)) {
        Some(before) => *before = health_condition,
        None => conditions.push(health_condition),
    }

    Some(conditions)
}

/// The conditions without the health.
pub(super) fn without_health(status: Option<&Value>) -> Vec<Value> {
    conditions(status)
        .into_iter()
        .filter(|condition| !is_health(condition))
        .collect()
}

fn conditions(status: Option<&Value>) -> Vec<Value> {
    let conditions = status
        .and_then(|status| status.get("conditions"))
        .and_then(Value::as_array);
    conditions.cloned().unwrap_or_default()
}

/// The health condition.
fn condition(status: Option<&Value>) -> Option<&Value> {
    status?
        .get("conditions")?
        .as_array()?
        .iter()
        .find(|condition| is_health(condition))
}

fn is_health(condition: &Value) -> bool {
    condition.get("type").is_some_and(|name| name == HEALTHY)
}

fn moment(annotations: &Annotations, name: &str) -> Option<Timestamp> {
    annotations.get(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn by(instance: &'static str, second: i64) -> Connection<'static> {
        Connection {
            instance,
            at: at(second),
        }
    }

    #[test]
    fn late_events_of_older_connections_are_ignored() {
        let first = by("a", 10).begun(&Annotations::new()).unwrap();
        assert!(is_controller(&first, "a"));
        assert_eq!(by("a", 10).begun(&first), None, "it is written already");
        assert_eq!(by("b", 9).begun(&first), None, "it has been there before");
        let second = by("b", 11).begun(&first).unwrap();
        assert_eq!(
            by("a", 10).ended(&second, at(12)),
            None,
            "the workload has moved on"
        );

        let again = by("b", 13).begun(&second).unwrap();
        assert_eq!(
            by("b", 11).ended(&again, at(14)),
            None,
            "it is back already"
        );
        let ended = by("b", 13).ended(&again, at(15)).unwrap();
        assert_eq!(ended.get(DISCONNECTED).unwrap(), "1970-01-01T00:00:15Z");

        assert!(!ended.contains_key(CONNECTED));
        assert_eq!(
            by("b", 13).ended(&ended, at(16)),
            None,
            "it is written already"
        );
        assert_eq!(by("a", 14).begun(&ended), None, "its end was seen first");
        assert!(
            !by("a", 16)
                .begun(&ended)
                .unwrap()
                .contains_key(DISCONNECTED)
        );
    }

    #[test]
    fn an_entry_is_deleted_after_its_grace_and_user_entries_stay() {
        let grace = Duration::from_secs(10);
        let written = |pairs: &[(&str, &str)]| -> Annotations {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };

        let healthy = json!({ "conditions": [{ "type": HEALTHY, "status": "True" }] });
        let ended = (DISCONNECTED, "1970-01-01T00:00:20Z");
        let own = (GROUP, "g");
        let theirs = (CONTROLLER, "a");

        for (annotations, status, now, expected) in [
            (written(&[own, ended]), None, 29, None),
            (written(&[own, ended]), None, 30, Some(Cleanup::Delete)),
            (written(&[own, ended]), None, 15, None),
            (
                written(&[own, ended, (CONNECTED, "1970-01-01T00:00:19Z")]),
                None,
                90,
                None,
            ),
            (written(&[own]), None, 90, None),
            (
                written(&[own, (DISCONNECTED, "once")]),
                None,
                0,
                Some(Cleanup::Delete),
            ),
            (
                written(&[theirs, ended]),
                Some(&healthy),
                30,
                Some(Cleanup::Forget),
            ),
            (written(&[theirs, ended]), None, 30, None),
            (written(&[ended]), Some(&healthy), 30, None),
        ] {
            assert_eq!(
                cleanup(&annotations, status, at(now), grace, None),
                expected,
                "{annotations:?} {now}"
            );
        }
    }

    #[test]
    fn an_entry_connected_beyond_the_maximum_age_is_stale() {
        let pairs = [
            (GROUP, "g"),
            (CONTROLLER, "a"),
            (CONNECTED, "1970-01-01T00:00:10Z"),
        ];
        let left: Annotations = pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();

        for (longest, now, expected) in [
            (Some(30), 39, None),
            (Some(30), 40, Some(Cleanup::Delete)),
            (Some(30), 5, None),
            (None, 9000, None),
        ] {
            assert_eq!(
                cleanup(
                    &left,
                    None,
                    at(now),
                    Duration::from_secs(1),
                    longest.map(Duration::from_secs)
                ),
                expected,
                "{longest:?} {now}"
            );
        }

        let unreadable = Annotations::from([
            (GROUP.to_owned(), "g".to_owned()),
            (CONNECTED.to_owned(), "once".to_owned()),
        ]);
        assert_eq!(
            cleanup(
                &unreadable,
                None,
                at(9000),
                Duration::ZERO,
                Some(Duration::ZERO)
            ),
            None
        );
    }

    #[test]
    fn health_is_one_condition_among_those_of_others() {
        let status = json!({ "conditions": [{ "type": "Mine" }] });
        let bad = with_health(
            Some(&status),
            &WorkloadHealth::Unhealthy("no".to_owned()),
            at(5),
        )
        .unwrap();
        assert_eq!(
            (&bad[0]["type"], &bad[1]["status"], &bad[1]["message"]),
            (&json!("Mine"), &json!("False"), &json!("no"))
        );

        let status = json!({ "conditions": bad });
        assert_eq!(
            with_health(Some(&status), &WorkloadHealth::Healthy, at(4)),
            None,
            "an old word"
        );
        let good = with_health(Some(&status), &WorkloadHealth::Healthy, at(6)).unwrap();
        assert_eq!(
            (good.len(), &good[1]["status"], &good[1]["message"]),
            (2, &json!("True"), &Value::Null)
        );

        assert_eq!(
            without_health(Some(&json!({ "conditions": good }))),
            [json!({ "type": "Mine" })]
        );
    }
}

//! `/debug/push_status`: rejected configuration with reasons, and the last pushes.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::object::ObjectRef;
use navarch_push::engine::{Faulty, Remark};
use navarch_push::notice::Notice;
use navarch_push::quarantine::Quarantined;
use navarch_push::worker::PushRecord;

/// The status of pushes: istiod's members, by gauge, and Navarch's own: `lastPushes` newest first,
/// `faults` of translation, configuration that translation `skipped`, and `rejected` input by
/// place.
pub(super) async fn push_status(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let looked = state.push.inspect(|inspect| {
        let pushes: Vec<PushRecord> = inspect.pushes.iter().rev().cloned().collect();
        (
            pushes,
            inspect.engine.faults(),
            inspect.engine.remarks(),
            inspect.engine.sizes(),
        )
    });

    let Ok((pushes, faults, remarks, sizes)) = looked.await else {
        return reply::ended();
    };

    let problems = state.problems.all();
    let rejected: Vec<Value> = problems
        .iter()
        .flat_map(|(place, problems)| {
            problems
                .iter()
                .map(move |problem| json!({ "place": &**place, "problem": problem.to_string() }))
        })
        .collect();

    let context = state.push.context();
    let all_quarantined: Vec<Value> = context
        .quarantined
        .iter()
        .map(|(name, one)| quarantined(name, one))
        .collect();

    let mut value = json!({
        "lastPushes": pushes.iter().map(push).collect::<Vec<_>>(),
        "faults": faults.iter().map(fault).collect::<Vec<_>>(),
        "skipped": remarks.iter().map(remark).collect::<Vec<_>>(),
        "rejected": rejected,
        "quarantined": all_quarantined,
        "engine": { "results": sizes.results, "inputs": sizes.facts, "proxies": sizes.subscribers },
    });

    if let Some(members) = value.as_object_mut() {
        members.extend(subjects(&state.push.current().notices()));
    }

    reply::json(&parameters, &value)
}

/// The subjects that each gauge counts. istiod adds to some of them the proxy for which they were
/// found and a description; here a subject applies to all proxies, and descriptions are in
/// `skipped`.
fn subjects<'a>(notices: impl IntoIterator<Item = &'a Notice>) -> Map<String, Value> {
    let mut gauges: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for notice in notices {
        match notice {
            Notice::Subject { gauge, subject } => {
                gauges
                    .entry(gauge)
                    .or_default()
                    .insert(subject.to_string(), json!({}));
            }
            Notice::Patched { .. } | Notice::Failed { .. } => {}
        }
    }
    gauges
        .into_iter()
        .map(|(gauge, subjects)| (gauge.to_owned(), Value::Object(subjects)))
        .collect()
}

fn push(record: &PushRecord) -> Value {
    json!({
        "revision": record.revision,
        "inputs": record.facts,
        "changed": record.changed.iter().map(|fact| format!("{fact:?}")).collect::<Vec<_>>(),
        "published": record.stats.published,
        "subscriptionGroups": record.stats.groups,
        "computed": record.stats.computed,
        "microseconds": u64::try_from(record.took.as_micros()).unwrap_or(u64::MAX),
    })
}

/// One part of the configuration that translation skipped.
fn remark(remark: &Remark) -> Value {
    json!({ "message": &*remark.text, "resources": remark.queries, "furtherResources": remark.further })
}

/// One object whose current version is not effective.
fn quarantined(name: &ObjectRef, one: &Quarantined) -> Value {
    json!({ "object": name.to_string(), "generation": one.generation, "served": one.served, "message": &*one.message })
}

/// One resource that keeps its last valid value.
fn fault(fault: &Faulty) -> Value {
    json!({
        "resource": fault.query,
        "message": &*fault.message,
        "inputs": fault.facts.iter().map(|fact| format!("{fact:?}")).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_status_groups_subjects_by_metric() {
        let subject = |gauge, subject: &str| Notice::Subject {
            gauge,
            subject: subject.into(),
        };
        let patched = Notice::Patched {
            filter: "shop/a".into(),
            kind: "cluster",
        };

        let notices = [
            subject("a", "x"),
            subject("a", "y"),
            subject("b", "x"),
            patched,
        ];
        assert_eq!(
            Value::Object(subjects(&notices)),
            json!({ "a": { "x": {}, "y": {} }, "b": { "x": {} } })
        );
    }
}

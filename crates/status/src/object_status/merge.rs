//! Merges the wanted status into the current one: entries of other controllers and times of
//! conditions stay.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Lists with one entry for each controller and reference.
const LISTS: [EntryList; 2] = [
    EntryList {
        name: "parents",
        reference: "parentRef",
        most: 32,
    },
    EntryList {
        name: "ancestors",
        reference: "ancestorRef",
        most: 16,
    },
];
/// The types of conditions to remove.
const WITHOUT: &str = "withoutConditions";
/// Replaces `listeners`: the listeners whose entries are kept except for the numbers of their
/// routes.
const KEPT_LISTENERS: &str = "keptListeners";
/// Fields that are not removed: reported addresses are kept until they are replaced.
const KEPT: [&str; 3] = ["addresses", "conditions", "supportedFeatures"];
/// The group that identifies Istio's entries without a controller: those of InferencePools.
pub(crate) const ISTIO_GROUP: &str = "networking.istio.io";

/// A list of entries by controller.
struct EntryList {
    name: &'static str,
    /// The field of an entry with the referenced object.
    reference: &'static str,
    /// Maximum number of entries (`maxItems` in the Gateway API's definitions).
    most: usize,
}

/// How much of a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusScope {
    /// The whole status: unwanted fields are removed.
    Whole,
    /// The wanted fields only; other fields are kept.
    Wanted,
}

/// The fields of a status that must change, `null` for those to remove; `None` if the status is up
/// to date. `controllers` are the ones whose entries are written. If the wanted value of a list is
/// `null`, its own entries are removed, and the list too if it is then empty.
#[must_use]
pub fn status_correction(
    status: Option<&Value>,
    wanted: &Map<String, Value>,
    scope: StatusScope,
    controllers: &[&str],
    now: &str,
) -> Option<Map<String, Value>> {
    let nothing = Map::new();
    let had = status.and_then(Value::as_object).unwrap_or(&nothing);
    let mut members = Map::new();

    if let Some(kept) = wanted.get(KEPT_LISTENERS) {
        let after = kept_listeners(had.get("listeners"), kept);
        if had.get("listeners").is_some_and(|before| *before != after) {
            members.insert("listeners".to_owned(), after);
        }
    }

    for (name, value) in wanted
        .iter()
        .filter(|(name, _)| *name != WITHOUT && *name != KEPT_LISTENERS)
    {
        let before = had.get(name);
        let mut after = match (name.as_str(), LISTS.iter().find(|list| list.name == name)) {
            ("conditions", _) => conditions(before, value, wanted.get(WITHOUT), now),
            ("listeners", _) => listeners(before, value, now),
            (_, Some(list)) => entries(before, value, list, controllers, now),
            (_, None) => value.clone(),
        };

        let is_empty = after.as_array().is_some_and(Vec::is_empty);
        if is_empty && value.is_null() {
            if before.is_none() {
                continue;
            }
            after = Value::Null;
        }

        if before != Some(&after)
            && !(is_empty && before.is_none() && !LISTS.iter().any(|list| list.name == name))
        {
            members.insert(name.clone(), after);
        }
    }

    let is_to_go = |name: &&String| {
        scope == StatusScope::Whole && !wanted.contains_key(*name) && !KEPT.contains(&name.as_str())
    };
    let is_kept = |name: &&String| *name == "listeners" && wanted.contains_key(KEPT_LISTENERS);
    for name in had.keys().filter(is_to_go).filter(|name| !is_kept(name)) {
        members.insert(name.clone(), Value::Null);
    }

    (!members.is_empty()).then_some(members)
}

fn list(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Merges conditions; those of other types keep their positions. The transition time changes only
/// with the condition's status.
fn conditions(before: Option<&Value>, wanted: &Value, without: Option<&Value>, now: &str) -> Value {
    let mut conditions = list(before).to_vec();
    let is_of = |condition: &Value, kind: Option<&Value>| condition.get("type") == kind;
    conditions.retain(|condition| {
        !list(without)
            .iter()
            .any(|kind| is_of(condition, Some(kind)))
    });

    for condition in list(Some(wanted)) {
        let kind = condition.get("type");
        let place = conditions.iter_mut().find(|known| is_of(known, kind));
        let known = place
            .as_deref()
            .filter(|known| known.get("status") == condition.get("status"));
        let since = known
            .and_then(|known| known.get("lastTransitionTime"))
            .cloned()
            .unwrap_or_else(|| json!(now));

        let mut condition = condition.clone();
        if let Some(members) = condition.as_object_mut() {
            members.insert("lastTransitionTime".to_owned(), since);
        }

        match place {
            Some(place) => *place = condition,
            None => conditions.push(condition),
        }
    }

    Value::Array(conditions)
}

/// An item whose conditions are merged with those of the previous item.
fn with_conditions(before: Option<&Value>, wanted: &Value, now: &str) -> Value {
    let mut item = wanted.clone();
    let known = before.and_then(|before| before.get("conditions"));
    if let Some(members) = item.as_object_mut()
        && let Some(own) = wanted.get("conditions")
    {
        members.insert("conditions".to_owned(), conditions(known, own, None, now));
    }
    item
}

/// Merges listeners by name; unwanted ones are removed.
fn listeners(before: Option<&Value>, wanted: &Value, now: &str) -> Value {
    let known = |name: Option<&Value>| {
        list(before)
            .iter()
            .find(|listener| listener.get("name") == name)
    };
    list(Some(wanted))
        .iter()
        .map(|listener| with_conditions(known(listener.get("name")), listener, now))
        .collect()
}

/// The existing listeners that are still wanted, each once, with the wanted numbers of routes.
fn kept_listeners(before: Option<&Value>, wanted: &Value) -> Value {
    let mut left: Vec<&Value> = list(Some(wanted)).iter().collect();
    let keep = |listener: &Value| {
        let place = left
            .iter()
            .position(|kept| kept.get("name") == listener.get("name"))?;
        let mut listener = listener.clone();
        if let (Some(members), Some(own)) =
            (listener.as_object_mut(), left.remove(place).as_object())
        {
            members.extend(own.clone());
        }
        Some(listener)
    };
    list(before).iter().filter_map(keep).collect()
}

/// Merges entries by reference: own ones keep their positions, others are kept as they are. New own
/// entries are last, so that the limit drops these and never the others.
fn entries(
    before: Option<&Value>,
    wanted: &Value,
    kind: &EntryList,
    controllers: &[&str],
    now: &str,
) -> Value {
    let reference = kind.reference;
    let is_ours = |entry: &Value| match entry.get("controllerName").and_then(Value::as_str) {
        Some(controller) => controllers.contains(&controller),
        None => entry.get(reference).is_some_and(|about| {
            let name =
                |about: &Value| (about.get("namespace").cloned(), about.get("name").cloned());
            is_of_pool(about)
                || list(Some(wanted))
                    .iter()
                    .filter_map(|own| own.get(reference))
                    .any(|own| name(own) == name(about))
        }),
    };

    let mut left: Vec<&Value> = list(Some(wanted)).iter().collect();
    let mut entries = Vec::new();
    let mut seen = BTreeSet::new();

    for entry in list(before) {
        if !is_ours(entry) {
            entries.push(entry.clone());
            continue;
        }
        let place = left
            .iter()
            .position(|wanted| wanted.get(reference) == entry.get(reference));
        if let Some(place) =
            place.filter(|_| seen.insert(entry.get(reference).map(Value::to_string)))
        {
            entries.push(with_conditions(Some(entry), left.remove(place), now));
        }
    }

    let room = kind.most.saturating_sub(entries.len());
    entries.extend(
        left.into_iter()
            .take(room)
            .map(|wanted| with_conditions(None, wanted, now)),
    );

    Value::Array(entries)
}

/// Whether an entry without a controller, as in InferencePools, is an own one: it refers to one of
/// Istio's parents, or is the default entry that the API server adds.
fn is_of_pool(about: &Value) -> bool {
    let is = |member: &str, text: &str| about.get(member).is_some_and(|value| value == text);
    is("group", ISTIO_GROUP) || is("kind", "Status") && is("name", "default")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A status of a route with entries of these controllers.
    fn route(entries: &[(&str, &str, &str)]) -> Value {
        let entry = |(controller, parent, status): &(&str, &str, &str)| {
            json!({
                "controllerName": controller, "parentRef": { "name": parent },
                "conditions": [{ "type": "Accepted", "status": status }],
            })
        };
        json!({ "parents": entries.iter().map(entry).collect::<Vec<_>>() })
    }

    /// The status after a correction, `None` where it was right.
    fn corrected(status: Option<&Value>, wanted: &Value, now: &str) -> Option<Value> {
        corrected_in(status, wanted, StatusScope::Whole, now)
    }

    /// The same, where only a part of the status is written.
    fn corrected_in(
        status: Option<&Value>,
        wanted: &Value,
        scope: StatusScope,
        now: &str,
    ) -> Option<Value> {
        let members =
            status_correction(status, wanted.as_object().unwrap(), scope, &["ours"], now)?;
        let mut status = status.cloned().unwrap_or_else(|| json!({}));
        for (name, value) in members {
            if value.is_null() {
                status.as_object_mut().unwrap().remove(&name);
            } else {
                status[name] = value;
            }
        }
        Some(status)
    }

    #[test]
    fn entries_of_others_stay_and_ours_keep_their_places() {
        let wanted = route(&[("ours", "b", "True"), ("ours", "a", "True")]);
        let mut before = route(&[
            ("ours", "a", "False"),
            ("theirs", "a", "True"),
            ("ours", "gone", "True"),
        ]);
        before["parents"][0]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "type": "Theirs" }));

        let after = corrected(Some(&before), &wanted, "t1").unwrap();
        let names: Vec<_> = after["parents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| &entry["parentRef"]["name"])
            .collect();

        assert_eq!(names, ["a", "a", "b"]);
        assert_eq!(after["parents"][1], before["parents"][1]);
        assert_eq!(
            after["parents"][0]["conditions"][0]["lastTransitionTime"],
            "t1"
        );
        assert_eq!(after["parents"][0]["conditions"][1]["type"], "Theirs");
        assert_eq!(corrected(Some(&after), &wanted, "t2"), None, "it is right");
    }

    #[test]
    fn the_limit_of_entries_counts_those_of_others() {
        for (list, reference, most) in [
            ("ancestors", "ancestorRef", 16),
            ("parents", "parentRef", 32),
        ] {
            let entry = |controller: &str, number: usize| {
                let about = json!({ "name": number.to_string() });
                json!({ "controllerName": controller, reference: about })
            };
            let theirs: Vec<Value> = (0..3).map(|number| entry("theirs", number)).collect();
            let before = json!({ list: [entry("ours", 39), theirs[0], theirs[1], theirs[2]] });
            let wanted =
                json!({ list: (0..40).map(|number| entry("ours", number)).collect::<Vec<_>>() });
            let after = corrected(Some(&before), &wanted, "t1").unwrap();
            let entries = after[list].as_array().unwrap();
            assert_eq!(entries.len(), most);
            assert_eq!(entries[1..4], theirs);
            let of = |at: usize| entries[at][reference]["name"].as_str().unwrap().to_owned();
            assert_eq!(
                (of(0), of(4), of(most - 1)),
                ("39".to_owned(), "0".to_owned(), (most - 5).to_string())
            );
            assert_eq!(corrected(Some(&after), &wanted, "t2"), None, "it is right");
        }
    }

    #[test]
    fn a_condition_changed_when_its_status_did() {
        let wanted = |status: &str, reason: &str| json!({ "conditions": [{ "type": "A", "status": status, "reason": reason }] });
        let first = corrected(None, &wanted("True", "One"), "t1").unwrap();
        let second = corrected(Some(&first), &wanted("True", "Two"), "t2").unwrap();
        assert_eq!(second["conditions"][0]["lastTransitionTime"], "t1");
        let third = corrected(Some(&second), &wanted("False", "Two"), "t3").unwrap();
        assert_eq!(third["conditions"][0]["lastTransitionTime"], "t3");
    }

    #[test]
    fn obsolete_status_fields_are_removed_but_addresses_stay() {
        let before = json!({
            "addresses": [{ "value": "1.2.3.4" }], "attachedListenerSets": 2, "conditions": [{ "type": "B" }],
            "listeners": [{ "name": "gone" }],
        });
        let wanted = json!({ "conditions": [], "withoutConditions": ["B"], "listeners": [] });
        let after = corrected(Some(&before), &wanted, "t").unwrap();
        assert_eq!(
            after,
            json!({ "addresses": [{ "value": "1.2.3.4" }], "conditions": [], "listeners": [] })
        );
    }

    #[test]
    fn status_of_unevaluated_listeners_stays() {
        let listener = |name: &str, routes: u32| json!({ "name": name, "attachedRoutes": routes, "conditions": [{ "type": "A" }] });
        let before =
            json!({ "conditions": [], "listeners": [listener("a", 2), listener("gone", 1)] });
        let kept = |name: &str| json!({ "name": name, "attachedRoutes": 0 });
        let wanted = json!({ "conditions": [], "keptListeners": [kept("a"), kept("new")] });
        let after = corrected(Some(&before), &wanted, "t").unwrap();
        assert_eq!(
            after,
            json!({ "conditions": [], "listeners": [listener("a", 0)] })
        );
        assert_eq!(corrected(Some(&after), &wanted, "t"), None, "it is right");
        assert_eq!(
            corrected(Some(&json!({ "conditions": [] })), &wanted, "t"),
            None,
            "there were none"
        );
    }

    #[test]
    fn a_status_with_entries_of_others_alone_is_left_as_it_is() {
        let wanted = json!({ "parents": [] });
        assert_eq!(corrected(Some(&wanted), &wanted, "t"), None);
        assert_eq!(
            corrected(Some(&route(&[("theirs", "a", "True")])), &wanted, "t"),
            None
        );
    }

    #[test]
    fn pool_status_has_no_empty_parents() {
        let entry = |group: &str, kind: &str, name: &str| json!({ "parentRef": { "group": group, "kind": kind, "name": name } });
        let ours = entry(ISTIO_GROUP, "Gateway", "web");
        let theirs = entry("example.com", "Gateway", "other");
        let unanswered =
            json!({ "parents": [{ "parentRef": { "kind": "Status", "name": "default" } }] });
        let some = json!({ "parents": [ours] });
        let none = json!({ "parents": null });
        assert_eq!(corrected(Some(&unanswered), &some, "t"), Some(some.clone()));

        assert_eq!(corrected(Some(&unanswered), &none, "t"), Some(json!({})));
        assert_eq!(corrected(Some(&some), &none, "t"), Some(json!({})));
        assert_eq!(
            corrected(Some(&json!({ "parents": [] })), &none, "t"),
            Some(json!({}))
        );

        for right in [
            None,
            Some(&json!({})),
            Some(&json!({ "parents": [theirs] })),
        ] {
            assert_eq!(corrected(right, &none, "t"), None);
        }

        let same = json!({ "parents": [entry("gateway.networking.k8s.io", "Gateway", "web")] });
        assert_eq!(
            corrected(Some(&same), &some, "t"),
            Some(some.clone()),
            "one parent has one entry"
        );
        let both = json!({ "parents": [theirs, ours] });
        assert_eq!(
            corrected(Some(&both), &none, "t"),
            Some(json!({ "parents": [theirs] }))
        );
    }

    #[test]
    fn only_own_conditions_of_shared_statuses_are_changed() {
        let theirs = json!({ "type": "Theirs", "status": "True" });
        let before =
            json!({ "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] }, "conditions": [theirs] });
        let wanted = |conditions: Value, without: Value| json!({ "conditions": conditions, "withoutConditions": without });
        let own = json!([{ "type": "Own", "status": "True" }]);
        let correct = |status: &Value, wanted: &Value, now: &str| {
            corrected_in(Some(status), wanted, StatusScope::Wanted, now)
        };
        let bound = correct(&before, &wanted(own.clone(), json!([])), "t1").unwrap();

        assert_eq!(
            (&bound["loadBalancer"], &bound["conditions"][0]),
            (&before["loadBalancer"], &theirs)
        );
        assert_eq!(
            bound["conditions"][1],
            json!({ "type": "Own", "status": "True", "lastTransitionTime": "t1" })
        );

        assert_eq!(
            correct(&bound, &wanted(own, json!([])), "t2"),
            None,
            "it is right"
        );
        let free = wanted(json!([]), json!(["Own"]));
        assert_eq!(correct(&bound, &free, "t2"), Some(before.clone()));
        assert_eq!(correct(&before, &free, "t3"), None);

        assert_eq!(
            correct(&json!({ "loadBalancer": {} }), &free, "t3"),
            None,
            "what was never told is not written"
        );
    }
}

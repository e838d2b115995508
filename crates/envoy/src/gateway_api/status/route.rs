//! The status of routes, for each parentRef (istiod's `createRouteStatus`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::gateway_api::condition::Conditions;
use crate::gateway_api::parents::{Attachment, ParentsOf, Target, text_of};
use crate::gateway_api::route_kinds::RouteName;
use crate::gateway_api::routes::RulesOf;
use crate::gateway_api::settings::ApiSettings;
use navarch_api::gateway_api::ParentReference;
use navarch_push::view::View;

pub(super) fn status(view: &View<'_>, name: &RouteName) -> Option<Value> {
    let route = name.common(view)?;
    let settings = view.get(&ApiSettings);
    let attachments = view.get(&ParentsOf(name.clone()));
    let mut by_reference: BTreeMap<usize, Vec<&Attachment>> = BTreeMap::new();

    for attachment in attachments.iter() {
        by_reference
            .entry(attachment.reference)
            .or_default()
            .push(attachment);
    }

    let mut parents: Vec<(String, Value)> = Vec::new();

    for (index, attachments) in by_reference {
        let Some(reference) = route.parents.get(index) else {
            continue;
        };
        let conditions = conditions(view, name, &attachments, settings.ambient);
        let parent = json!({
            "parentRef": parent_ref(reference),
            "controllerName": settings.api.controller,
            "conditions": conditions.to_json(route.meta.generation),
        });
        parents.push((text_of(reference, &route.meta.key.namespace), parent));
    }

    // The order of istiod.
    parents.sort_by(|(a, _), (b, _)| b.cmp(a));
    Some(json!({ "parents": parents.into_iter().map(|(_, parent)| parent).collect::<Vec<_>>() }))
}

/// The conditions of one parentRef: accepted if one listener accepts the route.
fn conditions(
    view: &View<'_>,
    name: &RouteName,
    attachments: &[&Attachment],
    ambient: bool,
) -> Conditions {
    let mut conditions = Conditions::default();
    let taken = attachments
        .iter()
        .filter(|attachment| attachment.denied.is_none())
        .count();
    let denials = attachments
        .iter()
        .filter_map(|attachment| attachment.denied.as_ref());
    let worst = denials
        .clone()
        .map(|denial| denial.reason)
        .min()
        .filter(|_| taken == 0);

    match worst {
        None if taken > 1 => {
            let message = format!("Route was valid, bound to {taken} parents");
            conditions.set_true("Accepted", "Accepted", message);
        }
        None => conditions.set_true("Accepted", "Accepted", "Route was valid"),
        Some(worst) => {
            let messages: Vec<&str> = denials
                .filter(|denial| denial.reason == worst)
                .map(|denial| denial.message.as_str())
                .collect();
            conditions.set_false("Accepted", worst.as_str(), messages.join("; "));
        }
    }

    let mesh = attachments
        .iter()
        .any(|attachment| matches!(attachment.target, Target::Mesh(_)));

    match &view
        .get(&RulesOf {
            route: name.clone(),
            mesh,
        })
        .fault
    {
        Some(fault) => conditions.fault("ResolvedRefs", fault),
        None => conditions.set_true("ResolvedRefs", "ResolvedRefs", "All references resolved"),
    }

    if ambient {
        let fault = attachments
            .iter()
            .find_map(|attachment| attachment.waypoint_fault);
        conditions.set_true(
            "ResolvedWaypoints",
            "ResolvedWaypoints",
            fault.unwrap_or("All waypoints resolved"),
        );
    }

    conditions
}

/// A parent reference as JSON.
fn parent_ref(reference: &ParentReference) -> Value {
    let ParentReference {
        group,
        kind,
        namespace,
        name,
        section_name,
        port,
    } = reference;

    let mut written = Map::new();
    written.insert("group".to_owned(), json!(group));
    written.insert("kind".to_owned(), json!(kind));
    written.insert("name".to_owned(), json!(name));
    written.extend(
        namespace
            .as_ref()
            .map(|namespace| ("namespace".to_owned(), json!(namespace))),
    );

    written.extend(
        section_name
            .as_ref()
            .map(|section| ("sectionName".to_owned(), json!(section))),
    );
    written.extend(port.as_ref().map(|port| ("port".to_owned(), json!(port))));

    Value::Object(written)
}

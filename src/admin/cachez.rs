//! `/debug/cachez` and `/debug/krtz`: encoded resources that proxies share, and the tables that
//! they derive from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::object::Kind;
use navarch_push::context::PushContext;
use navarch_push::engine::EngineSizes;
use navarch_push::resource::{Resource, ResourceType};

/// The names of the encoded resources by type URL; with `sizes` their bytes. `clear` recomputes
/// everything.
pub(super) async fn cachez(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let is_set = |key: &str| parameters.get(key).is_some_and(|value| !value.is_empty());
    if is_set("clear") {
        return match state.push.recompute().await {
            Ok(()) => "Cache cleared\n".into_response(),
            Err(_) => reply::ended(),
        };
    }

    let mut resources: BTreeMap<ResourceType, BTreeMap<usize, Arc<Resource>>> = BTreeMap::new();

    for watch in state
        .connections
        .list()
        .into_iter()
        .flat_map(|info| info.types)
    {
        let known = resources.entry(watch.resource_type).or_default();
        for resource in watch.resources.iter().flat_map(|all| &all.resources) {
            // Similar proxies share one.
            known.insert(Arc::as_ptr(resource).addr(), resource.clone());
        }
    }

    let page = if is_set("sizes") {
        sizes(&resources)
    } else {
        names(&resources)
    };

    reply::json(&parameters, &page)
}

fn names(resources: &BTreeMap<ResourceType, BTreeMap<usize, Arc<Resource>>>) -> Value {
    let names = |all: &BTreeMap<usize, Arc<Resource>>| {
        let names: BTreeSet<&str> = all
            .values()
            .map(|resource| resource.name.as_str())
            .collect();
        json!(names)
    };
    let rows = resources
        .iter()
        .map(|(resource_type, all)| (resource_type.type_url().to_owned(), names(all)));
    Value::Object(
        rows.filter(|(_, names)| names.as_array().is_some_and(|names| !names.is_empty()))
            .collect(),
    )
}

fn sizes(resources: &BTreeMap<ResourceType, BTreeMap<usize, Arc<Resource>>>) -> Value {
    let mut page = Map::new();
    let mut total = 0;
    for (resource_type, all) in resources {
        let bytes: usize = all.values().map(|resource| resource.body.len()).sum();
        total += bytes;
        page.insert(
            resource_type.type_url().to_owned(),
            json!(byte_count(bytes)),
        );
    }
    page.insert("total".to_owned(), json!(byte_count(total)));
    Value::Object(page)
}

/// Bytes as istiod writes them, such as `1.5kB`.
pub(super) fn byte_count(bytes: usize) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes}B");
    }
    let mut divisor = 1000;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while bytes / divisor >= 1000 {
        let Some(next) = units.next() else { break };
        divisor *= 1000;
        unit = next;
    }
    // Tenths, truncated where Go rounds: sizes are not exact here.
    format!(
        "{}.{}{unit}",
        bytes / divisor,
        bytes % divisor * 10 / divisor
    )
}

/// The input tables, in the shape of istiod's krt collections: by name, with the content of each.
/// istiod's derived collections have no counterpart: here results are cached per query.
pub(super) async fn krtz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let Ok(sizes) = state.push.inspect(|inspect| inspect.engine.sizes()).await else {
        return reply::ended();
    };

    let context = state.push.context();
    let mut tables: Vec<(String, Map<String, Value>)> = Kind::ALL
        .into_iter()
        .map(|kind| {
            (
                format!("Objects/{}", kind.as_str()),
                objects(&context, kind),
            )
        })
        .collect();

    let services = context
        .directory
        .services
        .keys()
        .map(|key| (format!("{}/{}", key.namespace, key.hostname), json!({})));
    tables.push(("Services".to_owned(), services.collect()));
    let endpoints = context.directory.endpoints.iter().map(|(key, all)| {
        (
            format!("{}/{}", key.namespace, key.hostname),
            json!({ "endpoints": all.endpoints.len() }),
        )
    });

    tables.push(("Endpoints".to_owned(), endpoints.collect()));
    let workloads = context
        .directory
        .workloads
        .keys()
        .map(|key| (format!("{}/{}", key.namespace, key.name), json!({})));
    tables.push(("Workloads".to_owned(), workloads.collect()));
    tables.push(("Results".to_owned(), engine_tables(sizes)));

    let one = |(uid, (name, outputs)): (usize, (String, Map<String, Value>))| json!({ "uid": uid, "name": name, "state": { "outputs": outputs, "synced": state.push.is_synced() } });
    reply::json(
        &parameters,
        &Value::Array(tables.into_iter().enumerate().map(one).collect()),
    )
}

/// The sizes of the engine's tables.
fn engine_tables(sizes: EngineSizes) -> Map<String, Value> {
    let tables = [
        ("results", sizes.results),
        ("facts", sizes.facts),
        ("attributes", sizes.attributes),
        ("attributeValues", sizes.attribute_values),
        ("proxies", sizes.subscribers),
    ];
    tables
        .into_iter()
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect()
}

/// The objects of a kind by name, each with its version.
fn objects(context: &PushContext, kind: Kind) -> Map<String, Value> {
    let one = |(name, version): (navarch_api::object::NamespacedName, Arc<str>)| {
        (
            format!("{}/{}", name.namespace, name.name),
            json!({ "resourceVersion": &*version }),
        )
    };
    context
        .objects
        .versions(kind)
        .into_iter()
        .map(one)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_tables_have_the_names_of_the_glossary() {
        let sizes = EngineSizes {
            results: 5,
            facts: 4,
            attributes: 3,
            attribute_values: 2,
            subscribers: 1,
        };
        assert_eq!(
            Value::Object(engine_tables(sizes)),
            json!({ "results": 5, "facts": 4, "attributes": 3, "attributeValues": 2, "proxies": 1 })
        );
    }

    #[test]
    fn byte_counts_are_printed_with_decimal_units() {
        for (bytes, text) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1.0kB"),
            (1550, "1.5kB"),
            (2_000_000, "2.0MB"),
        ] {
            assert_eq!(byte_count(bytes), text);
        }
    }
}

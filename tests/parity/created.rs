//! Objects created for the Gateways of a case, compared with `expect/created.yaml`.
//!
//! Both sides are converted to the form in which an API server stores them: empty values are
//! dropped, and quantities are normalized. Nothing else is normalized, except that owner references
//! have no uid; the order of ports counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use navarch::api::mesh::MeshConfig;
use navarch::api::object::NamespacedName;
use navarch::api::yaml::{self, Schema};
use navarch::cli::environment;
use navarch::status::NamespaceScope;
use navarch::status::gateways::{ClusterState, GatewayControllerSettings, Plan, Source};
use navarch::webhook::inject::{Injector, InjectorInputs};
use serde_json::{Value, json};

use super::case::Case;

/// The mesh config of the installation with which the cases were recorded.
const MESH: &str = "
defaultConfig: {discoveryAddress: 'istiod.istio-system.svc:15012'}
defaultProviders: {metrics: [prometheus]}
enablePrometheusMerge: true
rootNamespace: istio-system
trustDomain: cluster.local
";

/// Its values, as far as they differ from Istio's chart.
const VALUES: &str = r#"{"global": {"hub": "registry.istio.io/testing", "tag": "latest"}}"#;

/// The version of its API server.
const KUBE_VERSION: i64 = 136;

/// How the created objects differ from istiod's; `None` for a case without expected objects.
pub(crate) fn compare(case: &Case) -> Option<Result<Vec<String>, String>> {
    let expected = case.file("expect/created.yaml")?;
    Some(created(case).and_then(|created| {
        let expected = by_name(documents(&expected)?.into_iter());
        let mut differences = Vec::new();
        for name in expected
            .keys()
            .chain(created.keys().filter(|name| !expected.contains_key(*name)))
        {
            match (expected.get(name), created.get(name)) {
                (Some(expected), Some(created)) => {
                    super::canon::walk(expected, created, name, &mut differences)
                }
                (Some(_), None) => differences.push(format!("- {name} is missing")),
                (None, _) => differences.push(format!("+ {name} is not expected")),
            }
        }

        Ok(differences)
    }))
}

/// The objects created for the input, then for the update.
fn created(case: &Case) -> Result<BTreeMap<String, Value>, String> {
    if !settings(case)?.deploys {
        return Ok(BTreeMap::new());
    }

    let mut objects = documents(
        &case
            .file("input.yaml")
            .ok_or("the case has no input.yaml")?,
    )?;
    let mut made = made(case, &objects)?;

    if let Some(update) = case.file("update.yaml") {
        for patch in documents(&update)? {
            match objects
                .iter_mut()
                .find(|object| name(object) == name(&patch))
            {
                Some(object) => json_patch::merge(object, &patch),
                None => objects.push(patch),
            }
        }
        made.extend(self::made(case, &objects)?);
    }

    Ok(made)
}

pub(crate) fn settings(case: &Case) -> Result<GatewayControllerSettings, String> {
    let env = case.env();
    let settings = super::input::settings(case)?;
    environment::gateway_controllers(
        |name| env.get(name).cloned(),
        &settings,
        "default".to_owned(),
    )
    .map_err(|error| error.to_string())
}

/// The objects created for a state of the cluster.
pub(crate) fn made(case: &Case, objects: &[Value]) -> Result<BTreeMap<String, Value>, String> {
    let settings = settings(case)?;
    let mesh = MeshConfig::istio_defaults()
        .apply(MESH)
        .map_err(|error| error.to_string())?
        .value;
    let mesh = match case.file("mesh.yaml") {
        Some(text) => {
            mesh.apply(&text)
                .map_err(|error| format!("mesh.yaml: {error}"))?
                .value
        }
        None => mesh,
    };

    let injector = injector(&settings, mesh)?;
    let mut world = ClusterState::new(settings, NamespaceScope::default());

    for object in objects {
        let read: DynamicObject =
            serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        let is_tag = object["metadata"]["labels"].get("istio.io/tag").is_some();
        let is_default = object["metadata"]["labels"]
            .get("gateway.istio.io/defaults-for-class")
            .is_some();
        let source = match object["kind"].as_str().unwrap_or_default() {
            "Gateway"
                if object["apiVersion"]
                    .as_str()
                    .is_some_and(|version| version.starts_with("gateway.")) =>
            {
                Source::Gateways
            }
            "GatewayClass" => Source::Classes,
            "ListenerSet" => Source::ListenerSets,
            "Namespace" => Source::Namespaces,
            "MutatingWebhookConfiguration" if is_tag => Source::TagWebhooks,
            "Service" if is_tag && object["metadata"]["namespace"] == "istio-system" => {
                Source::TagServices
            }
            "ValidatingWebhookConfiguration"
                if object["metadata"]["name"] == "istiod-default-validator" =>
            {
                Source::DefaultValidator
            }
            "ConfigMap" => {
                let data = object.get("data").cloned().unwrap_or_else(|| json!({}));
                let data = serde_json::from_value(data).map_err(|error| error.to_string())?;
                let name = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                world.put_parameters(
                    NamespacedName::new(name("namespace"), name("name")),
                    Some(data),
                );
                if !is_default || name("namespace") != "istio-system" {
                    continue;
                }
                Source::Defaults
            }
            _ => continue,
        };

        world.take(source, Event::Apply(read));
    }

    let gateways: Vec<_> = world.gateways().cloned().collect();
    let mut made = Vec::new();

    for gateway in gateways {
        let mut plan = world.plan(&gateway, &injector, KUBE_VERSION);
        if let Ok(Plan::Reads(map)) = &plan {
            world.put_parameters(map.clone(), None);
            plan = world.plan(&gateway, &injector, KUBE_VERSION);
        }
        // A Gateway whose objects cannot be created has none, as with istiod.
        if let Ok(Plan::Objects { objects, .. }) = plan {
            made.extend(objects);
        }
    }

    Ok(by_name(made.into_iter()))
}

/// The injector of that installation.
fn injector(settings: &GatewayControllerSettings, mesh: MeshConfig) -> Result<Injector, String> {
    let mut inputs = InjectorInputs {
        values: VALUES.to_owned(),
        revision: settings.revision.clone(),
        ..InjectorInputs::new(Arc::new(mesh))
    };
    if let Some(chart) = std::env::var_os("NAVARCH_ISTIO_CHART") {
        // The templates of Istio's own chart instead of the built-in ones.
        let read = |file: &str| {
            std::fs::read_to_string(std::path::Path::new(&chart).join("files").join(file)).unwrap()
        };
        let templates =
            json!({ "kube-gateway": read("kube-gateway.yaml"), "waypoint": read("waypoint.yaml") });
        inputs.config = json!({ "policy": "enabled", "templates": templates }).to_string();
    }
    Injector::new(&inputs).map_err(|error| error.to_string())
}

/// The objects in a YAML text.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let read = |document: yaml::Document<'_>| {
        yaml::parse(document.text, Schema::V1_2).map_err(|error| error.to_string())
    };
    yaml::documents(text)
        .map(read)
        .filter(|object| !matches!(object, Ok(Value::Null)))
        .collect()
}

/// Kind, namespace and name of an object.
fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &object["metadata"];
    format!(
        "{}/{}/{}",
        text(&object["kind"]),
        text(&meta["namespace"]),
        text(&meta["name"])
    )
}

/// Objects by name, in their stored form.
fn by_name(objects: impl Iterator<Item = Value>) -> BTreeMap<String, Value> {
    objects
        .map(|object| (name(&object), stored(object)))
        .collect()
}

fn stored(mut object: Value) -> Value {
    for owner in object["metadata"]["ownerReferences"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        owner.as_object_mut().unwrap().remove("uid");
    }
    if object["kind"] == "Service"
        && let Some(ports) = object["spec"]["ports"].as_array_mut()
    {
        ports.sort_by_key(|port| {
            (
                port["port"].as_i64(),
                port["name"].as_str().unwrap_or_default().to_owned(),
            )
        });
    }

    without_empty(object, "")
}

/// A value without empty members, except for `emptyDir` volumes and similar members that are
/// meaningful when empty.
fn without_empty(value: Value, of: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(field, value)| {
                if field == "emptyDir" {
                    return Some((field, if value.is_null() { json!({}) } else { value }));
                }

                let quantities = matches!(of, "limits" | "requests");
                let value = without_empty(value, &field);
                let value = if quantities { quantity(&value) } else { value };
                let is_empty = match &value {
                    Value::Null => true,
                    Value::Bool(_) => false,
                    Value::Number(number) => number.as_i64() == Some(0),
                    Value::String(text) => text.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    Value::Object(fields) => fields.is_empty(),
                };

                (!is_empty).then_some((field, value))
            });

            let mut fields: serde_json::Map<_, _> = kept.collect();
            if of == "fieldRef" {
                fields.entry("apiVersion").or_insert_with(|| json!("v1"));
            }

            Value::Object(fields)
        }
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| without_empty(item, of))
                .collect(),
        ),
        value => value,
    }
}

/// A quantity in the canonical form of the API server.
fn quantity(value: &Value) -> Value {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    for (unit, larger, factor) in [
        ("m", "", 1000),
        ("Ki", "Mi", 1024),
        ("Mi", "Gi", 1024),
        ("Gi", "Ti", 1024),
    ] {
        let number = text
            .strip_suffix(unit)
            .and_then(|number| number.parse::<u64>().ok());
        if let Some(number) = number.filter(|number| number % factor == 0) {
            return quantity(&json!(format!("{}{larger}", number / factor)));
        }
    }
    json!(text)
}

//! One CustomResourceDefinition.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::definitions::{Column, Definition, Spec};
use super::limits::LIMITS;
use super::structural::structural;
use crate::crds::kinds::KindNames;
use crate::istio::IstioStatus;

/// The definition of a kind.
pub(super) fn document(kind: &KindNames, definition: &Definition) -> Value {
    let group = format!("{}.istio.io", kind.group);
    let singular = kind.kind.to_ascii_lowercase();
    let schema = schema(definition);
    let versions: Vec<Value> = kind
        .versions
        .iter()
        .map(|name| {
            let is_stored = kind.versions.first() == Some(name);
            version(definition, name, is_stored, &schema)
        })
        .collect();

    let mut names = json!({
        "categories": ["istio-io", format!("{}-istio-io", kind.group)],
        "kind": kind.kind,
        "listKind": format!("{}List", kind.kind),
        "plural": kind.plural,
        "singular": singular,
    });

    if let Some(names) = names
        .as_object_mut()
        .filter(|_| !definition.short.is_empty())
    {
        names.insert("shortNames".to_owned(), json!(definition.short));
    }

    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{group}", kind.plural),
            "labels": { "app.kubernetes.io/part-of": "navarch" },
            // An uninstall must not take the users' objects with it.
            "annotations": { "helm.sh/resource-policy": "keep" },
        },
        "spec": { "group": group, "names": names, "scope": "Namespaced", "versions": versions },
    })
}

fn version(definition: &Definition, name: &str, is_stored: bool, schema: &Value) -> Value {
    let mut version = json!({
        "name": name,
        "served": true,
        "storage": is_stored,
        "schema": { "openAPIV3Schema": schema },
        "subresources": { "status": {} },
    });
    if let Some(version) = version
        .as_object_mut()
        .filter(|_| !definition.columns.is_empty())
    {
        let columns: Vec<Value> = definition.columns.iter().map(column).collect();
        version.insert("additionalPrinterColumns".to_owned(), Value::Array(columns));
    }
    version
}

/// An `additionalPrinterColumns` entry.
fn column(column: &Column) -> Value {
    match column {
        Column::Field(name, path, description) => {
            json!({ "name": name, "type": "string", "jsonPath": path, "description": description })
        }
        Column::Age => json!({
            "name": "Age",
            "type": "date",
            "jsonPath": ".metadata.creationTimestamp",
            "description": "Time since the object was created",
        }),
    }
}

/// The schema of a kind's objects, the same in every version.
fn schema(definition: &Definition) -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let spec = (definition.spec)(&mut generator).to_value();
    let status = generator.subschema_for::<IstioStatus>().to_value();
    let mut definitions = generator.take_definitions(true);
    for (place, limit) in LIMITS {
        limit.apply(place, &mut definitions);
    }

    let mut schema = json!({
        "type": "object",
        "properties": {
            "spec": structural(&spec, &definitions),
            "status": structural(&status, &definitions),
        },
    });

    if let Some(schema) = schema
        .as_object_mut()
        .filter(|_| definition.needs == Spec::Required)
    {
        schema.insert("required".to_owned(), json!(["spec"]));
    }
    schema
}

//! Every field of the Gateway API's kinds, by their CustomResourceDefinitions.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use navarch::api::decode::{Outcome, decode_value};
use navarch::api::yaml::{self, Schema};
use serde_json::{Value, json};

/// Kinds that Navarch ignores, as istiod does; the last one is a former name of ListenerSets.
const IGNORED: [&str; 3] = ["UDPRoute", "XMesh", "XListenerSet"];
/// Experimental fields that former definitions have and the current ones do not. Like istiod, Navarch
/// does not read them.
const FORMER: [&str; 4] = [
    "spec.backendTLS",
    "spec.listeners[0].tls.frontendValidation",
    "spec.rules[0].sessionPersistence.idleTimeout",
    "spec.sessionPersistence.idleTimeout",
];

#[test]
fn every_field_of_the_gateway_apis_definitions_is_read() -> Result<()> {
    let text = navarch_testkit::gateway_api::crds()?;
    let is_former = navarch_testkit::gateway_api::other_version().is_some();
    let former: &[&str] = if is_former { &FORMER } else { &[] };
    let mut kinds = BTreeSet::new();

    for document in yaml::documents(&text) {
        let definition = yaml::parse(document.text, Schema::V1_2)
            .map_err(|error| anyhow::anyhow!(error.reason))?;
        let spec = &definition["spec"];
        let Some(kind) = spec["names"]["kind"]
            .as_str()
            .filter(|kind| !IGNORED.contains(kind))
        else {
            continue;
        };

        for version in spec["versions"]
            .as_array()
            .context("a definition has versions")?
        {
            if version["served"] == true {
                check(&object(spec, version), former)?;
                kinds.insert(kind.to_owned());
            }
        }
    }

    let mut needed = vec!["GRPCRoute", "Gateway", "HTTPRoute", "TCPRoute", "TLSRoute"];
    if !is_former {
        needed.push("ListenerSet");
    }
    ensure!(
        needed.iter().all(|kind| kinds.contains(*kind)),
        "kinds are missing, there are only {kinds:?}"
    );

    Ok(())
}

/// Fails if a field of the object is unknown, except for former ones.
fn check(object: &Value, former: &[&str]) -> Result<()> {
    match decode_value(object).1 {
        Outcome::Read { unknown_fields, .. } => {
            let unknown: Vec<_> = unknown_fields
                .iter()
                .filter(|field| !former.contains(&field.as_str()))
                .collect();
            ensure!(
                unknown.is_empty(),
                "{} {}: {unknown:?}",
                object["apiVersion"],
                object["kind"]
            );
        }
        Outcome::Ignored => anyhow::bail!("{} {} is ignored", object["apiVersion"], object["kind"]),
        Outcome::Rejected(error) => {
            anyhow::bail!("{} {}: {error}", object["apiVersion"], object["kind"])
        }
    }
    Ok(())
}

/// An object of a version with every field of its spec set.
fn object(spec: &Value, version: &Value) -> Value {
    let mut metadata = json!({ "name": "every-field" });
    if spec["scope"] == "Namespaced" {
        metadata["namespace"] = json!("shop");
    }
    let group = spec["group"].as_str().unwrap_or_default();
    json!({
        "apiVersion": format!("{group}/{}", version["name"].as_str().unwrap_or_default()),
        "kind": spec["names"]["kind"],
        "metadata": metadata,
        "spec": value(&version["schema"]["openAPIV3Schema"]["properties"]["spec"]),
    })
}

/// A value of a schema; objects have all fields set.
fn value(schema: &Value) -> Value {
    if let Some(first) = schema["enum"]
        .as_array()
        .and_then(|allowed| allowed.first())
    {
        return first.clone();
    }

    if let Some(fields) = schema["properties"].as_object() {
        return Value::Object(
            fields
                .iter()
                .map(|(name, schema)| (name.clone(), value(schema)))
                .collect(),
        );
    }

    match schema["type"].as_str() {
        Some("object") => json!({ "key": "value" }),
        Some("array") => json!([value(&schema["items"])]),
        Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or_default().max(1)),
        Some("boolean") => json!(true),
        // Durations are the only strings whose format is validated.
        _ => json!("1s"),
    }
}

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::generated::{documents, yaml};
use super::*;

/// Facts about Istio's CRDs, one per line.
const FACTS: &str = include_str!("../../../../tests/crds/facts.txt");

/// The lines about `kind`, without it.
fn facts(kind: &str) -> impl Iterator<Item = Vec<&str>> {
    let words = FACTS
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    words
        .filter(move |words| words[0] == kind)
        .map(|words| words[1..].to_vec())
}

/// The kinds and their CRDs.
fn definitions() -> impl Iterator<Item = (String, Value)> {
    documents().into_iter().map(|document| {
        (
            document["spec"]["names"]["kind"]
                .as_str()
                .unwrap()
                .to_owned(),
            document,
        )
    })
}

fn nodes(path: &str, schema: &Value, into: &mut BTreeMap<String, Value>) {
    into.insert(path.to_owned(), schema.clone());

    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        nodes(
            &if path == "." {
                name.clone()
            } else {
                format!("{path}.{name}")
            },
            field,
            into,
        );
    }

    if schema.get("items").is_some() {
        nodes(&format!("{path}[]"), &schema["items"], into);
    }

    if schema.get("additionalProperties").is_some() {
        nodes(
            &format!("{path}{{}}"),
            &schema["additionalProperties"],
            into,
        );
    }
}

/// The strings of a list in a schema, sorted and joined as in the facts.
fn joined(list: &Value) -> String {
    let words: BTreeSet<_> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    words.into_iter().collect::<Vec<_>>().join("|")
}

/// The groups of fields of which only one may be set.
fn choices(schema: &Value) -> BTreeSet<String> {
    let groups = schema["allOf"].as_array().into_iter().flatten();
    let names = |group: &Value| {
        let each = group["oneOf"].as_array().into_iter().flatten();
        let names: BTreeSet<_> = each
            .filter_map(|choice| choice["required"][0].as_str())
            .collect();
        names.into_iter().collect::<Vec<_>>().join("|")
    };
    groups.map(names).collect()
}

/// Whether `schema` is as strict as the fact `limit`.
fn as_strict(schema: &Value, limit: &str) -> bool {
    let (name, value) = limit.split_once('=').unwrap_or((limit, ""));
    let number = |key: &str| schema[key].as_f64();
    let wanted = value.parse::<f64>().unwrap_or_default();

    match name {
        "min" => number("minimum").is_some_and(|least| least >= wanted),
        "max" => number("maximum").is_some_and(|most| most <= wanted),
        "minLength" | "minItems" | "minProperties" => {
            number(name).is_some_and(|least| least >= wanted)
        }
        "maxLength" | "maxItems" | "maxProperties" => {
            number(name).is_some_and(|most| most <= wanted)
        }
        "pattern" => schema.get("pattern").is_some(),
        "nullable" => schema["nullable"] == true,
        "open" => schema["x-kubernetes-preserve-unknown-fields"] == true,
        "required" => joined(&schema["required"]) == value,
        "enum" => joined(&schema["enum"]) == value,
        "format" => schema["format"] == value,
        "keys" => joined(&schema["x-kubernetes-list-map-keys"]) == value,
        "one" => choices(schema).contains(value),
        // Istio limits a port by a CEL rule; here it is a range.
        "rules" => schema.get("x-kubernetes-validations").is_some() || schema["maximum"] == 65_535,
        _ => panic!("no such limit: {limit}"),
    }
}

#[test]
fn every_field_and_limit_of_istios_definitions_is_there() {
    let mut wrong = Vec::new();

    for (kind, document) in definitions() {
        let mut ours = BTreeMap::new();
        nodes(
            ".",
            &document["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            &mut ours,
        );
        let mut known = BTreeSet::new();

        for words in facts(&kind).filter(|words| words[0] != "names") {
            known.insert(words[0].to_owned());
            let Some(node) = ours.get(words[0]) else {
                wrong.push(format!("{kind} {}: missing", words[0]));
                continue;
            };

            let any = node["x-kubernetes-int-or-string"] == true;
            if node["type"] != words[1] && !(any && words[1] == "any") {
                wrong.push(format!(
                    "{kind} {}: {} and not {}",
                    words[0], node["type"], words[1]
                ));
            }

            for limit in words[2..].iter().filter(|limit| !as_strict(node, limit)) {
                wrong.push(format!("{kind} {}: {limit}", words[0]));
            }
        }

        for (path, node) in ours.iter().filter(|(path, _)| !path.starts_with("status")) {
            if !known.contains(path) {
                wrong.push(format!("{kind} {path}: not in Istio's"));
            }

            let allowed = [
                "properties",
                "items",
                "additionalProperties",
                "type",
                "description",
                "nullable",
                "allOf",
            ];

            let limits = [
                "required",
                "enum",
                "format",
                "minimum",
                "maximum",
                "minLength",
                "maxLength",
                "pattern",
            ];

            let sizes = ["minItems", "maxItems", "minProperties", "maxProperties"];

            for key in node
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| !key.starts_with("x-kubernetes-"))
            {
                let words = [&allowed[..], &limits, &sizes].concat();
                assert!(words.contains(&key.as_str()), "{kind} {path} has {key}");
            }
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_versions_and_columns_are_istios() {
    for (kind, document) in definitions() {
        let spec = &document["spec"];
        let names = &spec["names"];
        let comma = |list: &Value| joined(list).replace('|', ",");
        let dash = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };

        let versions = spec["versions"].as_array().unwrap();
        let mut served: Vec<_> = versions
            .iter()
            .map(|version| {
                format!(
                    "{}{}",
                    version["name"].as_str().unwrap(),
                    if version["storage"] == true { "*" } else { "" }
                )
            })
            .collect();

        served.sort();
        let columns = versions[0]["additionalPrinterColumns"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|column| {
                let part = |key: &str| column[key].as_str().unwrap().to_owned();
                format!("{}={}={}", part("name"), part("jsonPath"), part("type"))
            });

        let ours = [
            spec["group"].as_str().unwrap().to_owned(),
            names["plural"].as_str().unwrap().to_owned(),
            names["singular"].as_str().unwrap().to_owned(),
            dash(comma(&names["shortNames"])),
            comma(&names["categories"]),
            served.join(","),
            dash(columns.collect::<Vec<_>>().join(",")),
        ];

        let fact = facts(&kind).find(|words| words[0] == "names").unwrap();
        let mut theirs: Vec<_> = fact[1..].iter().map(|word| (*word).to_owned()).collect();
        let mut categories: Vec<_> = theirs[4].split(',').collect();
        categories.sort_unstable();
        theirs[4] = categories.join(",");
        assert_eq!(ours.as_slice(), theirs.as_slice(), "{kind}");
    }
}

#[test]
fn a_definition_fits_an_annotation() {
    for (kind, document) in definitions() {
        let size = document.to_string().len();
        // `kubectl apply` stores the object in an annotation, which is limited to 256 KiB.
        assert!(size < 250_000, "{kind} has {size} bytes");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the variable is for this test")]
fn the_committed_crds_are_up_to_date() {
    let generated = yaml();
    if std::env::var_os("REWRITE").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../deploy/charts/navarch/crds/istio.yaml"
        );
        std::fs::write(path, &generated).unwrap();
    } else {
        assert!(YAML == generated, "out of date; run: make crds");
    }
}

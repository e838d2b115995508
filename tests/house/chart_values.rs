//! The values of the chart that have no effect (`files/without-effect.yaml`), compared with what
//! reads values: the chart's templates, the templates of Gateways, and the injector's types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use regex::Regex;
use serde_json::Value;

use super::folder;

const CHART: &str = "deploy/charts/navarch";
/// Files that have values without reading them: they show them, or are read before any template.
const NOT_READERS: &[&str] = &["valuesmap.yaml", "without-effect.yaml", "profiles.yaml"];
/// Where the ConfigMap of the injector repeats values.
const INJECTOR_VALUES: &str = "  values: |-";
/// The injector's types for values.
const INJECTOR_SOURCES: &[&str] = &[
    "crates/webhook/src/inject/values.rs",
    "crates/webhook/src/inject/values/global.rs",
];

/// Adds the paths of all values of a map, and those of its sections.
fn add_paths(
    prefix: &str,
    value: &Value,
    leaves: &mut BTreeSet<String>,
    sections: &mut BTreeSet<String>,
) {
    let members = value.as_object().filter(|members| !members.is_empty());
    let Some(members) = members else {
        leaves.insert(prefix.to_owned());
        return;
    };

    sections.insert(prefix.to_owned());
    for (key, member) in members {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        add_paths(&path, member, leaves, sections);
    }
}

/// The paths of values that a template reads: `global.hub` for `.Values.global.hub`, and for
/// `$global.hub` after `{{ $global := .Values.global }}`. A section that is only given a name, or
/// only written to, is not read.
fn read_by_template(text: &str, sections: &BTreeSet<String>) -> BTreeSet<String> {
    let comment = Regex::new(r"(?s)\{\{-?\s*/\*.*?\*/\s*-?\}\}").unwrap();
    let action = Regex::new(r"(?s)\{\{.*?\}\}").unwrap();
    let naming = Regex::new(
        r"\{\{-?\s*(\$\w+) := (?:\$?\.Values|\$set)\.([\w.]+)(?: \| default dict)? -?\}\}",
    )
    .unwrap();
    let writing = Regex::new(r"\$_ := set \$?[\w.]+").unwrap();
    let path = Regex::new(r"(\$\w*)?((?:\.\w+)+)").unwrap();

    let text = comment.replace_all(text, "");
    let actions: Vec<&str> = action
        .find_iter(&text)
        .map(|found| found.as_str())
        .collect();
    let actions = actions.join("\n");

    // `$values` and `$set` are all values, as merged and as set.
    let mut names = BTreeMap::from([
        ("$values".to_owned(), String::new()),
        ("$set".to_owned(), String::new()),
    ]);
    let mut read = BTreeSet::new();
    for found in naming.captures_iter(&actions) {
        let named = found[2].to_owned();
        if sections.contains(&named) {
            names.insert(found[1].to_owned(), format!("{named}."));
        } else {
            read.insert(named);
        }
    }

    let rest = naming.replace_all(&actions, "");
    let rest = writing.replace_all(&rest, "");
    for found in path.captures_iter(&rest) {
        let variable = found.get(1).map_or("", |name| name.as_str());
        let members = found[2].trim_start_matches('.');
        let of_values = members.strip_prefix("Values.");
        match variable {
            "" | "$" => read.extend(of_values.map(str::to_owned)),
            _ => read.extend(names.get(variable).map(|named| format!("{named}{members}"))),
        }
    }

    // The chart passes some values on as members of `pilot`.
    read.iter()
        .map(|path| path.strip_prefix("pilot.").unwrap_or(path).to_owned())
        .collect()
}

/// The paths that all templates read.
fn read_by_templates(sections: &BTreeSet<String>) -> BTreeSet<String> {
    let mut read = BTreeSet::new();
    for part in ["templates", "files"] {
        for entry in fs::read_dir(folder(CHART).join(part)).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            if NOT_READERS.contains(&name) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let text = match name {
                "injector.yaml" => text.split_once(INJECTOR_VALUES).unwrap().0,
                _ => text.as_str(),
            };
            read.extend(read_by_template(text, sections));
        }
    }
    read
}

/// A field of a type of the injector.
#[derive(Debug)]
struct Field {
    /// Its key in YAML.
    key: String,
    type_name: String,
}

/// The key of a field without `rename`: `caName` for `ca_name`.
fn camel_case(field: &str) -> String {
    let mut words = field.split('_');
    let mut key = words.next().unwrap().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        key.push_str(&first.to_uppercase());
        key.push_str(rest);
    }
    key
}

/// The injector's types for values, by name.
fn injector_types() -> BTreeMap<String, Vec<Field>> {
    let begin = Regex::new(r"^(?:pub\(super\) struct |    )([A-Z]\w+) \{$").unwrap();
    let rename = Regex::new(r#"#\[serde\(rename = "([^"]+)""#).unwrap();
    let field = Regex::new(r"^\s+(?:pub\([^)]+\) )?([a-z_]+): ([\w<>, ]+?)(?: = .*;|,)$").unwrap();
    let mut types: BTreeMap<String, Vec<Field>> = BTreeMap::new();

    for source in INJECTOR_SOURCES {
        let text = fs::read_to_string(folder(source)).unwrap();
        let mut type_name = None;
        let mut renamed = None;
        for line in text.lines() {
            if let Some(found) = begin.captures(line) {
                type_name = Some(found[1].to_owned());
            } else if matches!(line.trim(), "}" | "};") {
                type_name = None;
            } else if let Some(found) = rename.captures(line) {
                renamed = Some(found[1].to_owned());
            } else if let (Some(type_name), Some(found)) = (&type_name, field.captures(line)) {
                let key = renamed.take().unwrap_or_else(|| camel_case(&found[1]));
                types.entry(type_name.clone()).or_default().push(Field {
                    key,
                    type_name: found[2].to_owned(),
                });
            }
        }
    }

    types
}

/// Adds the paths of a type of the injector.
fn add_paths_of_type(
    prefix: &str,
    type_name: &str,
    types: &BTreeMap<String, Vec<Field>>,
    read: &mut BTreeSet<String>,
) {
    for Field { key, type_name } in &types[type_name] {
        let path = format!("{prefix}{key}");
        if types.contains_key(type_name) {
            // The chart passes some values on as members of `pilot`.
            let section = if path == "pilot" {
                String::new()
            } else {
                format!("{path}.")
            };
            add_paths_of_type(&section, type_name, types, read);
        } else {
            read.insert(path);
        }
    }
}

#[test]
fn the_chart_warns_of_a_value_if_and_only_if_nothing_reads_it() {
    let parse = |file: &str| -> Value {
        let text = fs::read_to_string(folder(CHART).join(file)).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    };
    let mut leaves = BTreeSet::new();
    let mut sections = BTreeSet::new();
    let values = parse("values.yaml");
    add_paths("", &values["_defaults"], &mut leaves, &mut sections);

    let mut read = read_by_templates(&sections);
    add_paths_of_type("", "Values", &injector_types(), &mut read);
    for path in [
        "global.waypoint.tolerations",
        "cni.provider",
        "gatewayClasses",
    ] {
        assert!(
            read.iter()
                .any(|read| path == read || path.starts_with(&format!("{read}."))),
            "{path}: this test does not find its reader"
        );
    }

    // A section that is read is read with all its members; a map that is empty by default may have
    // any.
    let is_read = |leaf: &&String| {
        read.iter().any(|path| {
            path == *leaf
                || leaf.starts_with(&format!("{path}."))
                || path.starts_with(&format!("{leaf}."))
        })
    };
    let unread: BTreeSet<&str> = leaves
        .iter()
        .filter(|leaf| !is_read(leaf))
        .map(String::as_str)
        .collect();

    let listed = parse("files/without-effect.yaml");
    let listed: BTreeSet<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();

    assert_eq!(
        listed, unread,
        "left: {CHART}/files/without-effect.yaml, right: values that nothing reads"
    );
}

#[test]
fn reading_is_not_naming_or_writing_a_section() {
    let sections = BTreeSet::from(["global".to_owned(), "global.proxy".to_owned()]);
    let text = r#"
        {{- /* .Values.comment */}}
        {{- $global := .Values.global }}{{ $tag := .Values.global.tag }}
        {{- $_ := set $global.proxy "image" ($global.proxy.image | default "x") }}
        {{- range $key, $value := .Values.labels }}{{ $.Values.pilot.env }}{{ end }}
        .Values.text
    "#;
    let read = read_by_template(text, &sections);
    let read: Vec<&str> = read.iter().map(String::as_str).collect();
    assert_eq!(read, ["env", "global.proxy.image", "global.tag", "labels"]);
}

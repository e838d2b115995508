//! What Navarch's chart takes: read from the chart itself.

use std::sync::OnceLock;

use navarch_api::yaml::{self, Schema};
use serde_json::{Map, Value};

use super::super::row::{Outcome, Row};
use super::at;

const VALUES: &str = include_str!("../../../../../deploy/charts/navarch/values.yaml");
const WITHOUT_EFFECT: &str =
    include_str!("../../../../../deploy/charts/navarch/files/without-effect.yaml");
const HELPERS: &str = include_str!("../../../../../deploy/charts/navarch/templates/_values.tpl");

/// How the line of the chart begins that lists the maps which take any key.
const OPEN: &str = "$open := list ";

/// The chart's default values.
pub(super) fn defaults() -> &'static Value {
    static DEFAULTS: OnceLock<Value> = OnceLock::new();
    DEFAULTS.get_or_init(|| {
        let mut values = yaml::parse(VALUES, Schema::V1_2).unwrap_or_default();
        values
            .get_mut("_defaults")
            .map(Value::take)
            .unwrap_or_default()
    })
}

/// The maps that take any key though they have defaults.
fn open() -> impl Iterator<Item = &'static str> {
    let line = HELPERS
        .lines()
        .find_map(|line| Some(line.split_once(OPEN)?.1));
    // Every second part is between quotes.
    line.unwrap_or_default().split('"').skip(1).step_by(2)
}

/// The rows about values that the chart does not have, or that have no effect.
pub(super) fn rows(object: &str, values: &Value) -> Vec<Row> {
    let unknown = unknown(values)
        .into_iter()
        .filter(|path| at(values, path).is_some_and(asks_for_something))
        .map(|path| Row::new(Outcome::NoEffect, object, "is no value of Navarch's chart").at(path));

    let listed = yaml::parse(WITHOUT_EFFECT, Schema::V1_2).unwrap_or_default();
    let listed = listed.as_array().into_iter().flatten();
    let without_effect = listed.filter_map(|entry| {
        let path = entry.get("path")?.as_str()?;
        let value = at(values, path)?;
        let harmless = entry.get("as")?.as_array()?;
        let reason = entry.get("because")?.as_str()?;
        let is_asked = !harmless.contains(value);
        is_asked.then(|| Row::new(Outcome::NoEffect, object, reason).at(path))
    });
    unknown.chain(without_effect).collect()
}

/// Whether a value is more than an empty default.
fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_on) => *is_on,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => members.values().any(asks_for_something),
    }
}

/// Removes the values that the chart does not have.
pub(super) fn remove_unknown(values: &mut Value) {
    for path in unknown(values) {
        let (parent, key) = path.rsplit_once('.').unwrap_or(("", path.as_str()));
        let pointer = match parent {
            "" => String::new(),
            parent => format!("/{}", parent.replace('.', "/")),
        };
        let members = values.pointer_mut(&pointer).and_then(Value::as_object_mut);
        if let Some(members) = members {
            members.remove(key);
        }
    }
}

/// The paths of the values that the chart does not have.
fn unknown(values: &Value) -> Vec<String> {
    let mut found = Vec::new();
    add_unknown("", values, defaults(), &mut found);
    found
}

/// Adds the paths in `given` that `known` does not have. A map that is empty by default takes any
/// key.
fn add_unknown(prefix: &str, given: &Value, known: &Value, found: &mut Vec<String>) {
    let (Some(given), Some(known)) = (given.as_object(), known.as_object()) else {
        return;
    };
    for (key, value) in given {
        let path = format!("{prefix}{key}");
        let is_open = open().any(|open| open == path);
        match known.get(key) {
            None => found.push(path),
            Some(Value::Object(inner)) if inner.is_empty() || is_open => {}
            Some(inner) => add_unknown(&format!("{path}."), value, inner, found),
        }
    }
}

/// Values without those that are the chart's defaults.
pub(super) fn without_defaults(values: Value) -> Value {
    let left = different(values, defaults());
    left.unwrap_or_else(|| Value::Object(Map::new()))
}

/// What differs from the defaults; `None` if nothing does.
fn different(value: Value, default: &Value) -> Option<Value> {
    if value == *default {
        return None;
    }
    let Value::Object(members) = value else {
        return Some(value);
    };

    let mut left = Map::new();
    for (key, member) in members {
        let below = default.get(&key).unwrap_or(&Value::Null);
        if let Some(member) = different(member, below) {
            left.insert(key, member);
        }
    }
    (!left.is_empty()).then_some(Value::Object(left))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_chart_is_read() {
        assert_eq!(at(defaults(), "replicaCount"), Some(&json!(2)));
        let open: Vec<_> = open().collect();
        assert!(
            open.contains(&"meshConfig") && open.contains(&"resources"),
            "{open:?}"
        );
    }

    #[test]
    fn values_that_the_chart_lacks_are_reported_and_removed() {
        let mut values = json!({
            "env": {"ANY": "1"},
            "meshConfig": {"any": 1},
            "global": {"hub": "h", "oneNamespace": true, "proxy": {"colour": "red"}},
            "off": {"on": false, "by": ""},
            "base": {"enableIstioConfigCRDs": false},
        });
        let fields: Vec<_> = rows("Values", &values)
            .into_iter()
            .map(|row| row.field)
            .collect();
        for field in [
            "global.oneNamespace",
            "global.proxy.colour",
            "base.enableIstioConfigCRDs",
        ] {
            assert!(fields.contains(&field.to_owned()), "{field}: {fields:?}");
        }
        assert_eq!(fields.len(), 3, "{fields:?}");

        remove_unknown(&mut values);
        assert_eq!(values["global"], json!({"hub": "h", "proxy": {}}));
        assert_eq!(values.get("off"), None, "it is removed without a word");
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_kept() {
        let values = json!({
            "global": {"pilotCertProvider": "istiod", "meshID": "m", "proxy": {"logLevel": "warning"}},
            "cni": {"enabled": true, "provider": "default"},
        });
        assert_eq!(
            without_defaults(values),
            json!({"global": {"meshID": "m"}, "cni": {"enabled": true}})
        );
    }
}

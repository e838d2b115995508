//! Constraints of a schema beyond types.

use serde_json::{Map, Value, json};

/// A constraint on the values of a field or type.
pub(super) enum Limit {
    /// Required fields.
    Required(&'static [&'static str]),
    /// At most one of these fields may be set.
    AtMostOne(&'static [&'static str]),
    /// A number within these bounds, inclusive.
    Range(f64, f64),
    /// A minimum number.
    AtLeast(f64),
    /// A string with a minimum and maximum length.
    Length(usize, usize),
    /// A string with a minimum length.
    MinLength(usize),
    /// A string that matches this regular expression.
    Pattern(&'static str),
    /// A list or map with a minimum and maximum size. The maximum bounds the estimated cost of CEL
    /// rules on the items.
    Size(usize, usize),
    /// A map with a minimum size.
    MinEntries(usize),
    /// A list whose items have unique values of this field.
    KeyedBy(&'static str),
    /// A CEL expression that must hold, and the error message.
    Rule(&'static str, &'static str),
    /// The field may be absent, but not null.
    NotNull,
    /// A number, or a string with one.
    IntOrString,
    /// Unknown fields are preserved.
    KeepsUnknown,
    /// A second name of the field.
    Alias(&'static str),
    /// A `format` of strings.
    Format(&'static str),
}

impl Limit {
    /// Adds the constraint to the definition `place`: `Type`, `Type.field`, or with `[]` at the end
    /// the items of a field. No effect if a kind does not use the type.
    pub(super) fn apply(&self, place: &str, definitions: &mut Map<String, Value>) {
        let (name, field) = place.split_once('.').unwrap_or((place, ""));
        let (name, field, entries) = match (name.strip_suffix("[]"), field.strip_suffix("[]")) {
            (Some(name), _) => (name, field, true),
            (None, Some(field)) => (name, field, true),
            (None, None) => (name, field, false),
        };
        let Some(mut schema) = definitions.get_mut(name) else {
            return;
        };

        if !field.is_empty() {
            let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
                return;
            };
            if let Self::Alias(alias) = self {
                let copy = fields.get(field).cloned().unwrap_or_default();
                fields.insert((*alias).to_owned(), copy);
                return;
            }
            let Some(found) = fields.get_mut(field) else {
                return;
            };
            schema = found;
        }

        if entries {
            let key = if schema.get("items").is_some() {
                "items"
            } else {
                "additionalProperties"
            };
            let Some(found) = schema.get_mut(key) else {
                return;
            };
            schema = found;
        }

        if let Some(schema) = schema.as_object_mut() {
            self.write(schema);
        }
    }

    /// Adds the constraint to a schema.
    fn write(&self, schema: &mut Map<String, Value>) {
        let is_map =
            schema.contains_key("additionalProperties") || schema.contains_key("patternProperties");
        let mut put = |key: &str, value: Value| {
            schema.insert(key.to_owned(), value);
        };

        match self {
            Self::Required(fields) => put("required", json!(fields)),
            Self::AtMostOne(fields) => at_most_one(schema, fields),
            Self::Range(from, to) => {
                put("minimum", number(*from));
                put("maximum", number(*to));
            }
            Self::AtLeast(from) => put("minimum", number(*from)),
            Self::Length(from, to) => {
                put("maxLength", json!(to));
                if *from > 0 {
                    put("minLength", json!(from));
                }
            }
            Self::MinLength(from) => put("minLength", json!(from)),
            Self::Pattern(pattern) => put("pattern", json!(pattern)),
            Self::Size(from, to) => {
                let (least, most) = if is_map {
                    ("minProperties", "maxProperties")
                } else {
                    ("minItems", "maxItems")
                };
                put(most, json!(to));
                if *from > 0 {
                    put(least, json!(from));
                }
            }
            Self::MinEntries(from) => put("minProperties", json!(from)),
            Self::KeyedBy(field) => {
                put("x-kubernetes-list-type", json!("map"));
                put("x-kubernetes-list-map-keys", json!([field]));
            }
            Self::Rule(rule, message) => add(
                schema,
                "x-kubernetes-validations",
                json!({ "rule": rule, "message": message }),
            ),
            Self::NotNull => put("nullable", json!(false)),
            Self::IntOrString => {
                put(
                    "anyOf",
                    json!([{ "type": "integer" }, { "type": "string" }]),
                );
                put("x-kubernetes-int-or-string", json!(true));
            }
            Self::KeepsUnknown => put("x-kubernetes-preserve-unknown-fields", json!(true)),
            Self::Format(format) => put("format", json!(format)),
            // Applied to the fields of the type, not to the field.
            Self::Alias(_) => {}
        }
    }
}

/// Adds to a list in a schema.
fn add(schema: &mut Map<String, Value>, key: &str, value: Value) {
    if let Value::Array(list) = schema.entry(key).or_insert_with(|| json!([])) {
        list.push(value);
    }
}

/// Requires that at most one of the fields is set; a type can have several such groups.
fn at_most_one(schema: &mut Map<String, Value>, fields: &[&str]) {
    let each: Vec<Value> = fields
        .iter()
        .map(|field| json!({ "required": [field] }))
        .collect();
    let mut choices = vec![json!({ "not": { "anyOf": each } })];
    choices.extend(each);
    add(schema, "allOf", json!({ "oneOf": choices }));
}

/// A number as JSON writes it, whole ones without a fraction.
fn number(value: f64) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the limits are small whole numbers"
    )]
    if value.fract() == 0.0 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

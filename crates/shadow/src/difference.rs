//! How the resources of two control planes differ: field by field, with the objects that the
//! differing parts name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::canonical;
use crate::objects::{add_objects, object_of, policy_of_key};

/// The maximum number of differences of a resource; more of them have the same causes.
const MAX_DIFFERENCES: usize = 40;
/// The maximum number of characters of a value in a text.
const MAX_VALUE_CHARACTERS: usize = 160;

/// A field in which a resource differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The name of the resource.
    pub resource: String,
    /// The field in the resource, such as `.virtualHosts[0].domains`; empty for the resource as a
    /// whole.
    pub path: String,
    /// How it differs.
    pub change: Change,
    /// The objects that the differing parts name.
    pub objects: NamedObjects,
}

/// The values of both sides.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Only istiod has it.
    OnlyIstiod(Value),
    /// Only Navarch has it.
    OnlyNavarch(Value),
    /// Lists of different lengths.
    Lengths {
        /// The items of istiod's list.
        istiod: usize,
        /// The items of Navarch's list.
        navarch: usize,
    },
    /// Both have it, with different values.
    Values {
        /// The value of istiod.
        istiod: Value,
        /// The value of Navarch.
        navarch: Value,
    },
}

/// Objects that parts of resources name, as `DestinationRule shop/reviews`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedObjects {
    /// Those that only istiod's part names.
    pub only_istiod: BTreeSet<String>,
    /// Those that only Navarch's part names.
    pub only_navarch: BTreeSet<String>,
    /// Those that both name.
    pub both: BTreeSet<String>,
}

impl NamedObjects {
    /// Compares the objects of two parts.
    fn of(istiod: &BTreeSet<String>, navarch: &BTreeSet<String>) -> Self {
        Self {
            only_istiod: istiod.difference(navarch).cloned().collect(),
            only_navarch: navarch.difference(istiod).cloned().collect(),
            both: istiod.intersection(navarch).cloned().collect(),
        }
    }

    /// Whether an object is named by one side alone.
    #[must_use]
    pub fn is_one_sided(&self) -> bool {
        !self.only_istiod.is_empty() || !self.only_navarch.is_empty()
    }
}

/// Lists how Navarch's resources differ from istiod's; empty if equal.
#[must_use]
pub fn differences(istiod: &[Value], navarch: &[Value]) -> Vec<Difference> {
    of_resources(
        &canonical::resources(istiod),
        &canonical::resources(navarch),
    )
}

/// Like [`differences`], of resources by name in canonical form.
#[must_use]
pub fn of_resources(
    istiod: &BTreeMap<String, Value>,
    navarch: &BTreeMap<String, Value>,
) -> Vec<Difference> {
    let mut walk = Walk::default();

    for (name, value) in istiod {
        walk.enter(name);
        match navarch.get(name) {
            Some(other) => walk.compare(Sides::new(value, other), "", Scope::default()),
            None => walk.add("", Change::OnlyIstiod(value.clone()), Scope::default()),
        }
    }

    for (name, value) in navarch {
        if !istiod.contains_key(name) {
            walk.enter(name);
            walk.add("", Change::OnlyNavarch(value.clone()), Scope::default());
        }
    }

    walk.found
}

/// Lists how two values differ; `name` names them.
#[must_use]
pub fn of_values(name: &str, istiod: &Value, navarch: &Value) -> Vec<Difference> {
    let mut walk = Walk::default();
    walk.enter(name);
    walk.compare(Sides::new(istiod, navarch), "", Scope::default());
    walk.found
}

/// A comparison in progress.
#[derive(Default)]
struct Walk<'a> {
    /// The name of the resource whose fields are compared.
    resource: &'a str,
    /// The number of differences with which it has the maximum.
    limit: usize,
    found: Vec<Difference>,
}

/// The values of both sides at one place.
#[derive(Clone, Copy)]
struct Sides<'a> {
    istiod: &'a Value,
    navarch: &'a Value,
}

/// The objects that the nearest enclosing parts name.
#[derive(Clone, Default)]
struct Scope {
    istiod: BTreeSet<String>,
    navarch: BTreeSet<String>,
}

impl<'a> Sides<'a> {
    fn new(istiod: &'a Value, navarch: &'a Value) -> Self {
        Self { istiod, navarch }
    }
}

impl<'a> Walk<'a> {
    /// Begins with a resource.
    fn enter(&mut self, resource: &'a str) {
        self.resource = resource;
        self.limit = self.found.len() + MAX_DIFFERENCES;
    }

    /// Adds the differences of two values at a path.
    fn compare(&mut self, sides: Sides<'_>, path: &str, scope: Scope) {
        let Sides { istiod, navarch } = sides;
        if istiod == navarch || self.found.len() >= self.limit {
            return;
        }

        match (istiod, navarch) {
            (Value::Object(one), Value::Object(other)) => {
                let scope = scope.enter(sides);
                let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
                for key in keys {
                    let path = format!("{path}.{key}");
                    let mut scope = scope.clone();
                    if let Some(policy) = policy_of_key(key) {
                        scope.add_policy(policy, one.contains_key(key), other.contains_key(key));
                    }
                    match (one.get(key), other.get(key)) {
                        (Some(one), Some(other)) => {
                            self.compare(Sides::new(one, other), &path, scope);
                        }
                        (Some(one), None) => {
                            self.add(&path, Change::OnlyIstiod(one.clone()), scope);
                        }
                        (None, Some(other)) => {
                            self.add(&path, Change::OnlyNavarch(other.clone()), scope);
                        }
                        (None, None) => {}
                    }
                }
            }
            (Value::Array(one), Value::Array(other)) => {
                if one.len() != other.len() {
                    self.compare_lists(one, other, path, &scope);
                    return;
                }
                for (index, (one, other)) in one.iter().zip(other).enumerate() {
                    let path = format!("{path}[{index}]");
                    self.compare(Sides::new(one, other), &path, scope.clone());
                }
            }
            (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => {}
            (one, other) => {
                let values = Change::Values {
                    istiod: one.clone(),
                    navarch: other.clone(),
                };
                self.add(path, values, scope);
            }
        }
    }

    /// Adds the differences of lists of different lengths. Items that both have are left out, so
    /// that an additional item does not make all later ones differ.
    fn compare_lists(&mut self, istiod: &[Value], navarch: &[Value], path: &str, scope: &Scope) {
        let only_istiod = unmatched(istiod, navarch);
        let only_navarch = unmatched(navarch, istiod);

        let mut named = scope.clone();
        for (_, item) in &only_istiod {
            add_objects(item, &mut named.istiod);
        }
        for (_, item) in &only_navarch {
            add_objects(item, &mut named.navarch);
        }
        let lengths = Change::Lengths {
            istiod: istiod.len(),
            navarch: navarch.len(),
        };
        self.add(path, lengths, named);

        for ((index, one), (_, other)) in only_istiod.into_iter().zip(only_navarch) {
            let path = format!("{path}[{index}]");
            self.compare(Sides::new(one, other), &path, scope.clone());
        }
    }

    /// Adds a difference. Its objects are those of its own values and of the nearest part around it
    /// that names any.
    fn add(&mut self, path: &str, change: Change, scope: Scope) {
        let Scope {
            mut istiod,
            mut navarch,
        } = scope;
        match &change {
            Change::OnlyIstiod(value) => add_objects(value, &mut istiod),
            Change::OnlyNavarch(value) => add_objects(value, &mut navarch),
            Change::Values {
                istiod: one,
                navarch: other,
            } => {
                add_objects(one, &mut istiod);
                add_objects(other, &mut navarch);
            }
            Change::Lengths { .. } => {}
        }

        self.found.push(Difference {
            resource: self.resource.to_owned(),
            path: path.to_owned(),
            change,
            objects: NamedObjects::of(&istiod, &navarch),
        });
    }
}

impl Scope {
    /// The scope inside of two objects: that of their own metadata, if either has any.
    fn enter(self, sides: Sides<'_>) -> Self {
        let istiod = object_of(sides.istiod);
        let navarch = object_of(sides.navarch);
        if istiod.is_none() && navarch.is_none() {
            return self;
        }
        Self {
            istiod: istiod.into_iter().collect(),
            navarch: navarch.into_iter().collect(),
        }
    }

    /// Adds the policy that a key names, on the sides that have the key.
    fn add_policy(&mut self, policy: String, in_istiod: bool, in_navarch: bool) {
        if in_istiod {
            self.istiod.insert(policy.clone());
        }
        if in_navarch {
            self.navarch.insert(policy);
        }
    }
}

/// The items that are not in another list, with their indices.
fn unmatched<'a>(items: &'a [Value], others: &[Value]) -> Vec<(usize, &'a Value)> {
    let others: BTreeSet<String> = others.iter().map(Value::to_string).collect();
    items
        .iter()
        .enumerate()
        .filter(|(_, item)| !others.contains(&item.to_string()))
        .collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, path, .. } = self;
        match &self.change {
            Change::OnlyIstiod(_) if path.is_empty() => write!(f, "- {resource} is missing"),
            Change::OnlyNavarch(_) if path.is_empty() => write!(f, "+ {resource} is not expected"),
            Change::OnlyIstiod(value) => write!(f, "- {resource}{path} = {}", short(value)),
            Change::OnlyNavarch(value) => write!(f, "+ {resource}{path} = {}", short(value)),
            Change::Lengths { istiod, navarch } => {
                write!(f, "! {resource}{path}: {istiod} items, got {navarch}")
            }
            Change::Values { istiod, navarch } => {
                let istiod = short(istiod);
                write!(f, "! {resource}{path}: {istiod}, got {}", short(navarch))
            }
        }
    }
}

/// The start of a value's JSON.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE_CHARACTERS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A cluster that names the DestinationRule that it was built from.
    fn cluster(rule: Option<&str>, connections: u32) -> Value {
        let config = rule.map(|name| {
            format!("/apis/networking.istio.io/v1/namespaces/a/destination-rule/{name}")
        });
        json!({
            "name": "outbound|80||b",
            "metadata": { "filterMetadata": { "istio": { "config": config } } },
            "circuitBreakers": { "maxConnections": connections },
        })
    }

    fn texts(found: &[Difference]) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        let one = json!({ "name": "a", "weight": 1 });
        let other = json!({ "name": "a", "weight": 1.0 });
        assert_eq!(differences(&[one], &[other]), Vec::new());
    }

    #[test]
    fn each_kind_of_difference_has_its_text() {
        let istiod = [
            json!({ "name": "a", "x": 1, "only": true, "list": [1, 2] }),
            json!({ "name": "gone" }),
        ];
        let navarch = [
            json!({ "name": "a", "x": 2, "list": [1], "new": false }),
            json!({ "name": "more" }),
        ];
        assert_eq!(
            texts(&differences(&istiod, &navarch)),
            [
                "! a.list: 2 items, got 1",
                "+ a.new = false",
                "- a.only = true",
                "! a.x: 1, got 2",
                "- gone is missing",
                "+ more is not expected",
            ]
        );
    }

    #[test]
    fn a_difference_names_the_object_that_one_side_alone_has_applied() {
        let found = differences(&[cluster(None, 1)], &[cluster(Some("rule"), 5)]);
        assert!(!found.is_empty());
        for difference in &found {
            let names: Vec<_> = difference.objects.only_navarch.iter().collect();
            assert_eq!(names, ["DestinationRule a/rule"], "{difference}");
        }
    }

    #[test]
    fn an_object_that_both_sides_have_applied_is_of_both() {
        let found = differences(&[cluster(Some("rule"), 1)], &[cluster(Some("rule"), 5)]);
        let [difference] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(!difference.objects.is_one_sided());
        assert!(difference.objects.both.contains("DestinationRule a/rule"));
    }

    #[test]
    fn a_policy_is_found_in_its_key() {
        let key = "ns[a]-policy[p]-rule[0]";
        let with = json!({ "name": "l", "rules": { "policies": { key: { "x": 1 } } } });
        let without = json!({ "name": "l", "rules": { "policies": {} } });
        let found = differences(&[with], &[without]);
        let [difference] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(
            difference
                .objects
                .only_istiod
                .contains("AuthorizationPolicy a/p")
        );
    }

    #[test]
    fn an_additional_item_of_a_list_is_the_only_difference() {
        let route = |name: &str| {
            let config =
                format!("/apis/networking.istio.io/v1/namespaces/a/virtual-service/{name}");
            json!({ "metadata": { "filterMetadata": { "istio": { "config": config } } } })
        };
        let istiod = json!({ "name": "80", "routes": [route("one"), route("two")] });
        let navarch = json!({ "name": "80", "routes": [route("two")] });

        let found = differences(&[istiod], &[navarch]);
        assert_eq!(texts(&found), ["! 80.routes: 2 items, got 1"]);
        let named: Vec<_> = found
            .iter()
            .flat_map(|one| &one.objects.only_istiod)
            .collect();
        assert_eq!(named, ["VirtualService a/one"]);
    }

    #[test]
    fn the_number_of_differences_of_a_resource_is_bounded() {
        let many = |value: u32| -> Value { (0..1000).map(|_| value).collect() };
        let found = of_values("list", &many(1), &many(2));
        assert_eq!(found.len(), MAX_DIFFERENCES);
    }
}

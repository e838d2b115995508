//! The objects that resources name: in the metadata of clusters and routes, and in the names of
//! RBAC policies.

use std::collections::BTreeSet;

use serde_json::Value;

/// Where Istio's metadata has the object that a resource was built from.
const CONFIG: &str = "/metadata/filterMetadata/istio/config";

/// The object that the metadata of a resource's part names as its source.
pub(crate) fn object_of(value: &Value) -> Option<String> {
    object_of_path(value.pointer(CONFIG)?.as_str()?)
}

/// Adds all objects that a value names at any depth.
pub(crate) fn add_objects(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            into.extend(object_of(value));
            into.extend(map.keys().filter_map(|key| policy_of_key(key)));
            map.values().for_each(|value| add_objects(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| add_objects(value, into)),
        // The metadata of an object may itself be what differs.
        Value::String(text) => into.extend(object_of_path(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `DestinationRule shop/reviews` of
/// `/apis/networking.istio.io/v1/namespaces/shop/destination-rule/reviews`.
fn object_of_path(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/apis/")?;
    let (_, rest) = rest.split_once("/namespaces/")?;
    let mut parts = rest.splitn(3, '/');
    let namespace = parts.next()?;
    let kind = parts.next()?;
    let name = parts.next()?;
    Some(format!("{} {namespace}/{name}", kind_of(kind)))
}

/// `DestinationRule` of `destination-rule`.
fn kind_of(kebab: &str) -> String {
    let capitalized = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    kebab.split('-').map(capitalized).collect()
}

/// The policy in the key of an RBAC filter, such as `ns[shop]-policy[viewer]-rule[0]`.
pub(crate) fn policy_of_key(key: &str) -> Option<String> {
    let (_, rest) = key.split_once("ns[")?;
    let (namespace, rest) = rest.split_once("]-policy[")?;
    let (name, _) = rest.split_once("]-rule[")?;
    Some(format!("AuthorizationPolicy {namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_read_from_metadata_and_from_names_of_policies() {
        let config = "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/reviews";
        let cluster =
            json!({ "metadata": { "filterMetadata": { "istio": { "config": config } } } });
        assert_eq!(
            object_of(&cluster).as_deref(),
            Some("DestinationRule shop/reviews")
        );

        let listener = json!([{ "policies": { "ns[shop]-policy[viewer]-rule[0]": {} } }, cluster]);
        let mut found = BTreeSet::new();
        add_objects(&listener, &mut found);
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [
                "AuthorizationPolicy shop/viewer",
                "DestinationRule shop/reviews"
            ]
        );
    }

    #[test]
    fn other_texts_name_no_object() {
        for text in ["/apis/", "/api/v1/namespaces/a/b/c", "outbound|80||a"] {
            assert_eq!(object_of_path(text), None, "{text}");
        }
        assert_eq!(policy_of_key("istio-ext-authz"), None);
    }
}

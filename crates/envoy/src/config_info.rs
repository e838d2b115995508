//! Metadata with the name of the object of a route or filter chain.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::core::v3::Metadata;
use prost_types::value::Kind as ValueKind;
use prost_types::{Struct, Value};

use navarch_api::object::{Kind, NamespacedName};

/// The key of Istio's metadata.
const ISTIO: &str = "istio";

/// Metadata with the path of an object of `networking.istio.io`.
#[must_use]
pub fn metadata(kind: Kind, name: &NamespacedName) -> Metadata {
    let path = Value {
        kind: Some(ValueKind::StringValue(path(kind, name))),
    };
    let fields = BTreeMap::from([("config".to_owned(), path)]);
    Metadata {
        filter_metadata: BTreeMap::from([(ISTIO.to_owned(), Struct { fields })]),
        ..Metadata::default()
    }
}

/// The path of an object, the same as in the Kubernetes API except for the kind.
#[must_use]
pub fn path(kind: Kind, name: &NamespacedName) -> String {
    let kebab = kebab_case(kind.as_str());
    format!(
        "/apis/{}/v1/namespaces/{}/{kebab}/{}",
        kind.group(),
        name.namespace,
        name.name
    )
}

/// Converts `VirtualService` to `virtual-service`.
fn kebab_case(name: &str) -> String {
    let mut kebab = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_that_of_the_kubernetes_api_with_the_kind_in_kebab_case() {
        let metadata = metadata(Kind::VirtualService, &NamespacedName::new("shop", "web"));
        let path = metadata.filter_metadata["istio"].fields["config"]
            .kind
            .clone();
        let expected = "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web";
        assert_eq!(path, Some(ValueKind::StringValue(expected.to_owned())));
    }
}

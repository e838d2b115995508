//! Kubernetes' label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::resource::Texts;

/// Whether a selector matches an object with these labels. An absent selector matches every object,
/// an invalid one matches none.
pub(crate) fn matches(selector: Option<&LabelSelector>, labels: &Texts) -> bool {
    let Some(selector) = selector else {
        return true;
    };

    let pairs = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));

    pairs
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|expression| {
                let found = labels.get(&expression.key);
                let values = expression.values.as_deref().unwrap_or_default();
                match expression.operator.as_str() {
                    "In" => found.is_some_and(|found| values.contains(found)),
                    "NotIn" => {
                        !values.is_empty() && found.is_none_or(|found| !values.contains(found))
                    }
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
}

//! Sets of labels, and selectors that are sets of labels.

use k8s_openapi::api::core::v1::Service;

use crate::resource::Texts;

/// Whether all labels of a selector are among those of an object.
pub(crate) fn is_subset(selector: &Texts, labels: &Texts) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// A selector as users write it: `app=web,version=v1`.
pub(crate) fn text(selector: &Texts) -> String {
    let pairs: Vec<_> = selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

/// The key of a selector whose line is reported: the first, as with istioctl.
pub(crate) fn first_key(selector: &Texts) -> &str {
    selector.keys().next().map_or("", String::as_str)
}

pub(crate) fn selector_of(service: &Service) -> Option<&Texts> {
    service.spec.as_ref()?.selector.as_ref()
}

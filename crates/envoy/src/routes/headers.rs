//! Header changes of routes and destinations.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use navarch_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};

use navarch_api::istio::Headers;

/// Header changes in Envoy's form.
#[derive(Debug, Default)]
pub(super) struct HeaderChanges {
    /// Set or added before the request is forwarded.
    pub(super) request_add: Vec<HeaderValueOption>,
    /// Removed before the request is forwarded.
    pub(super) request_remove: Vec<String>,
    /// Set or added before the response is returned.
    pub(super) response_add: Vec<HeaderValueOption>,
    /// Removed before the response is returned.
    pub(super) response_remove: Vec<String>,
    /// The new authority of the request: Envoy has a separate field for it.
    pub(super) authority: Option<String>,
}

/// The operations of `headers` in Envoy's form.
pub(super) fn changes(headers: &Headers) -> HeaderChanges {
    let request = headers.request.clone().unwrap_or_default();
    let response = headers.response.clone().unwrap_or_default();
    HeaderChanges {
        request_add: additions(&request.set, &request.add),
        request_remove: removals(&request.remove),
        response_add: additions(&response.set, &response.add),
        response_remove: removals(&response.remove),
        authority: authority(&request.set).or_else(|| authority(&request.add)),
    }
}

/// One header to append or to overwrite.
pub(super) fn header(key: &str, value: &str, action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: value.to_owned(),
            ..HeaderValue::default()
        }),
        append_action: action.into(),
        ..HeaderValueOption::default()
    }
}

/// Headers to overwrite, then those to append, each by name.
fn additions(
    set: &BTreeMap<String, String>,
    add: &BTreeMap<String, String>,
) -> Vec<HeaderValueOption> {
    let overwrite = set
        .iter()
        .map(|entry| (entry, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let append = add
        .iter()
        .map(|entry| (entry, HeaderAppendAction::AppendIfExistsOrAdd));
    let changed = overwrite
        .chain(append)
        .filter(|((key, _), _)| !is_internal(key));
    changed
        .map(|((key, value), action)| header(key, value, action))
        .collect()
}

/// Headers to remove.
fn removals(remove: &[String]) -> Vec<String> {
    remove
        .iter()
        .filter(|key| !is_internal(key))
        .cloned()
        .collect()
}

/// Whether Envoy reserves the header.
fn is_internal(key: &str) -> bool {
    key.starts_with(':') || key.eq_ignore_ascii_case("host")
}

/// The value for the authority, if any.
fn authority(headers: &BTreeMap<String, String>) -> Option<String> {
    let is_authority =
        |key: &str| key.eq_ignore_ascii_case(":authority") || key.eq_ignore_ascii_case("host");
    let value = headers
        .iter()
        .filter(|(key, _)| is_authority(key))
        .map(|(_, value)| value)
        .next_back();
    value.filter(|value| !value.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::istio::HeaderOperations;

    #[test]
    fn host_headers_become_the_authority_and_set_overrides_add() {
        let entries = |entries: &[(&str, &str)]| {
            entries
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };

        let request = HeaderOperations {
            set: entries(&[("Host", "set.example"), ("x-b", "1")]),
            add: entries(&[(":authority", "add.example"), ("x-a", "2")]),
            remove: vec![":path".to_owned(), "x-c".to_owned()],
        };
        let changes = changes(&Headers {
            request: Some(request),
            response: None,
        });
        assert_eq!(changes.authority.as_deref(), Some("set.example"));

        assert_eq!(
            changes.request_add,
            [
                header("x-b", "1", HeaderAppendAction::OverwriteIfExistsOrAdd),
                header("x-a", "2", HeaderAppendAction::AppendIfExistsOrAdd),
            ]
        );

        assert_eq!(changes.request_remove, ["x-c"]);
    }
}

//! Headers of requests to a tracing service.

use navarch_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption, header_value_option};

use navarch_api::mesh::HttpHeader;
use navarch_push::view::View;

pub(super) fn of_requests(view: &View<'_>, headers: &[HttpHeader]) -> Vec<HeaderValueOption> {
    let option = |header| HeaderValueOption {
        header: Some(header),
        append_action: header_value_option::HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    };
    of_calls(view, headers).into_iter().map(option).collect()
}

/// The metadata of gRPC calls.
pub(super) fn of_calls(view: &View<'_>, headers: &[HttpHeader]) -> Vec<HeaderValue> {
    let header = |header: &HttpHeader| HeaderValue {
        key: header.name.clone(),
        value: value(view, header),
        ..HeaderValue::default()
    };
    headers.iter().map(header).collect()
}

/// The value: inline, or from an environment variable of the control plane.
fn value(view: &View<'_>, header: &HttpHeader) -> String {
    match (&header.value, &header.env_name) {
        (Some(value), _) => value.clone(),
        (None, Some(name)) => view
            .mesh()
            .settings
            .environment
            .get(name)
            .unwrap_or_default()
            .to_owned(),
        (None, None) => String::new(),
    }
}

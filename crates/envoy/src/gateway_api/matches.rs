//! Request matches of route rules (istiod's `createURIMatch` and similar functions).

use std::collections::BTreeMap;

use super::fault::{Fault, INVALID_CONFIGURATION};
use navarch_api::gateway_api::{GrpcMethodMatch, GrpcRouteMatch, HttpRouteMatch, NamedMatch};
use navarch_api::istio::{HttpMatchRequest, StringMatch};

/// A match of an HTTPRoute.
///
/// # Errors
/// If a match type is unknown.
pub(super) fn http(request: &HttpRouteMatch) -> Result<HttpMatchRequest, Fault> {
    Ok(HttpMatchRequest {
        uri: Some(path(request)?),
        headers: named(&request.headers, "HeaderMatch")?,
        query_params: named(&request.query_params, "QueryParams")?,
        method: request.method.clone().map(StringMatch::Exact),
        ..HttpMatchRequest::default()
    })
}

/// A match of a GRPCRoute.
///
/// # Errors
/// If a match type is unknown, or a match is empty.
pub(super) fn grpc(request: &GrpcRouteMatch) -> Result<HttpMatchRequest, Fault> {
    Ok(HttpMatchRequest {
        uri: request.method.as_ref().map(method).transpose()?,
        headers: named(&request.headers, "HeaderMatch")?,
        ..HttpMatchRequest::default()
    })
}

/// The fault for an unknown match type.
fn unknown(kind: &str, what: &str) -> Fault {
    Fault::new(
        INVALID_CONFIGURATION,
        format!("unknown type: {kind:?} is not supported {what} type"),
    )
}

fn path(request: &HttpRouteMatch) -> Result<StringMatch, Fault> {
    let value = request.path.value.as_str();
    match request.path.kind.as_str() {
        "PathPrefix" => {
            let prefix = if value == "/" {
                value
            } else {
                value.strip_suffix('/').unwrap_or(value)
            };
            Ok(StringMatch::Prefix(prefix.to_owned()))
        }
        "Exact" => Ok(StringMatch::Exact(value.to_owned())),
        "RegularExpression" => Ok(StringMatch::Regex(value.to_owned())),
        kind => Err(unknown(kind, "Path match")),
    }
}

/// The matches of named values.
fn named(matches: &[NamedMatch], what: &str) -> Result<BTreeMap<String, StringMatch>, Fault> {
    let compare = |one: &NamedMatch| match one.kind.as_str() {
        "Exact" => Ok((one.name.clone(), StringMatch::Exact(one.value.clone()))),
        "RegularExpression" => Ok((one.name.clone(), StringMatch::Regex(one.value.clone()))),
        kind => Err(unknown(kind, what)),
    };
    matches.iter().map(compare).collect()
}

/// The match of a gRPC method: as the path `/<service>/<method>`.
fn method(declared: &GrpcMethodMatch) -> Result<StringMatch, Fault> {
    let is_regex = match declared.kind.as_str() {
        "Exact" => false,
        "RegularExpression" => true,
        kind => return Err(unknown(kind, "Path match")),
    };

    Ok(match (&declared.service, &declared.method) {
        (None, None) => {
            return Err(Fault::new(
                INVALID_CONFIGURATION,
                "gRPC match must have method or service defined",
            ));
        }
        (None, Some(method)) => StringMatch::Regex(format!("/[^/]+/{method}")),
        (Some(service), None) if is_regex => StringMatch::Regex(format!("/{service}/.+")),
        (Some(service), None) => StringMatch::Prefix(format!("/{service}/")),
        (Some(service), Some(method)) if is_regex => {
            StringMatch::Regex(format!("/{service}/{method}"))
        }
        (Some(service), Some(method)) => StringMatch::Exact(format!("/{service}/{method}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_slash_of_a_path_prefix_is_ignored() {
        let of = |value: &str| {
            let declared = serde_json::json!({ "path": { "value": value } });
            http(&serde_json::from_value(declared).unwrap())
                .unwrap()
                .uri
        };
        assert_eq!(of("/a/"), Some(StringMatch::Prefix("/a".to_owned())));
        assert_eq!(of("/"), Some(StringMatch::Prefix("/".to_owned())));
    }

    #[test]
    fn methods_of_grpc_are_paths() {
        let of = |kind: &str, service: Option<&str>, name: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let declared = GrpcMethodMatch {
                kind: kind.to_owned(),
                service: text(service),
                method: text(name),
            };
            method(&declared).ok()
        };

        let exact = StringMatch::Exact("/a.B/C".to_owned());
        assert_eq!(of("Exact", Some("a.B"), Some("C")), Some(exact));
        assert_eq!(
            of("Exact", Some("a.B"), None),
            Some(StringMatch::Prefix("/a.B/".to_owned()))
        );
        assert_eq!(
            of("Exact", None, Some("C")),
            Some(StringMatch::Regex("/[^/]+/C".to_owned()))
        );

        assert_eq!(
            of("RegularExpression", Some("a.*"), None),
            Some(StringMatch::Regex("/a.*/.+".to_owned()))
        );
        assert_eq!(of("Exact", None, None), None);
        assert_eq!(of("Glob", Some("a"), None), None);
    }
}

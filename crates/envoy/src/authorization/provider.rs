//! Extension providers of external authorization (`envoyExtAuthzHttp`, `envoyExtAuthzGrpc`).

use navarch_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use navarch_proto::envoy::config::core::v3::http_uri::HttpUpstreamType;
use navarch_proto::envoy::config::core::v3::{ApiVersion, GrpcService, HeaderValue, HttpUri};
use navarch_proto::envoy::extensions::filters::http::ext_authz::v3::ext_authz::Services;
use navarch_proto::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz as HttpExtAuthz,
    HttpService,
};
use navarch_proto::envoy::extensions::filters::network::ext_authz::v3::ExtAuthz as TcpExtAuthz;
use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{ListStringMatcher, StringMatcher};
use navarch_proto::envoy::r#type::v3::{HttpStatus, StatusCode};

use crate::filters::provider::{ProviderCluster, cluster};
use navarch_api::duration::Duration;
use navarch_api::mesh::{
    EnvoyExternalAuthorizationGrpcProvider, EnvoyExternalAuthorizationHttpProvider,
    EnvoyExternalAuthorizationRequestBody, ExtensionProvider,
};
use navarch_push::view::View;

/// Default timeout of a decision.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum length of a provider's name, which is part of metadata keys.
const MAX_NAME: usize = 63;

/// An external authorization provider.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExternalAuthorizer {
    /// For requests.
    pub(super) http: HttpExtAuthz,
    /// For connections; `None` for HTTP providers.
    pub(super) tcp: Option<TcpExtAuthz>,
}

/// The provider of this name. `None` if it does not exist, is invalid, or is not unique.
pub(super) fn decider(view: &View<'_>, name: &str) -> Option<ExternalAuthorizer> {
    let providers = &view.mesh().config.extension_providers;
    let decides = |provider: &&ExtensionProvider| {
        provider.envoy_ext_authz_http.is_some() || provider.envoy_ext_authz_grpc.is_some()
    };
    let mut named = providers
        .iter()
        .filter(decides)
        .filter(|provider| provider.name == name);
    let provider = named.next().filter(|_| is_plain(name))?;

    if named.next().is_some() {
        return None;
    }

    match (
        &provider.envoy_ext_authz_http,
        &provider.envoy_ext_authz_grpc,
    ) {
        (Some(http), _) => over_http(view, http),
        (None, Some(grpc)) => over_grpc(view, grpc),
        (None, None) => None,
    }
}

/// Whether a name consists of lower-case letters, digits and inner hyphens.
fn is_plain(name: &str) -> bool {
    let letters = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    !name.is_empty()
        && name.len() <= MAX_NAME
        && letters
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The HTTP service.
fn over_http(
    view: &View<'_>,
    provider: &EnvoyExternalAuthorizationHttpProvider,
) -> Option<ExternalAuthorizer> {
    let ProviderCluster { host, cluster } = cluster_of(view, &provider.service, provider.port)?;
    let status = status(&provider.status_on_error).ok()?;
    let shown = match provider.include_request_headers_in_check.as_slice() {
        [] => &provider.include_headers_in_check,
        _ => &provider.include_request_headers_in_check,
    };
    let lists = [
        &provider.include_request_headers_in_check,
        &provider.include_headers_in_check,
        &provider.headers_to_downstream_on_deny,
        &provider.headers_to_downstream_on_allow,
        &provider.headers_to_upstream_on_allow,
    ];

    let has_lone_wildcard = lists
        .iter()
        .any(|list| list.iter().any(|header| header == "*"));
    if has_lone_wildcard
        || !(provider.path_prefix.is_empty() || provider.path_prefix.starts_with('/'))
    {
        return None;
    }

    let added = provider.include_additional_headers_in_check.iter();
    let headers_to_add: Vec<HeaderValue> = added
        .map(|(key, value)| HeaderValue {
            key: key.clone(),
            value: value.clone(),
            ..HeaderValue::default()
        })
        .collect();

    let answers = AuthorizationResponse {
        allowed_upstream_headers: headers(&provider.headers_to_upstream_on_allow),
        allowed_client_headers: headers(&provider.headers_to_downstream_on_deny),
        allowed_client_headers_on_success: headers(&provider.headers_to_downstream_on_allow),
        ..AuthorizationResponse::default()
    };

    let service = HttpService {
        path_prefix: provider.path_prefix.clone(),
        server_uri: Some(HttpUri {
            // Required, though the filter does not use it.
            uri: format!("http://{host}"),
            timeout: Some(provider.timeout.unwrap_or(DEFAULT_TIMEOUT).to_proto()),
            http_upstream_type: Some(HttpUpstreamType::Cluster(cluster)),
        }),
        authorization_request: (!headers_to_add.is_empty()).then(|| AuthorizationRequest {
            headers_to_add,
            ..AuthorizationRequest::default()
        }),
        authorization_response: (answers != AuthorizationResponse::default()).then_some(answers),
        ..HttpService::default()
    };

    let http = HttpExtAuthz {
        status_on_error: status,
        failure_mode_allow: provider.fail_open,
        transport_api_version: ApiVersion::V3.into(),
        services: Some(Services::HttpService(service)),
        with_request_body: body(view, provider.include_request_body_in_check.as_ref()),
        allowed_headers: headers(shown),
        ..HttpExtAuthz::default()
    };

    Some(ExternalAuthorizer { http, tcp: None })
}

/// The gRPC service.
fn over_grpc(
    view: &View<'_>,
    provider: &EnvoyExternalAuthorizationGrpcProvider,
) -> Option<ExternalAuthorizer> {
    let ProviderCluster { host, cluster } = cluster_of(view, &provider.service, provider.port)?;
    let status = status(&provider.status_on_error).ok()?;
    let target = EnvoyGrpc {
        cluster_name: cluster,
        authority: host,
        ..EnvoyGrpc::default()
    };

    let service = GrpcService {
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)),
        timeout: Some(provider.timeout.unwrap_or(DEFAULT_TIMEOUT).to_proto()),
        ..GrpcService::default()
    };

    let http = HttpExtAuthz {
        status_on_error: status,
        failure_mode_allow: provider.fail_open,
        transport_api_version: ApiVersion::V3.into(),
        services: Some(Services::GrpcService(service.clone())),
        with_request_body: body(view, provider.include_request_body_in_check.as_ref()),
        ..HttpExtAuthz::default()
    };

    let tcp = TcpExtAuthz {
        stat_prefix: super::TCP_PREFIX.to_owned(),
        failure_mode_allow: provider.fail_open,
        transport_api_version: ApiVersion::V3.into(),
        grpc_service: Some(service),
        ..TcpExtAuthz::default()
    };

    Some(ExternalAuthorizer {
        http,
        tcp: Some(tcp),
    })
}

fn cluster_of(view: &View<'_>, service: &str, port: u32) -> Option<ProviderCluster> {
    if (1..=65535).contains(&port) {
        cluster(view, "authz", service, port)
    } else {
        None
    }
}

/// The status on errors of the service; `None` is Envoy's default.
fn status(text: &str) -> Result<Option<HttpStatus>, ()> {
    if text.is_empty() {
        return Ok(None);
    }
    let code = text
        .parse::<i32>()
        .ok()
        .and_then(|code| StatusCode::try_from(code).ok())
        .ok_or(())?;
    Ok(Some(HttpStatus { code: code.into() }))
}

/// Headers, exact or with a wildcard at one end; `None` if empty.
fn headers(names: &[String]) -> Option<ListStringMatcher> {
    let pattern = |name: &String| {
        let pattern = match (name.strip_prefix('*'), name.strip_suffix('*')) {
            (Some(ending), _) => MatchPattern::Suffix(ending.to_owned()),
            (None, Some(beginning)) => MatchPattern::Prefix(beginning.to_owned()),
            (None, None) => MatchPattern::Exact(name.clone()),
        };
        StringMatcher {
            ignore_case: true,
            match_pattern: Some(pattern),
        }
    };
    (!names.is_empty()).then(|| ListStringMatcher {
        patterns: names.iter().map(pattern).collect(),
    })
}

fn body(
    view: &View<'_>,
    body: Option<&EnvoyExternalAuthorizationRequestBody>,
) -> Option<BufferSettings> {
    let sound = body.filter(|body| body.max_request_bytes > 0);
    if body.is_some() && sound.is_none() {
        view.remark("mesh config: includeRequestBodyInCheck of a provider is ignored: its maxRequestBytes is 0");
    }
    sound.map(|body| BufferSettings {
        max_request_bytes: body.max_request_bytes,
        allow_partial_message: body.allow_partial_message,
        pack_as_bytes: body.pack_as_bytes,
    })
}

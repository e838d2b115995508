//! Responses without an upstream: redirects and direct responses.

use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::{DataSource, data_source};
use navarch_proto::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use navarch_proto::envoy::config::route::v3::{DirectResponseAction, RedirectAction};

use navarch_api::istio::{HttpBody, HttpDirectResponse, HttpRedirect, RedirectPortSelection};

/// The redirect of a route on a listener's port; `None` for an unsupported status.
pub(super) fn redirect(
    declared: &HttpRedirect,
    listen_port: u16,
    is_tls: bool,
) -> Option<RedirectAction> {
    let code = match declared.redirect_code {
        0 | 301 => RedirectResponseCode::MovedPermanently,
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => return None,
    };

    let path = if declared.prefix_rewrite.is_empty() {
        PathRewriteSpecifier::PathRedirect(declared.uri.clone())
    } else {
        PathRewriteSpecifier::PrefixRewrite(declared.prefix_rewrite.clone())
    };

    let scheme = &declared.scheme;
    Some(RedirectAction {
        host_redirect: declared.authority.clone(),
        port_redirect: port(declared, listen_port, is_tls),
        response_code: code.into(),
        scheme_rewrite_specifier: (!scheme.is_empty())
            .then(|| SchemeRewriteSpecifier::SchemeRedirect(scheme.clone())),
        path_rewrite_specifier: Some(path),
        ..RedirectAction::default()
    })
}

/// The port to redirect to; 0 means that of the scheme, also for the schemes' own ports.
fn port(declared: &HttpRedirect, listen_port: u16, is_tls: bool) -> u32 {
    // Envoy cannot derive the port from the request, but a route is built for one port only.
    let port = match (declared.port, declared.derive_port) {
        (Some(port), _) => port,
        (None, Some(RedirectPortSelection::FromRequestPort)) => u32::from(listen_port),
        (None, Some(RedirectPortSelection::FromProtocolDefault) | None) => 0,
    };
    let scheme = match (declared.scheme.as_str(), is_tls) {
        ("", true) => "https",
        ("", false) => "http",
        (scheme, _) => scheme,
    };
    if matches!((port, scheme), (80, "http") | (443, "https")) {
        0
    } else {
        port
    }
}

/// The direct response of a route.
pub(super) fn direct_response(declared: &HttpDirectResponse) -> DirectResponseAction {
    let body = match &declared.body {
        None | Some(HttpBody::Unset) => None,
        Some(HttpBody::String(text)) => Some(data_source::Specifier::InlineString(text.clone())),
        Some(HttpBody::Bytes(bytes)) => Some(data_source::Specifier::InlineBytes(
            Bytes::copy_from_slice(bytes),
        )),
    };
    DirectResponseAction {
        status: declared.status,
        body: body.map(|body| DataSource {
            specifier: Some(body),
            ..DataSource::default()
        }),
        ..DirectResponseAction::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_the_scheme_is_not_written() {
        let to = |port: Option<u32>, derive_port, scheme: &str| HttpRedirect {
            port,
            derive_port,
            scheme: scheme.to_owned(),
            ..HttpRedirect::default()
        };

        let from_request = Some(RedirectPortSelection::FromRequestPort);

        for (declared, listen_port, is_tls, expected) in [
            (to(Some(8443), None, ""), 80, false, 8443),
            (to(Some(443), None, "https"), 80, false, 0),
            (to(Some(443), None, ""), 80, false, 443),
            (to(None, from_request, ""), 8080, false, 8080),
            (to(None, from_request, ""), 443, true, 0),
            (
                to(None, Some(RedirectPortSelection::FromProtocolDefault), ""),
                8080,
                false,
                0,
            ),
        ] {
            assert_eq!(
                port(&declared, listen_port, is_tls),
                expected,
                "{declared:?}"
            );
        }
    }

    #[test]
    fn a_status_that_is_no_redirect_makes_no_action() {
        assert_eq!(
            redirect(
                &HttpRedirect {
                    redirect_code: 305,
                    ..HttpRedirect::default()
                },
                80,
                false
            ),
            None
        );
    }
}

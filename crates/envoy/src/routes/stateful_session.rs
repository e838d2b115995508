//! Persistent sessions, by labels of a service.

use navarch_proto::any::pack;
use navarch_proto::envoy::config::core::v3::TypedExtensionConfig;
use navarch_proto::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
};
use navarch_proto::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use navarch_proto::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;
use navarch_proto::envoy::r#type::http::v3::Cookie;
use prost_types::Any;

use super::settings::SessionLabels;
use navarch_registry::model::Service;

pub(super) const FILTER: &str = "envoy.filters.http.stateful_session";

/// The per-route configuration of the filter; `None` if the service has no stateful sessions.
pub(super) fn per_route(service: &Service, labels: Option<&SessionLabels>) -> Option<Any> {
    let session = of_service(service, labels)?;
    Some(pack(&StatefulSessionPerRoute {
        r#override: Some(Override::StatefulSession(session)),
    }))
}

/// The session settings of a service; `None` without persistent sessions.
pub(super) fn of_service(
    service: &Service,
    labels: Option<&SessionLabels>,
) -> Option<StatefulSession> {
    let labels = labels?;
    let label = |name: &str| {
        service
            .labels
            .get(name)
            .map(|value| &**value)
            .filter(|value| !value.is_empty())
    };

    let state = match (label(&labels.cookie), label(&labels.header)) {
        (Some(cookie), _) => {
            // Without a lifetime the browser deletes the cookie when it closes: the session state
            // is the cookie's value.
            let (name, path) = cookie.split_once(':').unwrap_or((cookie, "/"));
            let cookie = Cookie {
                name: name.to_owned(),
                path: path.to_owned(),
                ..Cookie::default()
            };

            TypedExtensionConfig {
                name: "envoy.http.stateful_session.cookie".to_owned(),
                typed_config: Some(pack(&CookieBasedSessionState {
                    cookie: Some(cookie),
                })),
            }
        }
        (None, Some(header)) => TypedExtensionConfig {
            name: "envoy.http.stateful_session.header".to_owned(),
            typed_config: Some(pack(&HeaderBasedSessionState {
                name: header.to_owned(),
            })),
        },
        (None, None) => return None,
    };

    Some(StatefulSession {
        session_state: Some(state),
        ..StatefulSession::default()
    })
}

//! The proxies that a page is requested for.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::reply::Parameters;
use super::state::AdminState;
use navarch_security::rules::Visibility;
use navarch_xds::connections::ConnectionInfo;

/// Why a proxy was not found. The texts are istiod's, which istioctl looks for in responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The request has no proxy.
    NotNamed,
    /// It is not connected here, or not visible for the caller.
    NotConnected,
}

impl IntoResponse for Missing {
    fn into_response(self) -> Response {
        match self {
            Self::NotNamed => {
                (StatusCode::BAD_REQUEST, "You must provide a proxyID in the query string\n").into_response()
            }
            Self::NotConnected => (
                StatusCode::NOT_FOUND,
                "Proxy not connected to this Pilot instance. It may be connected to another instance.\n",
            )
                .into_response(),
        }
    }
}

/// The first visible proxy whose connection id contains `proxyID`.
pub(super) fn named(
    state: &AdminState,
    visibility: &Visibility,
    parameters: &Parameters,
) -> Result<ConnectionInfo, Missing> {
    let id = parameters
        .get("proxyID")
        .filter(|id| !id.is_empty())
        .ok_or(Missing::NotNamed)?;
    let mut visible = visible(state, visibility);
    visible
        .find(|info| info.id.contains(id.as_str()))
        .ok_or(Missing::NotConnected)
}

/// The requested proxies, or all.
pub(super) fn chosen(
    state: &AdminState,
    visibility: &Visibility,
    parameters: &Parameters,
) -> Result<Vec<ConnectionInfo>, Missing> {
    match named(state, visibility, parameters) {
        Ok(one) => Ok(vec![one]),
        Err(Missing::NotNamed) => Ok(visible(state, visibility).collect()),
        Err(Missing::NotConnected) => Err(Missing::NotConnected),
    }
}

/// All proxies that the caller may see.
fn visible<'a>(
    state: &AdminState,
    visibility: &'a Visibility,
) -> impl Iterator<Item = ConnectionInfo> + use<'a> {
    let all = state.connections.list().into_iter();
    all.filter(move |info| match visibility {
        Visibility::Everything => true,
        Visibility::Namespaces(namespaces) => namespaces.contains(&info.proxy.namespace),
        Visibility::Nothing => false,
    })
}

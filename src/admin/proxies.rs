//! The proxy that a page is asked about.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::reply::Parameters;
use super::state::AdminState;
use navarch_security::rules::Visibility;
use navarch_xds::connections::ConnectionInfo;

/// Why there is no proxy to speak of. The texts are istiod's: istioctl looks for them in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// None was named.
    NotNamed,
    /// It is not connected here, or not for the asker to see.
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

/// The first proxy whose connection id contains `proxyID`, of those that the asker may see.
pub(super) fn named(
    state: &AdminState,
    visibility: &Visibility,
    parameters: &Parameters,
) -> Result<ConnectionInfo, Missing> {
    let id = parameters.get("proxyID").filter(|id| !id.is_empty()).ok_or(Missing::NotNamed)?;
    let mut visible = visible(state, visibility);
    visible.find(|info| info.id.contains(id.as_str())).ok_or(Missing::NotConnected)
}

/// The proxies that the request names, or all.
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

/// All that the asker may see.
fn visible<'a>(state: &AdminState, visibility: &'a Visibility) -> impl Iterator<Item = ConnectionInfo> + use<'a> {
    let all = state.connections.list().into_iter();
    all.filter(move |info| match visibility {
        Visibility::Everything => true,
        Visibility::Namespaces(namespaces) => namespaces.contains(&info.proxy.namespace),
        Visibility::Nothing => false,
    })
}

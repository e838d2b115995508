//! What a plugin of the token service does.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::StatusCode;

use super::https::HttpsError;
use super::request::{ErrorCode, RequestError, TokenRequest};
use super::secret::Secret;

/// Maximum lifetime of a token. Servers choose any number, with which times could overflow.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Exchanges tokens at a server (`--tokenManagerPlugin`).
pub(crate) trait Exchange: Debug + Send + Sync {
    /// Checks what this exchange requires beyond RFC 8693.
    fn check(&self, _request: &TokenRequest) -> Result<(), RequestError> {
        Ok(())
    }

    /// Requests a token. The caller limits the time.
    fn exchange<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<IssuedToken, ExchangeError>>;
}

/// A token of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuedToken {
    pub(super) token: Secret,
    /// The kind, as a URN.
    pub(super) issued_token_type: String,
    /// How the token is used: `Bearer`, or `N_A`.
    pub(super) token_type: String,
    /// The scope, if the server states it.
    pub(super) scope: Option<String>,
    /// How long it is valid; `None` if the server does not say.
    pub(super) lifetime: Option<Duration>,
    /// How long the token is valid that it was exchanged for in turn, if there was one.
    pub(super) federated: Option<Duration>,
}

/// Why there is no token. No message quotes a response: it may contain tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The server cannot be reached.
    #[error("the request to the token server failed")]
    Http(#[from] HttpsError),
    /// The file with the agent's own secret cannot be read.
    #[error("failed to read the client secret")]
    Secret(#[source] std::io::Error),
    /// A request to the server cannot be built from the tokens.
    #[error("a token is not valid in an HTTP header")]
    Header(#[from] http::header::InvalidHeaderValue),
    /// The server rejects the request.
    #[error("the token server rejected the exchange with HTTP status {status}")]
    Rejected { status: StatusCode, code: ErrorCode },
    /// The server failed.
    #[error("the token server failed with HTTP status {0}")]
    Failed(StatusCode),
    /// The response is not that of a token exchange.
    #[error("the response of the token server has no valid token")]
    Response,
    /// An exchange takes too long.
    #[error("the exchange timed out")]
    Timeout,
    /// The same exchange failed a moment ago.
    #[error("the last exchange failed; the next one is made later")]
    BackOff,
    /// Too many requests wait.
    #[error("too many requests wait for an exchange")]
    Busy,
}

/// The lifetime that a server states in seconds.
pub(super) fn lifetime_of(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_LIFETIME)
}

impl ExchangeError {
    /// The error of a response that is no success, with the code in its body.
    pub(super) fn of_status(status: StatusCode, body: &[u8]) -> Self {
        if !status.is_client_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Self::Failed(status);
        }

        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let code = body.get("error").and_then(serde_json::Value::as_str);
        Self::Rejected {
            status,
            code: ErrorCode::of_server(code.unwrap_or_default()),
        }
    }

    /// The code for the client.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Rejected { code, .. } => *code,
            Self::Http(_)
            | Self::Secret(_)
            | Self::Header(_)
            | Self::Failed(_)
            | Self::Response
            | Self::Timeout
            | Self::BackOff
            | Self::Busy => ErrorCode::InvalidTarget,
        }
    }

    /// The HTTP status for the client: 500 if the exchange failed, as in Istio 1.14.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Rejected { .. } => StatusCode::BAD_REQUEST,
            Self::BackOff | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Http(_)
            | Self::Secret(_)
            | Self::Header(_)
            | Self::Failed(_)
            | Self::Response
            | Self::Timeout => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

//! Exchanges at any server of RFC 8693 (`--tokenManagerPlugin=TokenExchange`).

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;

use super::exchange::{Exchange, ExchangeError, IssuedToken, lifetime_of};
use super::form;
use super::https::{Endpoint, HttpsClient};
use super::request::{GRANT_TYPE, TokenRequest};
use super::secret::Secret;
use navarch_base::regular_file;

/// Maximum size of the file with the client's secret.
const MAX_SECRET: u64 = 16 << 10;

/// A token server.
#[derive(Clone, Debug)]
pub(crate) struct RemoteExchange {
    pub(crate) endpoint: Endpoint,
    pub(crate) client: HttpsClient,
    /// For basic authentication.
    pub(crate) secret: Option<ClientSecret>,
}

/// A client id, and the file with its secret, which is read again for every exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientSecret {
    pub(crate) id: String,
    pub(crate) file: PathBuf,
}

/// A successful response (RFC 8693, section 2.2.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    issued_token_type: String,
    token_type: String,
    expires_in: Option<u64>,
    scope: Option<String>,
}

impl Exchange for RemoteExchange {
    fn exchange<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<IssuedToken, ExchangeError>> {
        self.request_token(request).boxed()
    }
}

impl RemoteExchange {
    async fn request_token(&self, request: &TokenRequest) -> Result<IssuedToken, ExchangeError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        if let Some(secret) = &self.secret {
            headers.insert(AUTHORIZATION, secret.header().await?);
        }

        let response = self
            .client
            .post(&self.endpoint, headers, body(request))
            .await?;
        if response.status != StatusCode::OK {
            return Err(ExchangeError::of_status(response.status, &response.body));
        }

        // The parser's error may quote the token.
        let response: TokenResponse =
            serde_json::from_slice(&response.body).map_err(|_| ExchangeError::Response)?;
        if response.access_token.is_empty() {
            return Err(ExchangeError::Response);
        }
        Ok(IssuedToken {
            token: Secret::new(response.access_token),
            issued_token_type: response.issued_token_type,
            token_type: response.token_type,
            scope: response.scope,
            lifetime: response.expires_in.map(lifetime_of),
            federated: None,
        })
    }
}

impl ClientSecret {
    /// The `Authorization` header (RFC 6749, section 2.3.1).
    async fn header(&self) -> Result<HeaderValue, ExchangeError> {
        let secret = regular_file::read_async(&self.file, MAX_SECRET)
            .await
            .map_err(ExchangeError::Secret)?;
        let secret = String::from_utf8_lossy(&secret);
        let pair = format!(
            "{}:{}",
            form::encode_text(&self.id),
            form::encode_text(secret.trim())
        );
        let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// The form with a request's parameters.
fn body(request: &TokenRequest) -> String {
    let actor = request.actor.as_ref();
    let single = [
        ("grant_type", Some(GRANT_TYPE)),
        ("subject_token", Some(request.subject_token.expose())),
        (
            "subject_token_type",
            Some(request.subject_token_type.as_str()),
        ),
        ("actor_token", actor.map(|actor| actor.token.expose())),
        (
            "actor_token_type",
            actor.map(|actor| actor.token_type.as_str()),
        ),
        ("scope", request.scope.as_deref()),
        (
            "requested_token_type",
            request.requested_token_type.as_deref(),
        ),
    ];
    let single = single
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));

    let audiences = request
        .audiences
        .iter()
        .map(|text| ("audience", text.as_str()));
    let resources = request
        .resources
        .iter()
        .map(|text| ("resource", text.as_str()));
    form::encode(single.chain(audiences).chain(resources))
}

//! Google's exchange (`--tokenManagerPlugin=GoogleTokenExchange`), as Istio 1.14 had it: the
//! workload's token for a federated one, and this for an access token of the mesh's data plane.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use prost_types::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::exchange::{Exchange, ExchangeError, IssuedToken, lifetime_of};
use super::https::{Endpoint, HttpsClient};
use super::request::{ACCESS_TOKEN, GRANT_TYPE, JWT, RequestError, TokenRequest};
use super::secret::Secret;
use crate::Clock;

/// Where federated tokens are issued.
const FEDERATED: &str = "https://sts.googleapis.com/v1/token";
/// The scope of access tokens.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Maximum number of attempts at a server that fails.
const ATTEMPTS: usize = 5;
/// The delay between them.
const ATTEMPT_DELAY: Duration = Duration::from_millis(10);
/// The requested lifetime of access tokens, which is also assumed if the response has none.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The workload's project, identity provider and trust domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoogleConfig {
    pub(crate) project_number: String,
    /// Who vouches for the subject token: the URL of the GKE cluster, or `GoogleComputeEngine`.
    pub(crate) identity_provider: String,
    /// The identity namespace if the subject token does not name one.
    pub(crate) trust_domain: String,
}

/// Google's token servers.
#[derive(Clone, Debug)]
pub(crate) struct GoogleExchange {
    config: GoogleConfig,
    federated: Endpoint,
    access: Endpoint,
    client: HttpsClient,
    clock: Clock,
}

#[derive(Deserialize)]
struct FederatedToken {
    access_token: String,
    #[serde(default)]
    expires_in: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessToken {
    access_token: String,
    #[serde(default)]
    expire_time: String,
}

impl GoogleExchange {
    /// With Google's own servers; `None` if the project number is no part of a URL.
    pub(crate) fn new(config: GoogleConfig, client: HttpsClient, clock: Clock) -> Option<Self> {
        let access = format!(
            "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/service-{}@gcp-sa-meshdataplane.iam.gserviceaccount.com:generateAccessToken",
            config.project_number
        );
        Self::at(FEDERATED, &access, config, client, clock)
    }

    /// With these servers.
    pub(super) fn at(
        federated: &str,
        access: &str,
        config: GoogleConfig,
        client: HttpsClient,
        clock: Clock,
    ) -> Option<Self> {
        Some(Self {
            federated: Endpoint::parse(federated)?,
            access: Endpoint::parse(access)?,
            config,
            client,
            clock,
        })
    }

    /// The audience of a federated token. The identity namespace is that of the subject token, as
    /// the trust domain may differ from it.
    fn audience(&self, subject_token: &Secret) -> String {
        let namespace = only_audience(subject_token.expose()).unwrap_or_else(|| {
            tracing::warn!(
                trust_domain = self.config.trust_domain,
                "the subject token does not have exactly one audience; the identity namespace is the trust domain"
            );
            self.config.trust_domain.clone()
        });
        let provider = &self.config.identity_provider;
        format!("identitynamespace:{namespace}:{provider}")
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<IssuedToken, ExchangeError> {
        let question = json!({
            "audience": self.audience(&request.subject_token),
            "grantType": GRANT_TYPE,
            "requestedTokenType": ACCESS_TOKEN,
            "subjectTokenType": request.subject_token_type,
            "subjectToken": request.subject_token.expose(),
            "scope": request.scope.as_deref().unwrap_or(SCOPE),
        });
        let federated: FederatedToken = self
            .request_json(&self.federated, HeaderMap::new(), &question)
            .await?;

        let mut headers = HeaderMap::new();
        let mut value = HeaderValue::try_from(format!("Bearer {}", federated.access_token))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        let question = json!({
            "delegates": [],
            "scope": [SCOPE],
            "lifetime": format!("{}s", LIFETIME.as_secs()),
        });
        let access: AccessToken = self.request_json(&self.access, headers, &question).await?;

        if access.access_token.is_empty() {
            return Err(ExchangeError::Response);
        }
        Ok(IssuedToken {
            token: Secret::new(access.access_token),
            issued_token_type: ACCESS_TOKEN.to_owned(),
            token_type: "Bearer".to_owned(),
            scope: None,
            lifetime: Some(lifetime(&access.expire_time, (self.clock)())),
            federated: Some(lifetime_of(federated.expires_in)),
        })
    }

    /// Sends JSON, again if the server fails, and parses the response.
    async fn request_json<T: DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        mut headers: HeaderMap,
        question: &Value,
    ) -> Result<T, ExchangeError> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut failure = ExchangeError::Timeout;

        for _ in 0..ATTEMPTS {
            let sent = self
                .client
                .post(endpoint, headers.clone(), question.to_string())
                .await;
            failure = match sent {
                Ok(response) if response.status == StatusCode::OK => {
                    // The parser's error may quote the token.
                    return serde_json::from_slice(&response.body)
                        .map_err(|_| ExchangeError::Response);
                }
                Ok(response) => ExchangeError::of_status(response.status, &response.body),
                Err(error) => error.into(),
            };
            if matches!(failure, ExchangeError::Rejected { .. }) {
                break;
            }
            tokio::time::sleep(ATTEMPT_DELAY).await;
        }

        Err(failure)
    }
}

impl Exchange for GoogleExchange {
    fn check(&self, request: &TokenRequest) -> Result<(), RequestError> {
        if request.subject_token_type == JWT {
            Ok(())
        } else {
            Err(RequestError::SubjectTokenType)
        }
    }

    fn exchange<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<IssuedToken, ExchangeError>> {
        self.request_token(request).boxed()
    }
}

/// How long a token is valid that expires at a time in RFC 3339.
fn lifetime(expire_time: &str, now: SystemTime) -> Duration {
    let expires = expire_time
        .parse::<Timestamp>()
        .ok()
        .and_then(|time| SystemTime::try_from(time).ok());
    expires.map_or(LIFETIME, |expires| {
        expires.duration_since(now).unwrap_or_default()
    })
}

/// The audience of a JSON Web Token, if it has exactly one. The signature is not verified: that is
/// for the server to do.
fn only_audience(token: &str) -> Option<String> {
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    let audience = claims.get("aud")?;
    let only = match audience.as_array().map(Vec::as_slice) {
        Some([one]) => one,
        Some(_) => return None,
        None => audience,
    };
    let only = only.as_str().filter(|only| !only.is_empty())?;
    Some(only.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_token_expires_when_google_says() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let seconds = |text: &str| lifetime(text, now).as_secs();
        assert_eq!(seconds("2023-11-14T22:23:20Z"), 600);
        assert_eq!(seconds("2023-11-14T22:13:10Z"), 0);
        assert_eq!(seconds("tomorrow"), 3600);
    }

    #[test]
    fn the_identity_namespace_is_the_tokens_only_audience() {
        let of = |claims: Value| {
            let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
            only_audience(&format!("e30.{payload}.c2ln"))
        };
        assert_eq!(
            of(json!({"aud": ["a.svc.id.goog"]})).unwrap(),
            "a.svc.id.goog"
        );
        assert_eq!(of(json!({"aud": "b"})).unwrap(), "b");
        for claims in [json!({}), json!({"aud": ["a", "b"]}), json!({"aud": ""})] {
            assert_eq!(of(claims), None);
        }
        assert_eq!(only_audience("no token"), None);
    }
}

//! A client of the OCI registry protocol, as far as needed to pull a module.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Deserialize;
use tokio::time::Instant;

use super::ModulesConfig;
use super::credentials::Credentials;
use super::fetch::{self, FetchError, FetchRequest, FetchedModule};
use super::manifest::{self, Layer, Manifest, ManifestError};
use super::reference::{Reference, Version};

use navarch_api::digest::sha256_hex;
use navarch_net::destination::is_private;

/// Maximum size of a token response.
const TOKEN_BYTES: u64 = 64 << 10;
/// Maximum depth of nested indexes.
const INDEXES: usize = 2;

/// Errors of pulling an image.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistryError {
    /// An HTTP request failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A digest does not match.
    #[error("{what} does not match its digest")]
    Digest { what: &'static str },
    /// The token server is not allowed.
    #[error("token server {0:?} of the registry is not allowed")]
    Realm(String),
    /// Indexes are nested too deeply.
    #[error("the image index refers to another index")]
    Indexes,
}

/// A registry while an image is pulled from it.
pub(super) struct Registry<'a> {
    config: &'a ModulesConfig,
    reference: &'a Reference,
    credentials: Option<Credentials>,
    /// `https`, or `http` if it is allowed and HTTPS is not available.
    scheme: &'static str,
    /// The `Authorization` header of every request.
    token: Option<HeaderValue>,
    /// The deadline of the pull.
    end: Instant,
}

/// The image's manifest.
pub(super) struct Image {
    /// The digest of the manifest: the image's checksum.
    pub(super) digest: String,
    /// The layer with the module.
    pub(super) layer: Layer,
}

/// The response of a token server.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Token {
    token: String,
    /// The same, by OAuth's name.
    access_token: String,
}

impl<'a> Registry<'a> {
    /// A registry client; no request is sent yet.
    pub(super) fn new(
        config: &'a ModulesConfig,
        reference: &'a Reference,
        secret: Option<&[u8]>,
        end: Instant,
    ) -> Self {
        let credentials = secret.and_then(|secret| Credentials::find(secret, &reference.registry));
        Self {
            config,
            reference,
            credentials,
            scheme: "https",
            token: None,
            end,
        }
    }

    /// Reads the image's manifest.
    pub(super) async fn image(&mut self) -> Result<Image, RegistryError> {
        let mut version = self.reference.version();

        for _ in 0..=INDEXES {
            let got = self
                .get(&format!("manifests/{version}"), manifest::MAX_BYTES)
                .await?;
            let digest = sha256_hex(&got);
            if version
                .strip_prefix("sha256:")
                .is_some_and(|expected| expected != digest)
            {
                return Err(RegistryError::Digest { what: "a manifest" });
            }

            match manifest::parse(&got)? {
                Manifest::Module(layer) => return Ok(Image { digest, layer }),
                Manifest::Index(chosen) => version = format!("sha256:{chosen}"),
            }
        }

        Err(RegistryError::Indexes)
    }

    pub(super) async fn layer(&mut self, layer: &Layer) -> Result<Bytes, RegistryError> {
        if layer.size > self.config.max_bytes {
            return Err(FetchError::TooLarge(self.config.max_bytes).into());
        }
        let got = self
            .get(
                &format!("blobs/sha256:{}", layer.digest),
                self.config.max_bytes,
            )
            .await?;
        if sha256_hex(&got) == layer.digest {
            Ok(got)
        } else {
            Err(RegistryError::Digest { what: "a layer" })
        }
    }

    /// Whether plain text is allowed: if the registry is listed as insecure, or is on this machine
    /// or network, as in other registry clients.
    fn may_be_plain(&self) -> bool {
        let registry = &self.reference.registry;
        let host = registry
            .rsplit_once(':')
            .map_or(registry.as_str(), |(host, _)| host);
        self.config.is_insecure(registry) || is_private(host) || host.ends_with(".local")
    }

    /// Reads a path of the repository; requests a token, or falls back to plain text, if necessary.
    async fn get(&mut self, path: &str, max_bytes: u64) -> Result<Bytes, RegistryError> {
        let mut got = match self.try_get(path, max_bytes).await {
            Err(FetchError::Connect(..)) if self.scheme == "https" && self.may_be_plain() => {
                self.scheme = "http";
                self.try_get(path, max_bytes).await?
            }
            got => got?,
        };
        if got.status == StatusCode::UNAUTHORIZED && self.token.is_none() {
            self.token = Some(self.log_in(&got.headers).await?);
            got = self.try_get(path, max_bytes).await?;
        }
        if got.status == StatusCode::OK {
            Ok(got.body)
        } else {
            Err(FetchError::Status(got.status).into())
        }
    }

    /// One request to the registry.
    async fn try_get(&self, path: &str, max_bytes: u64) -> Result<FetchedModule, FetchError> {
        let Reference {
            registry,
            repository,
            version: Version::Tag(_) | Version::Digest(_),
        } = self.reference;
        let text = format!("{}://{registry}/v2/{repository}/{path}", self.scheme);
        let url = text.parse::<Uri>().map_err(|_| FetchError::Url(text))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        self.fetch_url(url, headers, max_bytes).await
    }

    /// Sends a request within the remaining time.
    async fn fetch_url(
        &self,
        url: Uri,
        headers: HeaderMap,
        max_bytes: u64,
    ) -> Result<FetchedModule, FetchError> {
        let left = self
            .end
            .saturating_duration_since(Instant::now())
            .min(self.config.request_timeout);
        let insecure = self.config.is_insecure(&self.reference.registry);
        fetch::get(FetchRequest {
            url,
            headers,
            insecure,
            addresses: &self.config.addresses,
            max_bytes,
            timeout: left,
        })
        .await
    }

    /// The `Authorization` header that the registry requires.
    async fn log_in(&self, headers: &HeaderMap) -> Result<HeaderValue, RegistryError> {
        let unauthorized = || RegistryError::Fetch(FetchError::Status(StatusCode::UNAUTHORIZED));
        let challenges = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok());
        for challenge in challenges {
            let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("basic") {
                return self
                    .credentials
                    .as_ref()
                    .and_then(Credentials::header)
                    .ok_or_else(unauthorized);
            }

            if scheme.eq_ignore_ascii_case("bearer") {
                if let Some(Credentials::Bearer(_)) = &self.credentials {
                    return self
                        .credentials
                        .as_ref()
                        .and_then(Credentials::header)
                        .ok_or_else(unauthorized);
                }
                return self.token(rest).await;
            }
        }

        Err(unauthorized())
    }

    /// Requests a token from the server in a challenge.
    async fn token(&self, challenge: &str) -> Result<HeaderValue, RegistryError> {
        let realm = parameter(challenge, "realm").unwrap_or_default();
        let invalid_realm = || RegistryError::Realm(realm.to_owned());
        let url = realm.parse::<Uri>().map_err(|_| invalid_realm())?;
        let own = url
            .authority()
            .is_some_and(|authority| authority.as_str() == self.reference.registry);
        let plain = url.scheme_str() == Some("http") && self.scheme == "https";
        let good = matches!(url.scheme_str(), Some("http" | "https")) && !plain;

        // Otherwise a registry could make the agent access internal addresses of the workload's
        // machine or network.
        if !good || !own && url.host().is_none_or(is_private) {
            return Err(invalid_realm());
        }

        let scope = format!("repository:{}:pull", self.reference.repository);
        let separator = if url.query().is_some() { '&' } else { '?' };
        let service =
            parameter(challenge, "service").map(|service| format!("service={}&", encode(service)));
        let text = format!(
            "{realm}{separator}{}scope={}",
            service.unwrap_or_default(),
            encode(&scope)
        );
        let url = text.parse::<Uri>().map_err(|_| invalid_realm())?;

        let mut headers = HeaderMap::new();
        if let Some(value) = self.credentials.as_ref().and_then(Credentials::header) {
            headers.insert(AUTHORIZATION, value);
        }

        let got = self.fetch_url(url, headers, TOKEN_BYTES).await?;
        if got.status != StatusCode::OK {
            return Err(FetchError::Status(got.status).into());
        }

        let Token {
            token,
            access_token,
        } = serde_json::from_slice(&got.body).unwrap_or_default();
        let token = if token.is_empty() {
            access_token
        } else {
            token
        };

        Credentials::Bearer(token)
            .header()
            .ok_or_else(invalid_realm)
    }
}

fn parameter<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = challenge;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, next) = after.split_once('"')?;
        if key.trim_matches([' ', ',']).eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// Percent-encodes text for a URL's query.
fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

/// The deadline of a fetch.
pub(super) fn end(timeout: Duration) -> Instant {
    Instant::now() + timeout
}

//! A client of the OCI registry protocol, as far as needed to pull manifests and layers.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Deserialize;
use tokio::fs::File;
use tokio::time::Instant;

use super::credentials::Credentials;
use super::fetch::{self, FetchError, FetchRequest, FetchResponse};
use super::reference::{Reference, Version};

use navarch_base::digest::sha256_hex;
use navarch_base::shown_url::ShownUrl;
use navarch_net::destination::{AddressPolicy, is_private};

/// Maximum size of a token response.
const TOKEN_BYTES: u64 = 64 << 10;
/// Maximum size of a manifest: the limit of registries.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;
/// The `Accept` header: the supported manifest types.
const MANIFEST_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// Errors of pulling an image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// An HTTP request failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A digest does not match.
    #[error("{what} does not match its digest")]
    Digest { what: &'static str },
    /// The token server is not allowed.
    #[error("token server {0:?} of the registry is not allowed")]
    Realm(String),
}

/// How registries are accessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegistryAccess<'a> {
    /// Hosts whose certificates are not verified and that may be accessed in plain text; `*` is
    /// all.
    pub(crate) insecure: &'a BTreeSet<String>,
    /// Timeout of one request.
    pub(crate) request_timeout: Duration,
    /// The addresses that may be connected to.
    pub(crate) addresses: &'a AddressPolicy,
    /// Whether credentials may be sent in plain text to other machines.
    pub(crate) allows_plain_credentials: bool,
}

/// A registry while an image is pulled from it.
pub(crate) struct Registry<'a> {
    access: RegistryAccess<'a>,
    reference: &'a Reference,
    credentials: Option<Credentials>,
    /// `https`, or `http` if it is allowed and HTTPS is not available.
    scheme: &'static str,
    /// The `Authorization` header of every request.
    token: Option<HeaderValue>,
    /// The deadline of the pull.
    end: Instant,
}

/// A manifest as the registry has it.
#[derive(Clone, Debug)]
pub(crate) struct FetchedManifest {
    /// The sha256 of the JSON, in hexadecimal.
    pub(crate) digest: String,
    pub(crate) json: Bytes,
}

/// A blob of a repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blob<'a> {
    /// Its sha256 in hexadecimal.
    pub(crate) digest: &'a str,
    /// Its size in bytes by the manifest.
    pub(crate) size: u64,
}

/// The response of a token server.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Token {
    token: String,
    /// The same, by OAuth's name.
    access_token: String,
}

impl RegistryAccess<'_> {
    /// Whether a host, with its port if given, is accessed without verification.
    fn is_insecure(&self, host: &str) -> bool {
        self.insecure.contains("*") || self.insecure.contains(host)
    }
}

impl<'a> Registry<'a> {
    /// A registry client; no request is sent yet.
    pub(crate) fn new(
        access: RegistryAccess<'a>,
        reference: &'a Reference,
        secret: Option<&[u8]>,
        end: Instant,
    ) -> Self {
        let credentials = secret.and_then(|secret| Credentials::find(secret, &reference.registry));
        Self {
            access,
            reference,
            credentials,
            scheme: "https",
            token: None,
            end,
        }
    }

    /// Reads the manifest of a tag, or of `sha256:…`, which it must match.
    pub(crate) async fn manifest(
        &mut self,
        version: &str,
    ) -> Result<FetchedManifest, RegistryError> {
        let json = self
            .get(&format!("manifests/{version}"), MAX_MANIFEST_BYTES)
            .await?;
        let digest = sha256_hex(&json);
        if version
            .strip_prefix("sha256:")
            .is_some_and(|expected| expected != digest)
        {
            return Err(RegistryError::Digest { what: "a manifest" });
        }
        Ok(FetchedManifest { digest, json })
    }

    /// Reads a blob into memory.
    pub(crate) async fn blob(
        &mut self,
        blob: Blob<'_>,
        max_bytes: u64,
    ) -> Result<Bytes, RegistryError> {
        if blob.size > max_bytes {
            return Err(FetchError::TooLarge(max_bytes).into());
        }
        let got = self
            .get(&format!("blobs/sha256:{}", blob.digest), max_bytes)
            .await?;
        if sha256_hex(&got) == blob.digest {
            Ok(got)
        } else {
            Err(RegistryError::Digest { what: "a layer" })
        }
    }

    /// Writes a blob to a file. A manifest of the repository must have been read before: that
    /// determines the protocol and the token.
    pub(crate) async fn save_blob(
        &self,
        blob: Blob<'_>,
        max_bytes: u64,
        file: &mut File,
    ) -> Result<(), RegistryError> {
        if blob.size > max_bytes {
            return Err(FetchError::TooLarge(max_bytes).into());
        }
        let url = self.url(&format!("blobs/sha256:{}", blob.digest))?;
        let request = self.request(url, self.headers(), max_bytes);
        if fetch::save(request, file).await? == blob.digest {
            Ok(())
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
        self.access.is_insecure(registry) || is_private(host) || host.ends_with(".local")
    }

    /// Reads a path of the repository; requests a token, or falls back to plain text, if necessary.
    async fn get(&mut self, path: &str, max_bytes: u64) -> Result<Bytes, RegistryError> {
        // What a registry with TLS has been told is not repeated without.
        let may_fall_back = self.scheme == "https" && self.token.is_none() && self.may_be_plain();
        let mut got = match self.try_get(path, max_bytes).await {
            Err(FetchError::Connect(..)) if may_fall_back => {
                self.scheme = "http";
                self.try_get(path, max_bytes).await?
            }
            got => got?,
        };
        // Another server, to which the registry redirects, gets no credentials and chooses no token
        // server.
        let may_log_in = !got.is_from_other_server && self.token.is_none();
        if got.status == StatusCode::UNAUTHORIZED && may_log_in {
            self.token = Some(self.log_in(&got).await?);
            got = self.try_get(path, max_bytes).await?;
        }
        if got.status == StatusCode::OK {
            Ok(got.body)
        } else {
            Err(FetchError::Status(got.status).into())
        }
    }

    /// One request to the registry.
    async fn try_get(&self, path: &str, max_bytes: u64) -> Result<FetchResponse, FetchError> {
        let url = self.url(path)?;
        fetch::get(self.request(url, self.headers(), max_bytes)).await
    }

    /// The address of a path of the repository.
    fn url(&self, path: &str) -> Result<Uri, FetchError> {
        let Reference {
            registry,
            repository,
            version: Version::Tag(_) | Version::Digest(_),
        } = self.reference;
        let text = format!("{}://{registry}/v2/{repository}/{path}", self.scheme);
        text.parse()
            .map_err(|_| FetchError::Url(ShownUrl::new(&text)))
    }

    /// The headers of a request for a manifest or a blob.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(MANIFEST_TYPES));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        headers
    }

    /// A request within the remaining time.
    fn request(&self, url: Uri, headers: HeaderMap, max_bytes: u64) -> FetchRequest<'a> {
        let left = self
            .end
            .saturating_duration_since(Instant::now())
            .min(self.access.request_timeout);
        FetchRequest {
            url,
            headers,
            // A token for nobody is no secret.
            allows_plain_credentials: self.access.allows_plain_credentials
                || self.credentials.is_none(),
            insecure: self.access.is_insecure(&self.reference.registry),
            addresses: self.access.addresses,
            max_bytes,
            timeout: left,
        }
    }

    /// The `Authorization` header that the registry requires.
    async fn log_in(&self, got: &FetchResponse) -> Result<HeaderValue, RegistryError> {
        // Whoever can change plain text would choose the server that gets the credentials, over TLS
        // as well. That each request is private, `fetch` checks by its connection.
        let is_genuine = self.scheme == "https" || got.is_local;
        if !is_genuine && self.credentials.is_some() && !self.access.allows_plain_credentials {
            return Err(FetchError::PlainText(self.reference.registry.clone()).into());
        }

        let unauthorized = || RegistryError::Fetch(FetchError::Status(StatusCode::UNAUTHORIZED));
        let challenges = got
            .headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok());
        for challenge in challenges {
            let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
            let own_header = || self.credentials.as_ref().and_then(Credentials::header);
            if scheme.eq_ignore_ascii_case("basic") {
                return own_header().ok_or_else(unauthorized);
            }

            if scheme.eq_ignore_ascii_case("bearer") {
                if let Some(Credentials::Bearer(_)) = &self.credentials {
                    return own_header().ok_or_else(unauthorized);
                }
                return self.token(rest, got.is_local).await;
            }
        }

        Err(unauthorized())
    }

    /// Requests a token from the server in a challenge of a registry, which may be on this machine.
    async fn token(&self, challenge: &str, is_local: bool) -> Result<HeaderValue, RegistryError> {
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

        // Also a name may resolve to this machine.
        let addresses = fetch::addresses_for(self.access.addresses, is_local);
        let request = FetchRequest {
            addresses: &addresses,
            ..self.request(url, headers, TOKEN_BYTES)
        };
        let got = fetch::get(request).await?;
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
pub(crate) fn end(timeout: Duration) -> Instant {
    Instant::now() + timeout
}

//! Credentials for a registry, from a pull secret.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Docker Hub in names of images.
const DOCKER_REGISTRY: &str = "index.docker.io";
/// The key of Docker Hub in a pull secret.
const DOCKER: &str = "https://index.docker.io/v1/";

/// Why a pull secret cannot be used for a registry. No text has a part of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// It cannot be parsed; the parser's error would have a part of it.
    #[error("it is not Docker's config.json")]
    NotDockerConfig,
    /// The registry's entry has no credentials, or others, such as an identity token.
    #[error("its entry has none of auth, username and registrytoken")]
    Unsupported,
    /// They cannot be the value of a header.
    #[error("its entry has a line break or another character that a header may not have")]
    NoHeader,
    /// A credential helper has them, which is a program.
    #[error("credential helpers are not run")]
    Helper,
}

/// Credentials. `Debug` does not print them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Basic authentication.
    Basic(String),
    /// A bearer token for the registry itself.
    Bearer(String),
}

/// A pull secret: Docker's `config.json`.
#[derive(Deserialize)]
struct Config {
    /// Credentials by registry.
    #[serde(default)]
    auths: BTreeMap<String, RegistryAuth>,
    /// A program that has the credentials of all other registries.
    #[serde(default, rename = "credsStore")]
    store: Option<IgnoredAny>,
    /// Such programs by registry.
    #[serde(default, rename = "credHelpers")]
    helpers: Option<BTreeMap<String, IgnoredAny>>,
}

/// The credentials of one registry.
#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase", default)]
struct RegistryAuth {
    username: String,
    password: String,
    /// User name and password, encoded in Base64.
    auth: String,
    /// A token that replaces user name and password.
    registrytoken: String,
}

impl Config {
    /// The entry of a registry: as in Docker, that of exactly this name before those of its paths.
    fn entry(&self, registry: &str) -> Option<&RegistryAuth> {
        let is_docker = registry == DOCKER_REGISTRY;
        let name = if is_docker { DOCKER } else { registry };
        let is_its = |key: &str| host(key) == registry || is_docker && host(key) == "docker.io";

        self.auths.get(name).or_else(|| {
            let mut entries = self.auths.iter();
            entries.find_map(|(key, entry)| is_its(key).then_some(entry))
        })
    }
}

impl RegistryAuth {
    /// The credentials of an entry; `None` if it has none that are supported.
    fn credentials(&self) -> Option<Credentials> {
        let Self {
            username,
            password,
            auth,
            registrytoken,
        } = self;

        if !registrytoken.is_empty() {
            return Some(Credentials::Bearer(registrytoken.clone()));
        }

        if !username.is_empty() {
            let login = STANDARD.encode(format!("{username}:{password}"));
            return Some(Credentials::Basic(login));
        }

        (!auth.is_empty()).then(|| Credentials::Basic(auth.clone()))
    }
}

/// The host in the key of an entry.
fn host(key: &str) -> &str {
    let key = key
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    key.split('/').next().unwrap_or_default()
}

/// Checks that a pull secret is usable for a registry, or has nothing for it.
pub(super) fn check(secret: &[u8], registry: &str) -> Result<(), CredentialsError> {
    let config: Config =
        serde_json::from_slice(secret).map_err(|_| CredentialsError::NotDockerConfig)?;
    let helpers = config.helpers.as_ref();
    let has_helper = helpers.is_some_and(|helpers| helpers.contains_key(registry));

    match config.entry(registry) {
        Some(entry) => match entry.credentials() {
            None => Err(CredentialsError::Unsupported),
            // Without, the registry would be asked as by anybody.
            Some(found) if found.header().is_none() => Err(CredentialsError::NoHeader),
            Some(_) => Ok(()),
        },
        None if config.store.is_some() || has_helper => Err(CredentialsError::Helper),
        None => Ok(()),
    }
}

impl Credentials {
    /// The credentials for a registry; `None` if the pull secret has none.
    pub(crate) fn find(secret: &[u8], registry: &str) -> Option<Self> {
        let config: Config = serde_json::from_slice(secret).ok()?;
        config.entry(registry)?.credentials()
    }

    pub(crate) fn header(&self) -> Option<http::HeaderValue> {
        let text = match self {
            Self::Basic(encoded) => format!("Basic {encoded}"),
            Self::Bearer(token) => format!("Bearer {token}"),
        };
        let mut value = http::HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_exactly_the_registry_is_used_before_those_of_its_paths() {
        let secret = br#"{"auths": {"https://reg.example/old/": {"auth": "b2xk"}, "reg.example": {"auth": "bmV3"},
            "docker.io/old": {"auth": "b2xk"}, "https://index.docker.io/v1/": {"auth": "bmV3"}}}"#;
        for registry in ["reg.example", "index.docker.io"] {
            let found = Credentials::find(secret, registry);
            assert!(
                found == Some(Credentials::Basic("bmV3".to_owned())),
                "{registry}"
            );
        }
    }

    #[test]
    fn the_registrys_entry_is_found_by_its_host() {
        let secret = br#"{"auths": {"https://index.docker.io/v1/": {"auth": "YTpi"},
            "ghcr.io": {"username": "u", "password": "p"}, "https://reg.example:5000/v2/": {"registrytoken": "t"}}}"#;
        let basic = |text: &str| Some(Credentials::Basic(text.to_owned()));
        assert_eq!(Credentials::find(secret, "index.docker.io"), basic("YTpi"));
        assert_eq!(Credentials::find(secret, "ghcr.io"), basic("dTpw"));
        assert_eq!(
            Credentials::find(secret, "reg.example:5000"),
            Some(Credentials::Bearer("t".to_owned()))
        );
        assert_eq!(Credentials::find(secret, "other.example"), None);
        assert_eq!(Credentials::find(b"null", "ghcr.io"), None);
    }
}

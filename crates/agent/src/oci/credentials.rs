//! Credentials for a registry, from a pull secret.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The key of Docker Hub in a pull secret.
const DOCKER: &str = "https://index.docker.io/v1/";

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

impl Credentials {
    /// The credentials for a registry; `None` if the pull secret has none.
    pub(crate) fn find(secret: &[u8], registry: &str) -> Option<Self> {
        let config: Config = serde_json::from_slice(secret).ok()?;
        let host = |key: &str| {
            let key = key
                .trim_start_matches("https://")
                .trim_start_matches("http://");
            key.split('/').next().unwrap_or_default().to_owned()
        };

        let docker = registry == "index.docker.io";
        let entry = config.auths.iter().find(|(key, _)| {
            key.as_str() == registry
                || host(key) == registry
                || docker && (*key == DOCKER || host(key) == "docker.io")
        })?;

        let RegistryAuth {
            username,
            password,
            auth,
            registrytoken,
        } = entry.1;

        if !registrytoken.is_empty() {
            return Some(Self::Bearer(registrytoken.clone()));
        }

        if !username.is_empty() {
            return Some(Self::Basic(
                STANDARD.encode(format!("{username}:{password}")),
            ));
        }

        Some(Self::Basic(auth.clone())).filter(|_| !auth.is_empty())
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

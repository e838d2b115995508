//! Keys, certificates and roots in Secrets and ConfigMaps, by Kubernetes' names and the older
//! generic ones.

use bytes::Bytes;

use navarch_api::kubernetes::{ConfigMap, Secret, SecretBytes};

/// A generic Secret's certificates.
const CERT: &str = "cert";
/// A generic Secret's key.
const KEY: &str = "key";
/// A generic Secret's roots.
const CA: &str = "cacert";
/// A generic Secret's revocations.
const CRL: &str = "crl";
/// A TLS Secret's certificates.
const TLS_CERT: &str = "tls.crt";
/// A TLS Secret's key.
const TLS_KEY: &str = "tls.key";
/// A TLS Secret's OCSP staple.
const TLS_STAPLE: &str = "tls.ocsp-staple";
/// A TLS Secret's roots.
const TLS_CA: &str = "ca.crt";
/// A TLS Secret's revocations.
const TLS_CRL: &str = "ca.crl";
/// The credentials for registries of images.
pub(crate) const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// The keys of Secrets that are read; a recording keeps no others.
pub const READ_SECRET_KEYS: [&str; 10] = [
    CERT,
    KEY,
    CA,
    CRL,
    TLS_CERT,
    TLS_KEY,
    TLS_STAPLE,
    TLS_CA,
    TLS_CRL,
    DOCKER_CONFIG,
];
/// Maximum number of names of keys in a message.
const MAX_LISTED_KEYS: usize = 3;

/// A key and its certificates.
#[derive(Debug)]
pub(crate) struct Material {
    /// The chain, starting with the leaf, in PEM.
    pub(crate) certificates: Bytes,
    /// In PEM.
    pub(crate) key: SecretBytes,
    /// The OCSP staple, in DER.
    pub(crate) staple: Option<Bytes>,
}

/// Roots and revocation lists.
#[derive(Debug)]
pub(crate) struct Roots {
    /// In PEM.
    pub(crate) certificates: Bytes,
    /// In PEM.
    pub(crate) revocations: Option<Bytes>,
}

/// Why an object has no usable data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MaterialError {
    /// The object does not exist.
    #[error("object not found")]
    Missing,
    /// The required keys are empty.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// The required keys are missing.
    #[error("it has the keys {found} instead of {wanted}")]
    Lacks {
        /// The required keys.
        wanted: &'static str,
        /// The existing keys.
        found: String,
    },
}

/// The required keys of a Secret with a key pair.
const PAIR: &str = "tls.crt and tls.key, or cert and key";
/// The required keys of a Secret or ConfigMap with roots.
const ROOTS: &str = "ca.crt or cacert";

impl Material {
    /// The key and certificates of a Secret.
    ///
    /// # Errors
    /// If it has none.
    pub(crate) fn of_secret(secret: &Secret) -> Result<Self, MaterialError> {
        let get = |key: &str| secret.data.get(key);
        let filled = |key: &str| get(key).filter(|value| !value.expose().is_empty());
        if let (Some(certificates), Some(key)) = (filled(CERT), filled(KEY)) {
            return Ok(Self {
                certificates: certificates.expose().clone(),
                key: key.clone(),
                staple: None,
            });
        }

        if let (Some(certificates), Some(key)) = (filled(TLS_CERT), filled(TLS_KEY)) {
            let staple = get(TLS_STAPLE).map(|staple| staple.expose().clone());
            return Ok(Self {
                certificates: certificates.expose().clone(),
                key: key.clone(),
                staple,
            });
        }

        for (cert, key, what) in [
            (CERT, KEY, "cert or key"),
            (TLS_CERT, TLS_KEY, "tls.crt or tls.key"),
        ] {
            if get(cert).is_some() && get(key).is_some() {
                return Err(MaterialError::Empty(what));
            }
        }

        Err(MaterialError::Lacks {
            wanted: PAIR,
            found: listed(secret.data.keys().map(|key| &**key)),
        })
    }
}

impl Roots {
    /// The roots of a Secret.
    ///
    /// # Errors
    /// If it has none.
    pub(crate) fn of_secret(secret: &Secret) -> Result<Self, MaterialError> {
        let names = secret.data.keys().map(|key| &**key);
        Self::find(|key| secret.data.get(key).map(SecretBytes::expose), names)
    }

    /// The roots of a ConfigMap.
    ///
    /// # Errors
    /// If it has none.
    pub(crate) fn of_config_map(map: &ConfigMap) -> Result<Self, MaterialError> {
        Self::find(|key| map.data.get(key), map.data.keys().map(|key| &**key))
    }

    /// The roots in the data of an object.
    fn find<'a>(
        get: impl Fn(&str) -> Option<&'a Bytes>,
        names: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<Self, MaterialError> {
        for (ca, crl) in [(CA, CRL), (TLS_CA, TLS_CRL)] {
            if let Some(certificates) = get(ca).filter(|value| !value.is_empty()) {
                return Ok(Self {
                    certificates: certificates.clone(),
                    revocations: get(crl).cloned(),
                });
            }
        }
        for ca in [CA, TLS_CA] {
            if get(ca).is_some() {
                return Err(MaterialError::Empty(ca));
            }
        }
        Err(MaterialError::Lacks {
            wanted: ROOTS,
            found: listed(names),
        })
    }
}

/// The first names, and the number of others.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let first: Vec<&str> = names.take(MAX_LISTED_KEYS).collect();
    match count.checked_sub(MAX_LISTED_KEYS) {
        _ if count == 0 => "nothing".to_owned(),
        None | Some(0) => first.join(", "),
        Some(more) => format!("{} and {more} more", first.join(", ")),
    }
}

//! Keys, certificates and roots as Secrets and ConfigMaps hold them, under Kubernetes' names and the older generic ones.

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
/// Names of keys that a message lists.
const MAX_LISTED_KEYS: usize = 3;

/// A key and its certificates.
#[derive(Debug)]
pub(crate) struct Material {
    /// From the leaf on, in PEM.
    pub(crate) certificates: Bytes,
    /// In PEM.
    pub(crate) key: SecretBytes,
    /// The OCSP staple, in DER.
    pub(crate) staple: Option<Bytes>,
}

/// Roots and what they have revoked.
#[derive(Debug)]
pub(crate) struct Roots {
    /// In PEM.
    pub(crate) certificates: Bytes,
    /// In PEM.
    pub(crate) revocations: Option<Bytes>,
}

/// Why an object yields nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MaterialError {
    /// It is not there.
    #[error("object not found")]
    Missing,
    /// The right entries hold nothing.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// It has other entries.
    #[error("it has the keys {found} instead of {wanted}")]
    Lacks {
        /// What it would have to hold.
        wanted: &'static str,
        /// What it holds, by name.
        found: String,
    },
}

/// What a Secret must hold to be a key and its certificates.
const PAIR: &str = "tls.crt and tls.key, or cert and key";
/// What a Secret or ConfigMap must hold to be roots.
const ROOTS: &str = "ca.crt or cacert";

impl Material {
    /// The key and certificates of a Secret.
    ///
    /// # Errors
    /// When it holds none.
    pub(crate) fn of_secret(secret: &Secret) -> Result<Self, MaterialError> {
        let get = |key: &str| secret.data.get(key);
        let filled = |key: &str| get(key).filter(|value| !value.expose().is_empty());
        if let (Some(certificates), Some(key)) = (filled(CERT), filled(KEY)) {
            return Ok(Self { certificates: certificates.expose().clone(), key: key.clone(), staple: None });
        }
        if let (Some(certificates), Some(key)) = (filled(TLS_CERT), filled(TLS_KEY)) {
            let staple = get(TLS_STAPLE).map(|staple| staple.expose().clone());
            return Ok(Self { certificates: certificates.expose().clone(), key: key.clone(), staple });
        }
        for (cert, key, what) in [(CERT, KEY, "cert or key"), (TLS_CERT, TLS_KEY, "tls.crt or tls.key")] {
            if get(cert).is_some() && get(key).is_some() {
                return Err(MaterialError::Empty(what));
            }
        }
        Err(MaterialError::Lacks { wanted: PAIR, found: listed(secret.data.keys().map(|key| &**key)) })
    }
}

impl Roots {
    /// The roots of a Secret.
    ///
    /// # Errors
    /// When it holds none.
    pub(crate) fn of_secret(secret: &Secret) -> Result<Self, MaterialError> {
        let names = secret.data.keys().map(|key| &**key);
        Self::find(|key| secret.data.get(key).map(SecretBytes::expose), names)
    }

    /// The roots of a ConfigMap.
    ///
    /// # Errors
    /// When it holds none.
    pub(crate) fn of_config_map(map: &ConfigMap) -> Result<Self, MaterialError> {
        Self::find(|key| map.data.get(key), map.data.keys().map(|key| &**key))
    }

    /// The roots among entries.
    fn find<'a>(
        get: impl Fn(&str) -> Option<&'a Bytes>,
        names: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<Self, MaterialError> {
        for (ca, crl) in [(CA, CRL), (TLS_CA, TLS_CRL)] {
            if let Some(certificates) = get(ca).filter(|value| !value.is_empty()) {
                return Ok(Self { certificates: certificates.clone(), revocations: get(crl).cloned() });
            }
        }
        for ca in [CA, TLS_CA] {
            if get(ca).is_some() {
                return Err(MaterialError::Empty(ca));
            }
        }
        Err(MaterialError::Lacks { wanted: ROOTS, found: listed(names) })
    }
}

/// The first names, and how many more there are.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let first: Vec<&str> = names.take(MAX_LISTED_KEYS).collect();
    match count.checked_sub(MAX_LISTED_KEYS) {
        _ if count == 0 => "nothing".to_owned(),
        None | Some(0) => first.join(", "),
        Some(more) => format!("{} and {more} more", first.join(", ")),
    }
}

//! Certificates and CAs that Gateways reference: whether they exist and can be parsed.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::credentials::{Material, Roots};
use crate::sds::CA_SUFFIX;
use navarch_api::kubernetes::{ConfigMap, Secret};
use navarch_api::object::NamespacedName;
use navarch_pki::pem::{MatchError, check_match, private_key, readable_certificates};
use navarch_push::query::Query;
use navarch_push::view::View;

/// The fault of a Secret's key pair, if any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PairFault(pub(super) NamespacedName);

/// The fault of the CAs of a Secret or ConfigMap, if any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RootsFault {
    Secret(NamespacedName),
    ConfigMap(NamespacedName),
}

/// A fault of CAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RootsProblem {
    pub(super) text: String,
    /// Whether they exist, but cannot be parsed.
    pub(super) is_unreadable: bool,
}

impl Query for PairFault {
    type Value = Option<String>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(secret) = view.object::<Secret>(&self.0) else {
            return Some(format!("secret {} not found", self.0));
        };
        let material = match Material::of_secret(&secret.spec) {
            Ok(material) => material,
            Err(error) => return Some(error.to_string()),
        };
        check_pair(&material.certificates, material.key.expose())
            .err()
            .map(|fault| format!("the certificate is malformed: {fault}"))
    }
}

impl Query for RootsFault {
    type Value = Option<RootsProblem>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let problem = |text: String| {
            Some(RootsProblem {
                text,
                is_unreadable: false,
            })
        };

        let roots = match self {
            Self::Secret(name) => {
                // Proxies get the roots of a Secret whose own name has this suffix, if it exists.
                let suffixed = NamespacedName::of(
                    name.namespace.clone(),
                    format!("{}{CA_SUFFIX}", name.name).into(),
                );
                let found = view.object::<Secret>(&suffixed);
                match found.or_else(|| view.object::<Secret>(name)) {
                    Some(secret) => Roots::of_secret(&secret.spec),
                    None => return problem(format!("secret {name} not found")),
                }
            }
            Self::ConfigMap(name) => match view.object::<ConfigMap>(name) {
                Some(map) => Roots::of_config_map(&map.spec),
                None => return problem(format!("configmap {name} not found")),
            },
        };

        match roots {
            Err(error) => problem(error.to_string()),
            Ok(roots) if !has_certificate(&roots.certificates) => Some(RootsProblem {
                text: "the bundle is malformed".to_owned(),
                is_unreadable: true,
            }),
            Ok(_) => None,
        }
    }
}

/// Whether at least one certificate can be parsed.
fn has_certificate(pem: &[u8]) -> bool {
    readable_certificates(pem, "")
        .is_ok_and(|all| all.iter().any(|der| X509Certificate::from_der(der).is_ok()))
}

/// Checks that the first certificate is for the key, as Go's `tls.X509KeyPair` does.
///
/// # Errors
/// The fault, without any of the content.
pub fn check_pair(certificates: &[u8], key: &[u8]) -> Result<(), &'static str> {
    let missing = "it holds no certificate in PEM";
    let chain = readable_certificates(certificates, "").map_err(|_| missing)?;
    let first = chain.first().ok_or(missing)?;
    X509Certificate::from_der(first).map_err(|_| "the certificate cannot be read")?;
    let key = private_key(key, "").map_err(|_| "its key is not one in PEM")?;
    check_match(chain, &key).map_err(|error| match error {
        MatchError::Unsupported => "its key cannot be read",
        MatchError::Mismatch => "the certificate is for another key",
    })
}

//! TLS to a configuration source, from `tlsSettings`.
//!
//! As in istiod `caCertificates` and `caCrl` contain PEM; here these fields, certificate and key
//! may be file names as well. istiod supports only `SIMPLE` and uses plain text for all other
//! modes; here `MUTUAL` sends a client certificate, by which a control plane proves to another that
//! it may read configuration.

use std::io;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::JoinError;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_api::istio::{ClientTlsMode, ClientTlsSettings};
use navarch_api::names::Namespace;
use navarch_base::blocking;
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};
use navarch_net::any_certificate::AnyCertificate;
use navarch_net::{cryptography, system_roots};
use navarch_pki::pem::{PemError, crls, private_key, readable_certificates};

/// The start of PEM, which no file name has.
const PEM: &str = "-----BEGIN";

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    /// The mode is not supported.
    #[error(
        "mode ISTIO_MUTUAL is not supported for configSources; use MUTUAL with clientCertificate and privateKey, or credentialName"
    )]
    Mode,
    /// CA certificates of a credential of their own are not supported.
    #[error(
        "caCertCredentialName is not supported for configSources; use caCertificates or credentialName"
    )]
    CaCredential,
    /// A field is missing.
    #[error("{0} is required for mode MUTUAL without credentialName")]
    Missing(&'static str),
    /// A file cannot be read.
    #[error("{field}: failed to read {path}")]
    File {
        field: &'static str,
        path: String,
        source: io::Error,
    },
    /// The thread that reads the files panicked.
    #[error("failed to read the files of tlsSettings")]
    Panicked(#[from] JoinError),
    /// The root certificates of the system cannot be read.
    #[error("failed to read the root certificates")]
    Roots(#[source] io::Error),
    /// Text is not valid PEM.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// There is no cluster to read a Secret from.
    #[error("credentialName: no cluster to read Secret {0:?} from; use caCertificates")]
    NoCluster(String),
    /// The Secret cannot be read.
    #[error("credentialName: failed to read Secret {name:?} in namespace {namespace}")]
    Secret {
        name: String,
        namespace: String,
        source: Box<kube::Error>,
    },
    /// The Secret has no such key.
    #[error("credentialName: Secret {name:?} has no {key}")]
    NoKey { name: String, key: &'static str },
    /// The revocation list or the root certificates are invalid.
    #[error("invalid caCertificates or caCrl")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    /// Certificate and key are invalid or do not match.
    #[error("invalid clientCertificate or privateKey")]
    Certificate(#[from] rustls::Error),
}

/// The server's certificate has none of the required names.
#[derive(Debug, thiserror::Error)]
#[error("the server certificate's names {found} match none of subjectAltNames {wanted}")]
pub(super) struct NameMismatch {
    found: String,
    wanted: String,
}

/// The configuration of a TLS client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) config: Arc<ClientConfig>,
    /// The name that the server's certificate must have; empty for the host of the address.
    pub(super) server_name: String,
    /// The certificate must have one of these names; empty requires none.
    names: Vec<String>,
}

/// Certificates and keys in PEM.
#[derive(Default)]
struct Material {
    roots: Option<Vec<u8>>,
    revoked: Option<Vec<u8>>,
    /// Certificate chain and private key.
    own: Option<(Vec<u8>, Vec<u8>)>,
}

/// The TLS configuration from the settings and the current files and Secret; `None` for plain text.
pub(super) async fn client(
    settings: &ClientTlsSettings,
    cluster: Option<&kube::Client>,
    namespace: &Namespace,
) -> Result<Option<Client>, TlsError> {
    let is_mutual = match settings.mode {
        ClientTlsMode::Disable => return Ok(None),
        ClientTlsMode::IstioMutual => return Err(TlsError::Mode),
        ClientTlsMode::Simple => false,
        ClientTlsMode::Mutual => true,
    };

    if !settings.ca_cert_credential_name.is_empty() {
        return Err(TlsError::CaCredential);
    }

    let material = match settings.credential_name.as_str() {
        "" => {
            let settings = settings.clone();
            blocking::run(move || material(&settings, is_mutual)).await??
        }
        name => of_secret(cluster, namespace, name, is_mutual).await?,
    };
    let provider = cryptography::provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let is_unchecked = settings.insecure_skip_verify == Some(true);
    let verifier: Arc<dyn ServerCertVerifier> = if is_unchecked {
        AnyCertificate::new(provider)
    } else {
        verifier(&material, provider).await?
    };

    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &material.own {
        Some((chain, key)) => {
            let chain = readable_certificates(chain, "clientCertificate")?;
            builder.with_client_auth_cert(chain, private_key(key, "privateKey")?)?
        }
        None => builder.with_no_client_auth(),
    };

    config.alpn_protocols = vec![b"h2".to_vec()];
    let names = if is_unchecked {
        Vec::new()
    } else {
        settings.subject_alt_names.clone()
    };

    Ok(Some(Client {
        config: Arc::new(config),
        server_name: settings.sni.clone(),
        names,
    }))
}

impl Client {
    /// Whether the server's certificate has one of the required names.
    pub(super) fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), NameMismatch> {
        if self.names.is_empty() {
            return Ok(());
        }
        let found = chain.first().map(|leaf| names_of(leaf)).unwrap_or_default();
        if self.names.iter().any(|name| found.contains(name)) {
            return Ok(());
        }
        Err(NameMismatch {
            found: found.join(", "),
            wanted: self.names.join(", "),
        })
    }
}

/// The DNS names and URIs of a certificate.
fn names_of(leaf: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
        return Vec::new();
    };
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let name = |name: &GeneralName<'_>| {
        let (GeneralName::DNSName(name) | GeneralName::URI(name)) = name else {
            return None;
        };
        Some((*name).to_owned())
    };
    names.value.general_names.iter().filter_map(name).collect()
}

/// Certificates and keys from the settings, or from files that they name.
fn material(settings: &ClientTlsSettings, is_mutual: bool) -> Result<Material, TlsError> {
    let optional = |field, text: &str| {
        if text.is_empty() {
            Ok(None)
        } else {
            pem(field, text).map(Some)
        }
    };

    let required = |field, text: &str| optional(field, text)?.ok_or(TlsError::Missing(field));
    let own = if is_mutual {
        let chain = required("clientCertificate", &settings.client_certificate)?;
        Some((chain, required("privateKey", &settings.private_key)?))
    } else {
        None
    };

    let roots = optional("caCertificates", &settings.ca_certificates)?;
    Ok(Material {
        roots,
        revoked: optional("caCrl", &settings.ca_crl)?,
        own,
    })
}

/// PEM from the settings, or from a file that they name.
fn pem(field: &'static str, text: &str) -> Result<Vec<u8>, TlsError> {
    if text.trim_start().starts_with(PEM) {
        return Ok(text.as_bytes().to_vec());
    }
    let read = regular_file::read(Path::new(text), MAX_SETTINGS_BYTES);
    read.map_err(|source| TlsError::File {
        field,
        path: text.to_owned(),
        source,
    })
}

/// Certificates and keys of a Secret, under the keys of gateways' Secrets.
async fn of_secret(
    cluster: Option<&kube::Client>,
    namespace: &Namespace,
    name: &str,
    is_mutual: bool,
) -> Result<Material, TlsError> {
    let Some(cluster) = cluster else {
        return Err(TlsError::NoCluster(name.to_owned()));
    };

    let secrets: kube::Api<Secret> = kube::Api::namespaced(cluster.clone(), namespace.as_str());
    let secret = secrets.get(name).await.map_err(|source| {
        let name = name.to_owned();
        let namespace = namespace.to_string();
        TlsError::Secret {
            name,
            namespace,
            source: Box::new(source),
        }
    })?;

    let data = secret.data.unwrap_or_default();
    let get = |keys: [&'static str; 2]| {
        keys.iter()
            .find_map(|key| data.get(*key))
            .map(|value| value.0.clone())
    };
    let missing = |key: &'static str| TlsError::NoKey {
        name: name.to_owned(),
        key,
    };

    let own = if is_mutual {
        let chain = get(["tls.crt", "cert"]).ok_or_else(|| missing("tls.crt"))?;
        Some((
            chain,
            get(["tls.key", "key"]).ok_or_else(|| missing("tls.key"))?,
        ))
    } else {
        None
    };

    let roots = get(["ca.crt", "cacert"]).ok_or_else(|| missing("ca.crt"))?;
    Ok(Material {
        roots: Some(roots),
        revoked: get(["ca.crl", "crl"]),
        own,
    })
}

/// Verifies the server's certificate with the given root certificates, or those of the system.
async fn verifier(
    material: &Material,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let roots = match &material.roots {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(readable_certificates(pem, "caCertificates")?);
            roots
        }
        None => system_roots::read().await.map_err(TlsError::Roots)?,
    };

    let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(revoked) = &material.revoked {
        let lists: Vec<_> = crls(revoked, "caCrl").filter_map(Result::ok).collect();
        if lists.is_empty() {
            return Err(PemError::NoCrl("caCrl".to_owned()).into());
        }
        builder = builder
            .with_crls(lists)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests;

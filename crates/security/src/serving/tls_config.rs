//! The TLS configurations of a certificate.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::ServingError;
use crate::tls_rules::TlsRules;
use navarch_pki::pem;

/// ALPN of gRPC.
const H2: &[u8] = b"h2";
/// ALPN of HTTP/1.1, for webhooks and debug pages.
const HTTP1: &[u8] = b"http/1.1";

/// The usable CRLs of a PEM text for client verification. Invalid ones are skipped, as they would
/// block all clients.
fn revocations(
    pem: &str,
    usable: impl Fn(&[CertificateRevocationListDer<'static>]) -> Result<(), VerifierBuilderError>,
) -> Vec<CertificateRevocationListDer<'static>> {
    let mut lists = Vec::new();
    for list in pem::crls(pem.as_bytes(), "the CA's lists") {
        let checked = list
            .map_err(|error| error.to_string())
            .map(|list| vec![list]);
        match checked.and_then(|list| {
            usable(&list)
                .map(|()| list)
                .map_err(|error| error.to_string())
        }) {
            Ok(list) => lists.extend(list),
            Err(error) => tracing::error!(
                error,
                "failed to parse a certificate revocation list of the CA"
            ),
        }
    }

    lists
}

/// TLS for a server with this certificate. Client certificates of these roots are optional.
///
/// Sessions are not resumed: a client's certificate would not be verified again, even if it has
/// expired or been revoked.
pub(super) fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: &[CertificateDer<'static>],
    revoked: &str,
    rules: &TlsRules,
) -> Result<Arc<ServerConfig>, ServingError> {
    let provider = rules.provider();
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone())?;
    }

    let store = Arc::new(store);
    let builder = || WebPkiClientVerifier::builder_with_provider(store.clone(), provider.clone());
    let revoked = revocations(revoked, |list| {
        builder().with_crls(list.to_vec()).build().map(drop)
    });

    // Not every CA of a chain has a CRL.
    let verifier = builder()
        .with_crls(revoked)
        .allow_unknown_revocation_status();
    let verifier = verifier.allow_unauthenticated().build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(rules.versions())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});

    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![H2.to_vec()];
    Ok(Arc::new(config))
}

/// TLS for a server with this certificate. Client certificates are not requested: an API server
/// might send one of its own root.
pub(super) fn web_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    rules: &TlsRules,
) -> Result<Arc<ServerConfig>, ServingError> {
    let provider = rules.provider();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(rules.versions())?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Ok(Arc::new(config))
}

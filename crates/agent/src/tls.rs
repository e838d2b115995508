//! TLS of the agent's HTTP clients: with root certificates, or without verification if configured.

use std::sync::Arc;

use navarch_net::any_certificate::AnyCertificate;
use navarch_net::cryptography;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// The versions of TLS that are offered.
static VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS13, &rustls::version::TLS12];

/// TLS for probes, which accept any certificate; with `http2`, HTTP/2 is offered before HTTP/1.1.
///
/// # Errors
/// As [`unverified`].
pub(super) fn of_probes(http2: bool) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut probes = ClientConfig::clone(&*unverified()?);
    if http2 {
        probes.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(Arc::new(probes))
}

/// TLS for a client that accepts any certificate.
///
/// # Errors
/// If the provider supports no version of TLS, which does not occur.
pub(super) fn unverified() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = cryptography::provider();
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::new(provider))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// TLS for a client that verifies servers with these root certificates.
///
/// # Errors
/// As [`unverified`].
pub(super) fn verified(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let config = ClientConfig::builder_with_provider(cryptography::provider())
        .with_protocol_versions(&VERSIONS)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

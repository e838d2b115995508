//! TLS of the agent's HTTP clients: with the system's roots, or without verification if configured.

use std::sync::Arc;

use navarch_net::any_certificate::AnyCertificate;
use navarch_net::cryptography;
use rustls::{ClientConfig, RootCertStore};

/// TLS for probes, which accept any certificate; with `http2`, HTTP/2 is offered before HTTP/1.1.
///
/// # Errors
/// As [`config`].
pub(super) fn of_probes(http2: bool) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut probes = ClientConfig::clone(&*config(true)?);
    if http2 {
        probes.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(Arc::new(probes))
}

/// TLS for a client.
///
/// # Errors
/// If the provider supports no version of TLS, which does not occur.
pub(super) fn config(insecure: bool) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = cryptography::provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let config = if insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(AnyCertificate::new(provider))
            .with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        builder.with_root_certificates(roots).with_no_client_auth()
    };
    Ok(Arc::new(config))
}

//! TLS to who is asked as a client of the web: by the roots of the system, or unchecked where that was asked for.

use std::sync::Arc;

use navarch_net::any_certificate::AnyCertificate;
use rustls::{ClientConfig, RootCertStore};

/// TLS for probes, which take every certificate; with `http2` it is offered before HTTP/1.1.
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
/// When the provider has no version of TLS, which it has.
pub(super) fn config(insecure: bool) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let config = if insecure {
        builder.dangerous().with_custom_certificate_verifier(AnyCertificate::new(provider)).with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        builder.with_root_certificates(roots).with_no_client_auth()
    };
    Ok(Arc::new(config))
}

//! TLS of clients that accept every server certificate.

use std::sync::Arc;

use navarch_net::any_certificate::AnyCertificate;
use rustls::ClientConfig;

/// A client without a certificate.
pub fn client_config() -> ClientConfig {
    let provider = navarch_net::cryptography::provider();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs has all versions of TLS");
    config
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::new(provider))
        .with_no_client_auth()
}

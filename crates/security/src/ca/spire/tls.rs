//! Mutual TLS with a SPIRE server: the control plane's SVID, and the server's SPIFFE ID.

use std::sync::Arc;

use navarch_proto::X509svid;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::Clock;
use navarch_net::any_certificate::AnyCertificate;
use navarch_net::cryptography;

/// Why an SVID cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SvidError {
    /// A certificate is invalid.
    #[error("its {0} has an unreadable certificate")]
    Certificate(&'static str),
    /// Key and certificate cannot be used for TLS.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The server's name is invalid.
    #[error("invalid server name")]
    Name,
}

/// Verifies the chain of a server and its SPIFFE ID. SPIRE's certificates have no DNS names.
#[derive(Debug)]
struct SpiffeVerifier {
    provider: Arc<CryptoProvider>,
    /// Verifies the signatures of handshakes.
    signatures: Arc<AnyCertificate>,
    roots: RootCertStore,
    /// Such as `spiffe://cluster.local/spire/server`.
    server_id: String,
    clock: Clock,
}

/// The TLS configuration with an SVID.
pub(super) fn client_config(
    svid: &X509svid,
    server_id: &str,
    clock: Clock,
) -> Result<Arc<ClientConfig>, SvidError> {
    let mut roots = RootCertStore::empty();
    for root in split(&svid.bundle).ok_or(SvidError::Certificate("bundle"))? {
        roots.add(root)?;
    }

    let provider = cryptography::provider();
    let verifier = Arc::new(SpiffeVerifier {
        provider: provider.clone(),
        signatures: AnyCertificate::new(provider.clone()),
        roots,
        server_id: server_id.to_owned(),
        clock,
    });
    let chain = split(&svid.x509_svid).ok_or(SvidError::Certificate("chain"))?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(svid.x509_svid_key.to_vec()));

    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates of concatenated DER; `None` if one is invalid.
fn split(mut der: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut all = Vec::new();
    while !der.is_empty() {
        let (rest, _) = X509Certificate::from_der(der).ok()?;
        let length = der.len() - rest.len();
        all.push(CertificateDer::from(der.get(..length)?.to_vec()));
        der = rest;
    }
    Some(all)
}

impl ServerCertVerifier for SpiffeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let since_1970 = (self.clock)()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            UnixTime::since_unix_epoch(since_1970),
            self.provider.signature_verification_algorithms.all,
        )?;

        if is_of(end_entity, &self.server_id) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::NotValidForName.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

/// Whether a certificate has this SPIFFE ID as its only URI.
fn is_of(certificate: &CertificateDer<'_>, id: &str) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return false;
    };
    let mut uris = names.value.general_names.iter().filter_map(|name| {
        let GeneralName::URI(uri) = name else {
            return None;
        };
        Some(*uri)
    });
    uris.next() == Some(id) && uris.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use bytes::Bytes;
    use navarch_api::identity::Identity;
    use navarch_pki::KeyType;

    use super::super::super::{Authority, Bundle, Subject};
    use super::*;

    fn clock() -> SystemTime {
        jiff::Timestamp::now().into()
    }

    #[test]
    fn the_server_is_the_one_with_the_spiffe_id() {
        let day = Duration::from_secs(24 * 3600);
        let bundle = Bundle::self_signed("td", KeyType::P256, day, clock()).unwrap();
        let authority = Authority::new(&bundle, clock()).unwrap();
        let id = "spiffe://td/ns/spire/sa/server";
        let subject = Subject::Workload(Identity::parse(id).unwrap());
        let (chain, key) = authority.issue(&subject, day, clock()).unwrap();
        let root = authority.root_certificates()[0].to_vec();
        let two = Bytes::from([chain[0].to_vec(), root.clone()].concat());
        assert_eq!(split(&two).unwrap().len(), 2);
        assert!(split(b"nonsense").is_none());

        let svid = X509svid {
            spiffe_id: id.to_owned(),
            x509_svid: Bytes::copy_from_slice(&chain[0]),
            x509_svid_key: Bytes::copy_from_slice(key.secret_pkcs8_der()),
            bundle: Bytes::from(root),
        };
        client_config(&svid, id, clock).unwrap();

        let mut roots = RootCertStore::empty();
        roots.add(authority.root_certificates()[0].clone()).unwrap();
        let verify = |server_id: &str| {
            let verifier = SpiffeVerifier {
                provider: cryptography::provider(),
                signatures: AnyCertificate::new(cryptography::provider()),
                roots: roots.clone(),
                server_id: server_id.to_owned(),
                clock,
            };
            let name = ServerName::try_from("spire-server").unwrap();
            verifier.verify_server_cert(&chain[0], &[], &name, &[], UnixTime::now())
        };
        verify(id).unwrap();
        assert!(verify("spiffe://td/spire/server").is_err());
    }
}

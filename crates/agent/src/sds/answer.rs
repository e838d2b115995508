//! Encodes a secret for Envoy.

use std::path::Path;

use navarch_proto::any;
use navarch_proto::envoy::config::core::v3::DataSource;
use navarch_proto::envoy::config::core::v3::data_source::Specifier;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3 as tls;
use prost_types::Any;
use tls::secret::Type;

use super::SdsConfig;
use crate::secrets::Secret;
use navarch_api::mesh::PrivateKeyProvider;

/// The type URL of all resources.
pub(super) const TYPE_URL: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// Whether there is a file with revocations. As for pilot-agent, one that cannot be looked at does
/// not count, which opens the mesh to revoked certificates.
fn is_there(revocations: &Path) -> bool {
    revocations.try_exists().unwrap_or_else(|error| {
        tracing::error!(
            path = %revocations.display(),
            %error,
            "failed to look for revocations; revoked certificates are accepted"
        );
        false
    })
}

/// The resource of a secret, with the requested name. `hardware` handles keys, if set.
pub(super) fn resource(
    name: &str,
    secret: &Secret,
    config: &SdsConfig,
    hardware: Option<PrivateKeyProvider>,
) -> Any {
    let inline = |bytes: &bytes::Bytes| DataSource {
        specifier: Some(Specifier::InlineBytes(bytes.clone())),
        ..DataSource::default()
    };
    let kind = match secret {
        Secret::Certificate { chain, key } => {
            let key = inline(key.expose());
            let private_key_provider = hardware.and_then(|hardware| hardware.with_key(key.clone()));
            Type::TlsCertificate(tls::TlsCertificate {
                certificate_chain: Some(inline(chain)),
                private_key: private_key_provider.is_none().then_some(key),
                private_key_provider,
                ..tls::TlsCertificate::default()
            })
        }
        Secret::Roots(roots) => {
            let revocations = config.revocations.as_ref().filter(|path| is_there(path));
            Type::ValidationContext(tls::CertificateValidationContext {
                trusted_ca: Some(inline(roots)),
                crl: revocations.map(|path| DataSource {
                    specifier: Some(Specifier::Filename(path.to_string_lossy().into_owned())),
                    ..DataSource::default()
                }),
                ..tls::CertificateValidationContext::default()
            })
        }
    };

    any::pack(&tls::Secret {
        name: name.to_owned(),
        r#type: Some(kind),
    })
}

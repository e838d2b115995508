//! A key and its certificates as an Envoy message: inline, or with a private key provider for
//! hardware.

use navarch_proto::envoy::extensions::transport_sockets::tls::v3::TlsCertificate;

use super::inline;
use crate::credentials::Material;
use crate::proxy_settings::EffectiveProxyConfig;
use navarch_api::mesh::PrivateKeyProvider;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The private key hardware of the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeyHardware;

impl Query for KeyHardware {
    type Value = Option<PrivateKeyProvider>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&EffectiveProxyConfig).private_key_provider
    }
}

impl ProxyQuery for KeyHardware {}

/// The certificate with its key.
pub(super) fn certificate(material: Material, view: &View<'_>) -> TlsCertificate {
    let certificate_chain = Some(inline(material.certificates));
    let key = inline(material.key.expose().clone());
    let hardware = *view.derived(&KeyHardware);
    if let Some((hardware, extension)) =
        hardware.and_then(|hardware| Some((hardware, hardware.extension()?)))
    {
        if view.proxy().supports(extension) {
            let private_key_provider = hardware.with_key(key);
            return TlsCertificate {
                certificate_chain,
                private_key_provider,
                ..TlsCertificate::default()
            };
        }
        view.remark(format!(
            "privateKeyProvider: the proxy lacks {extension}; Envoy handles the key itself"
        ));
    }

    TlsCertificate {
        certificate_chain,
        private_key: Some(key),
        ocsp_staple: material.staple.map(inline),
        ..TlsCertificate::default()
    }
}

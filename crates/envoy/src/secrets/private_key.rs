//! A key and its certificates as Envoy takes them: plainly, or by way of hardware that handles the key.

use navarch_proto::envoy::extensions::private_key_providers::cryptomb::v3alpha::CryptoMbPrivateKeyMethodConfig;
use navarch_proto::envoy::extensions::private_key_providers::qat::v3alpha::QatPrivateKeyMethodConfig;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    PrivateKeyProvider, TlsCertificate, private_key_provider,
};

use super::inline;
use super::material::Material;
use crate::filters::proxy_settings::EffectiveProxyConfig;
use navarch_api::duration::Duration;
use navarch_push::query::{ProxyQuery, Query};
use navarch_push::view::View;

/// The hardware that handles the proxy's keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeyHardware;

/// Hardware that handles keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Hardware {
    /// Intel's CryptoMB instructions.
    CryptoMb(Setting),
    /// Intel's QuickAssist.
    Qat(Setting),
}

/// How hardware is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Setting {
    /// How long it may gather work, in nanoseconds.
    poll_nanos: i64,
    /// Whether Envoy does without where the hardware lacks.
    fallback: bool,
}

impl Setting {
    /// The delay as istiod sends it: what of it is less than a second, which is all that makes sense here.
    fn new(poll_delay: Option<Duration>, fallback: Option<bool>) -> Self {
        let nanos = poll_delay.map_or(0, Duration::as_nanos);
        Self { poll_nanos: nanos % 1_000_000_000, fallback: fallback.unwrap_or_default() }
    }

    /// The delay on the wire.
    fn poll_delay(self) -> Option<prost_types::Duration> {
        Some(Duration::from_nanos(self.poll_nanos).to_proto())
    }
}

impl Query for KeyHardware {
    type Value = Option<Hardware>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let config = view.get(&EffectiveProxyConfig);
        let provider = config.private_key_provider.as_ref()?;
        let crypto = provider.cryptomb.as_ref();
        let qat = provider.qat.as_ref();
        crypto
            .map(|crypto| Hardware::CryptoMb(Setting::new(crypto.poll_delay, crypto.fallback)))
            .or_else(|| qat.map(|qat| Hardware::Qat(Setting::new(qat.poll_delay, qat.fallback))))
    }
}

impl ProxyQuery for KeyHardware {}

/// The certificate with its key.
pub(super) fn certificate(material: Material, view: &View<'_>) -> TlsCertificate {
    let chain = Some(inline(material.certificates));
    let key = Some(inline(material.key.expose().clone()));
    let (name, config, setting) = match *view.derived(&KeyHardware) {
        None => {
            return TlsCertificate {
                certificate_chain: chain,
                private_key: key,
                ocsp_staple: material.staple.map(inline),
                ..TlsCertificate::default()
            };
        }
        Some(Hardware::CryptoMb(setting)) => {
            let config = CryptoMbPrivateKeyMethodConfig { private_key: key, poll_delay: setting.poll_delay() };
            ("cryptomb", navarch_proto::any::pack(&config), setting)
        }
        Some(Hardware::Qat(setting)) => {
            let config = QatPrivateKeyMethodConfig { private_key: key, poll_delay: setting.poll_delay() };
            ("qat", navarch_proto::any::pack(&config), setting)
        }
    };
    TlsCertificate {
        certificate_chain: chain,
        private_key_provider: Some(PrivateKeyProvider {
            provider_name: name.to_owned(),
            config_type: Some(private_key_provider::ConfigType::TypedConfig(config)),
            fallback: setting.fallback,
        }),
        ..TlsCertificate::default()
    }
}

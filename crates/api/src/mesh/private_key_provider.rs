//! Hardware that handles private keys for Envoy.

use navarch_proto::any;
use navarch_proto::envoy::config::core::v3::DataSource;
use navarch_proto::envoy::extensions::private_key_providers::cryptomb::v3alpha::CryptoMbPrivateKeyMethodConfig;
use navarch_proto::envoy::extensions::private_key_providers::qat::v3alpha::QatPrivateKeyMethodConfig;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3 as tls;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// The hardware. Exactly one field should be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrivateKeyProvider {
    /// Intel's CryptoMB instructions.
    pub cryptomb: Option<CryptoMb>,
    /// Intel's QuickAssist.
    pub qat: Option<Qat>,
}

/// Intel's CryptoMB instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CryptoMb {
    /// How long a queue that is not full waits.
    pub poll_delay: Option<Duration>,
    /// Whether Envoy works without the hardware if it is missing; `None` is false.
    pub fallback: Option<bool>,
}

/// Intel's QuickAssist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Qat {
    /// The interval between polls of the hardware.
    pub poll_delay: Option<Duration>,
    /// Whether Envoy works without the hardware if it is missing; `None` is false.
    pub fallback: Option<bool>,
}

impl PrivateKeyProvider {
    /// The name of Envoy's extension, which is missing in builds without `contrib`; `None` if no
    /// hardware is set.
    #[must_use]
    pub fn extension(&self) -> Option<&'static str> {
        match (self.cryptomb, self.qat) {
            (Some(_), _) => Some("cryptomb"),
            (None, Some(_)) => Some("qat"),
            (None, None) => None,
        }
    }

    /// The `PrivateKeyProvider` message for `key` with this hardware; `None` if no hardware is set.
    #[must_use]
    pub fn with_key(&self, key: DataSource) -> Option<tls::PrivateKeyProvider> {
        let private_key = Some(key);
        let (config, fallback) = match (self.cryptomb, self.qat) {
            (
                Some(CryptoMb {
                    poll_delay,
                    fallback,
                }),
                _,
            ) => {
                let poll_delay = delay(poll_delay);
                (
                    any::pack(&CryptoMbPrivateKeyMethodConfig {
                        private_key,
                        poll_delay,
                    }),
                    fallback,
                )
            }
            (
                None,
                Some(Qat {
                    poll_delay,
                    fallback,
                }),
            ) => {
                let poll_delay = delay(poll_delay);
                (
                    any::pack(&QatPrivateKeyMethodConfig {
                        private_key,
                        poll_delay,
                    }),
                    fallback,
                )
            }
            (None, None) => return None,
        };

        Some(tls::PrivateKeyProvider {
            provider_name: self.extension().unwrap_or_default().to_owned(),
            config_type: Some(tls::private_key_provider::ConfigType::TypedConfig(config)),
            fallback: fallback.unwrap_or_default(),
        })
    }
}

/// The delay as istiod and pilot-agent send it: only the part below a second. Longer delays are not
/// useful.
fn delay(written: Option<Duration>) -> Option<prost_types::Duration> {
    let nanos = written.map_or(0, Duration::as_nanos) % 1_000_000_000;
    Some(Duration::from_nanos(nanos).to_proto())
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tls::private_key_provider::ConfigType;

    use super::*;

    #[test]
    fn a_private_key_provider_is_configured_for_its_hardware() {
        let read = |text| serde_json::from_str::<PrivateKeyProvider>(text).unwrap();
        let key = DataSource::default();
        let cryptomb = read(r#"{"cryptomb": {"pollDelay": "2.01s", "fallback": true}}"#);
        let provider = cryptomb.with_key(key.clone()).unwrap();
        assert_eq!(
            (
                cryptomb.extension(),
                provider.provider_name.as_str(),
                provider.fallback
            ),
            (Some("cryptomb"), "cryptomb", true)
        );

        let Some(ConfigType::TypedConfig(config)) = provider.config_type else {
            panic!("a message")
        };

        assert!(
            config
                .type_url
                .ends_with("cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig"),
            "{}",
            config.type_url
        );

        let config = CryptoMbPrivateKeyMethodConfig::decode(&*config.value).unwrap();
        assert_eq!(
            config.poll_delay,
            Some(prost_types::Duration {
                seconds: 0,
                nanos: 10_000_000
            })
        );

        assert!(config.private_key.is_some());
        let qat = read(r#"{"qat": {"pollDelay": "5ms"}}"#)
            .with_key(key.clone())
            .unwrap();
        assert_eq!((qat.provider_name.as_str(), qat.fallback), ("qat", false));
        assert!(read("{}").with_key(key).is_none() && read("{}").extension().is_none());
    }
}

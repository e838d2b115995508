//! Redacts the fields of resources that no page shows: keys, passwords, and credentials for images.

use navarch_proto::any::type_url;
use navarch_proto::envoy::config::core::v3::data_source::Specifier;
use navarch_proto::envoy::config::core::v3::{DataSource, TypedExtensionConfig};
use navarch_proto::envoy::extensions::filters::http::wasm::v3::Wasm;
use navarch_proto::envoy::extensions::filters::network::wasm::v3::Wasm as NetworkWasm;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::Secret;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use navarch_proto::envoy::extensions::wasm::v3::PluginConfig;
use navarch_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use prost::Message;
use prost_types::Any;

use navarch_api::names::ResourceName;

/// The environment variable with the credentials for a Wasm module's image.
const PULL_SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";

/// A secret with redacted content. If it cannot be decoded, only its name is shown.
pub(super) fn secret(name: &ResourceName, body: &[u8]) -> Vec<u8> {
    let mut secret = Secret::decode(body).unwrap_or_else(|_| Secret {
        name: name.to_string(),
        r#type: None,
    });
    match &mut secret.r#type {
        Some(Type::TlsCertificate(certificate)) => {
            // All fields that are not public are removed: chain, staple and timestamps stay.
            certificate.private_key = Some(redacted());
            certificate.password = None;
            certificate.pkcs12 = None;
            if let Some(provider) = &mut certificate.private_key_provider {
                provider.config_type = None;
            }
        }
        Some(Type::SessionTicketKeys(keys)) => {
            keys.keys = keys.keys.iter().map(|_| redacted()).collect()
        }
        Some(Type::GenericSecret(generic)) => {
            generic.secret = generic.secret.as_ref().map(|_| redacted());
            generic
                .secrets
                .values_mut()
                .for_each(|value| *value = redacted());
        }
        Some(Type::ValidationContext(_)) | None => {}
    }

    secret.encode_to_vec()
}

/// The replacement of secret data.
fn redacted() -> DataSource {
    let specifier = Specifier::InlineBytes(bytes::Bytes::from_static(b"[redacted]"));
    DataSource {
        specifier: Some(specifier),
        ..DataSource::default()
    }
}

/// An extension config without the credentials of its image. A Wasm HTTP filter is shown as the
/// filter itself, as in istiod.
pub(super) fn extension(resource: Any) -> Any {
    let Ok(mut config) = TypedExtensionConfig::decode(resource.value.as_slice()) else {
        return resource;
    };

    let Some(filter) = config.typed_config.take() else {
        return resource;
    };

    if filter.type_url == type_url::<Wasm>() {
        let Ok(mut wasm) = Wasm::decode(filter.value.as_slice()) else {
            return nothing(resource.type_url, &config);
        };
        wasm.config.as_mut().map(hide_credentials);
        return Any {
            type_url: filter.type_url,
            value: wasm.encode_to_vec(),
        };
    }

    if filter.type_url == type_url::<NetworkWasm>() {
        let Ok(mut wasm) = NetworkWasm::decode(filter.value.as_slice()) else {
            return nothing(resource.type_url, &config);
        };
        wasm.config.as_mut().map(hide_credentials);
        config.typed_config = Some(Any {
            type_url: filter.type_url,
            value: wasm.encode_to_vec(),
        });
        return Any {
            type_url: resource.type_url,
            value: config.encode_to_vec(),
        };
    }

    resource
}

/// The config without the part that could not be decoded.
fn nothing(type_url: String, config: &TypedExtensionConfig) -> Any {
    Any {
        type_url,
        value: config.encode_to_vec(),
    }
}

fn hide_credentials(plugin: &mut PluginConfig) {
    let Some(Vm::VmConfig(vm)) = &mut plugin.vm else {
        return;
    };
    let values = vm
        .environment_variables
        .as_mut()
        .map(|variables| &mut variables.key_values);
    if let Some(secret) = values.and_then(|values| values.get_mut(PULL_SECRET)) {
        "<Redacted>".clone_into(secret);
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
        GenericSecret, TlsCertificate,
    };
    use navarch_proto::envoy::extensions::wasm::v3::{EnvironmentVariables, VmConfig};

    use super::*;

    fn data(text: &'static str) -> DataSource {
        let specifier = Some(Specifier::InlineBytes(bytes::Bytes::from_static(
            text.as_bytes(),
        )));
        DataSource {
            specifier,
            ..DataSource::default()
        }
    }

    fn shown(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn chains_are_shown_and_keys_are_not() {
        let certificate = TlsCertificate {
            certificate_chain: Some(data("CHAIN")),
            private_key: Some(data("KEY")),
            password: Some(data("PASSWORD")),
            ..TlsCertificate::default()
        };

        let generic = GenericSecret {
            secret: Some(data("TOKEN")),
            ..GenericSecret::default()
        };

        for r#type in [
            Type::TlsCertificate(certificate),
            Type::GenericSecret(generic),
        ] {
            let is_certificate = matches!(r#type, Type::TlsCertificate(_));
            let body = Secret {
                name: "a".to_owned(),
                r#type: Some(r#type),
            }
            .encode_to_vec();
            let shown = shown(&secret(&ResourceName::new("a"), &body));
            assert_eq!(shown.contains("CHAIN"), is_certificate);
            assert!(shown.contains("[redacted]"));
            for hidden in ["KEY", "PASSWORD", "TOKEN"] {
                assert!(!shown.contains(hidden), "{hidden}");
            }
        }

        assert!(
            !shown(&secret(&ResourceName::new("a"), b"KEY")).contains("KEY"),
            "what cannot be read"
        );
    }

    #[test]
    fn a_wasm_filter_is_shown_without_the_credentials_of_its_image() {
        let key_values = [(PULL_SECRET.to_owned(), "CREDENTIALS".to_owned())].into();
        let environment_variables = Some(EnvironmentVariables {
            key_values,
            ..Default::default()
        });
        let vm = Vm::VmConfig(VmConfig {
            environment_variables,
            ..VmConfig::default()
        });

        let config = Some(PluginConfig {
            name: "p".to_owned(),
            vm: Some(vm),
            ..PluginConfig::default()
        });
        let http = pack(&Wasm {
            config: config.clone(),
        });

        let network = pack(&NetworkWasm { config });
        for filter in [http, network] {
            let config = TypedExtensionConfig {
                name: "p".to_owned(),
                typed_config: Some(filter),
            };
            assert!(
                config
                    .typed_config
                    .as_ref()
                    .is_some_and(|filter| filter.type_url.starts_with("type.googleapis.com/"))
            );

            let shown = shown(&extension(pack(&config)).encode_to_vec());
            assert!(
                shown.contains("<Redacted>") && !shown.contains("CREDENTIALS"),
                "{shown}"
            );
        }
    }
}

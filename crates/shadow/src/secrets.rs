//! What is secret in resources is compared by digest, so that no report has it.

use navarch_push::resource::ResourceType;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The fields that have the content of certificates, keys and passwords.
const CONTENT: [&str; 2] = ["inlineBytes", "inlineString"];
/// The fields of resources of any type whose content is secret.
const PRIVATE: [&str; 9] = [
    "authPassword",
    "keys",
    "password",
    "pkcs12",
    "privateKey",
    "privateKeyProvider",
    "secret",
    "secrets",
    "users",
];
/// The environment variable with the credentials for a Wasm module's image.
const PULL_SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";

/// Replaces what is secret in a resource by its digest: in a Secret also certificates, which are
/// public.
pub(crate) fn replace_by_digest(resource_type: ResourceType, resource: &mut Value) {
    if resource_type == ResourceType::Secret {
        replace_content(resource);
    }
    replace_private(resource);
}

/// Replaces the fields of any type that are secret.
fn replace_private(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    PULL_SECRET => replace_texts(value),
                    key if PRIVATE.contains(&key) => replace_private_field(value),
                    _ => replace_private(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(replace_private),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces a field that is secret: a text, or the texts of its configuration and content.
fn replace_private_field(value: &mut Value) {
    if value.is_string() || value.get("typedConfig").is_some() {
        replace_texts(value);
    } else {
        replace_content(value);
        replace_private(value);
    }
}

/// Replaces the content of all certificates and keys.
fn replace_content(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if CONTENT.contains(&key.as_str()) {
                    replace_texts(value);
                } else {
                    replace_content(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(replace_content),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces all texts.
fn replace_texts(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(replace_texts),
        Value::Array(items) => items.iter_mut().for_each(replace_texts),
        Value::String(text) => *text = digest(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The SHA-256 of a text.
fn digest(text: &str) -> String {
    let bytes = Sha256::digest(text.as_bytes());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_keys_have_equal_digests_and_none_is_shown() {
        let secret = |key: &str| {
            let mut secret = json!({
                "name": "kubernetes://a",
                "tlsCertificate": { "privateKey": { "inlineBytes": key } },
            });
            replace_by_digest(ResourceType::Secret, &mut secret);
            secret
        };
        assert_eq!(secret("KEY"), secret("KEY"));
        assert_ne!(secret("KEY"), secret("OTHER"));
        assert!(!secret("KEY").to_string().contains("\"KEY\""));
        assert_eq!(secret("KEY")["name"], "kubernetes://a");
    }

    #[test]
    fn resources_of_all_types_show_neither_keys_nor_passwords_nor_credentials_of_images() {
        let content = |key: &str| {
            json!({
                "name": "a",
                "config": { "vmConfig": { "environmentVariables": { "keyValues": {
                    "ISTIO_META_WASM_IMAGE_PULL_SECRET": key, "PLAIN": "shown",
                } } } },
                "tlsCertificates": [{
                    "certificateChain": { "inlineString": "public" },
                    "privateKey": { "inlineString": key },
                    "password": { "inlineBytes": key },
                    "privateKeyProvider": {
                        "providerName": "p",
                        "typedConfig": { "@type": "t", "other": key },
                    },
                }],
                "sessionTicketKeys": { "keys": [{ "inlineBytes": key }] },
                "auth": { "password": key },
            })
        };
        let replaced = |resource_type, key: &str| {
            let mut resource = content(key);
            replace_by_digest(resource_type, &mut resource);
            resource
        };

        for resource_type in [
            ResourceType::ExtensionConfig,
            ResourceType::Listener,
            ResourceType::Cluster,
        ] {
            let resource = replaced(resource_type, "TOP-SECRET");
            let text = resource.to_string();
            assert!(!text.contains("TOP-SECRET"), "{text}");
            assert!(text.contains("shown") && text.contains("public"), "{text}");
            assert_ne!(resource, replaced(resource_type, "OTHER"));
        }
    }
}

//! Redaction of secrets in a recording.
//!
//! Of Secrets only the entries that Navarch reads are kept: certificates as they are, everything
//! else as a digest with an ephemeral key. Of a proxy's metadata, the environment of its agent and
//! annotations of its pod that Navarch does not read are left out.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use navarch_api::any_object::AnyObject;
use navarch_api::kubernetes::{Secret, SecretBytes};
use navarch_api::object::Object;
use navarch_envoy::gateway_api::check_pair;
use navarch_envoy::{READ_ANNOTATIONS, READ_SECRET_KEYS};
use navarch_tables::hash::keyed_hash;

/// Prefix of a redacted private key with certificates in the same Secret; followed by the name of
/// their entry, and a space.
pub(crate) const KEY_OF: &str = "redacted key of ";
/// Prefix of any other redacted value.
const REDACTED: &str = "redacted ";
/// What the names of the labels begin with that are read of Secrets: `istio/multiCluster`, and the
/// revision in `istio.io/rev`.
const ISTIO_LABELS: &str = "istio";
/// The settings in a proxy's metadata.
const PROXY_CONFIG: &str = "PROXY_CONFIG";
/// The environment of the agent in these settings: no translator reads it, in neither spelling.
const ENVIRONMENT: [&str; 2] = ["proxyMetadata", "proxy_metadata"];
/// The annotations of the pod in a proxy's metadata.
const ANNOTATIONS: &str = "ANNOTATIONS";
/// The PEM labels that are not secret.
const PUBLIC: [&str; 3] = ["CERTIFICATE", "X509 CRL", "TRUSTED CERTIFICATE"];

/// Redacts secrets in objects. Equal values get equal digests within one process.
#[derive(Debug)]
pub(crate) struct Redactor {
    key: [u8; 32],
}

impl Redactor {
    /// With a random key.
    pub(crate) fn new() -> Self {
        // Derived from the process's random hash key.
        let mut hasher = Sha256::new();
        for number in 0..4_u64 {
            hasher.update(keyed_hash(&("record", number)).to_le_bytes());
        }
        Self {
            key: hasher.finalize().into(),
        }
    }

    pub(crate) fn redact(&self, object: &AnyObject) -> AnyObject {
        if let AnyObject::Secret(secret) = object {
            return AnyObject::Secret(Arc::new(self.secret(secret)));
        }
        object.clone()
    }

    fn secret(&self, secret: &Object<Secret>) -> Object<Secret> {
        let mut redacted = secret.clone();
        // The names of other entries can tell as much as their values, such as accounts.
        redacted
            .spec
            .data
            .retain(|name, _| READ_SECRET_KEYS.contains(&&**name));
        let read = redacted.spec.clone();
        for (name, value) in &mut redacted.spec.data {
            *value = self.value(name, value, &read);
        }

        // Tools keep whole manifests in annotations: as JSON, compressed, in parts. Navarch reads
        // none of a Secret's.
        redacted.meta.annotations = Default::default();
        redacted.meta.labels = secret
            .meta
            .labels
            .iter()
            .filter(|(name, _)| name.starts_with(ISTIO_LABELS))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        redacted
    }

    /// The redacted value.
    fn value(&self, name: &str, value: &SecretBytes, secret: &Secret) -> SecretBytes {
        let bytes = value.expose();
        if is_public(bytes) {
            return value.clone();
        }

        let mut hasher = Sha256::new();
        hasher.update(self.key);
        hasher.update(bytes);
        let digest: String = hasher
            .finalize()
            .iter()
            .take(12)
            .map(|byte| format!("{byte:02x}"))
            .collect();

        let pair = secret.data.iter().find(|(other, chain)| {
            ***other != *name
                && is_public(chain.expose())
                && check_pair(chain.expose(), bytes).is_ok()
        });
        let text = match pair {
            Some((chain, _)) => format!("{KEY_OF}{chain} {digest}"),
            None => format!("{REDACTED}{digest}"),
        };

        SecretBytes::new(text.into_bytes())
    }
}

/// The metadata of a proxy without the environment of its agent and the annotations that are not
/// read. Other values stay: EnvoyFilters can match any of them.
pub(crate) fn redact_metadata(metadata: &Value) -> Value {
    let mut redacted = metadata.clone();

    redact_field(&mut redacted, PROXY_CONFIG, remove_environment);
    redact_field(&mut redacted, ANNOTATIONS, keep_read_annotations);

    redacted
}

/// Redacts a field of a proxy's metadata. The agent sends an object; its text is read as well.
fn redact_field(metadata: &mut Value, name: &str, redact: fn(&mut Value)) {
    match metadata.get_mut(name) {
        Some(Value::String(text)) => {
            if let Ok(mut value) = serde_json::from_str(text) {
                redact(&mut value);
                *text = value.to_string();
            }
        }
        Some(value) => redact(value),
        None => {}
    }
}

fn remove_environment(settings: &mut Value) {
    if let Some(settings) = settings.as_object_mut() {
        for name in ENVIRONMENT {
            settings.remove(name);
        }
    }
}

fn keep_read_annotations(annotations: &mut Value) {
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.retain(|name, _| READ_ANNOTATIONS.contains(&name.as_str()));
    }
}

/// Whether bytes are only certificates and revocation lists in PEM, and whitespace.
fn is_public(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };

    let mut rest = text.trim();
    if rest.is_empty() {
        return false;
    }

    while !rest.is_empty() {
        let block = PUBLIC.iter().find_map(|label| {
            let inner = rest.strip_prefix(&format!("-----BEGIN {label}-----"))?;
            let (body, after) = inner.split_once(&format!("-----END {label}-----"))?;
            body.bytes().all(is_base64).then_some(after)
        });
        match block {
            Some(after) => rest = after.trim_start(),
            None => return false,
        }
    }

    true
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || matches!(byte, b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::Restorer;

    fn secret(values: &[(&str, &str)], annotation: &str) -> Object<Secret> {
        let mut secret = Object {
            meta: Default::default(),
            spec: Secret::default(),
        };
        let values = values
            .iter()
            .map(|(key, value)| (Arc::from(*key), SecretBytes::new(value.as_bytes().to_vec())));
        secret.spec.data = values.collect();
        secret.meta.annotations = [(Arc::from("note"), Arc::from(annotation))].into();
        secret.meta.labels = [
            (Arc::from("istio/multiCluster"), Arc::from("true")),
            (Arc::from("pin"), Arc::from("hunter2")),
        ]
        .into();
        secret
    }

    fn written(secret: &Object<Secret>) -> String {
        let redacted = Redactor::new().secret(secret);
        let values = redacted
            .spec
            .data
            .values()
            .map(|value| String::from_utf8_lossy(value.expose()).into_owned());
        values
            .chain(redacted.meta.annotations.values().map(ToString::to_string))
            .chain(redacted.meta.labels.values().map(ToString::to_string))
            .chain(redacted.spec.data.keys().map(ToString::to_string))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn keys_and_passwords_are_replaced_and_certificates_are_not() {
        let pair = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let chain = pair.cert.pem();
        let key = pair.signing_key.serialize_pem();
        let all = secret(
            &[
                ("tls.crt", &chain),
                ("tls.key", &key),
                ("password", "hunter2hunter2"),
            ],
            "says hunter2hunter2",
        );

        let text = written(&all);
        assert!(
            text.contains(&chain)
                && text.contains("redacted key of tls.crt ")
                && text.ends_with("true\ntls.crt\ntls.key"),
            "{text}"
        );
        for hidden in ["PRIVATE KEY", "hunter2", "password"] {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }

        let hidden_in_public = secret(&[("ca.crt", &format!("{chain}\n{key}"))], "");
        assert!(
            !written(&hidden_in_public).contains("PRIVATE"),
            "a key behind a certificate"
        );

        // A replay gets a valid pair instead.
        let restored = Restorer::new()
            .unwrap()
            .secret(&Redactor::new().secret(&all));
        let value = |key: &str| restored.spec.data[key].expose().clone();
        assert_eq!(check_pair(&value("tls.crt"), &value("tls.key")), Ok(()));
    }

    #[test]
    fn no_form_of_a_key_in_an_annotation_is_kept() {
        use base64::Engine as _;
        use base64::prelude::BASE64_STANDARD;

        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n";
        let manifest = serde_json::json!({ "stringData": { "tls.key": key } }).to_string();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut packed, manifest.as_bytes()).unwrap();
        let packed = BASE64_STANDARD.encode(packed.finish().unwrap());
        let (half, _) = key.split_at(40);

        for annotation in [key, &manifest, &packed, half] {
            let all = secret(&[("tls.key", key)], annotation);
            let text = written(&all);
            assert!(!text.contains(annotation), "{annotation}: {text}");
            assert!(!text.contains("MIGH"), "{annotation}: {text}");
        }
    }

    #[test]
    fn entries_of_secrets_that_are_not_read_leave_no_name() {
        let pair = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let chain = pair.cert.pem();
        let key = pair.signing_key.serialize_pem();
        let all = secret(
            &[
                ("alice@example.com", "x"),
                ("alice.crt", &chain),
                ("tls.key", &key),
                (".dockerconfigjson", "{}"),
            ],
            "",
        );

        let redacted = Redactor::new().secret(&all);
        let names: Vec<&str> = redacted.spec.data.keys().map(|name| &**name).collect();
        assert_eq!(names, [".dockerconfigjson", "tls.key"]);
        assert!(!written(&all).contains("alice"), "{}", written(&all));
    }

    #[test]
    fn the_environment_of_an_agent_is_no_part_of_its_metadata() {
        let metadata = serde_json::json!({
            "NAMESPACE": "shop",
            "LABELS": { "app": "web" },
            "PROXY_CONFIG": {
                "concurrency": 2,
                "proxyMetadata": { "TOKEN": "hunter2" },
                "proxy_metadata": { "TOKEN": "hunter2" },
            },
            "ANNOTATIONS": {
                "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
                "resource.opentelemetry.io/service.name": "web",
            },
        });
        let expected = serde_json::json!({
            "NAMESPACE": "shop",
            "LABELS": { "app": "web" },
            "PROXY_CONFIG": { "concurrency": 2 },
            "ANNOTATIONS": { "resource.opentelemetry.io/service.name": "web" },
        });
        assert_eq!(redact_metadata(&metadata), expected);

        let texts = serde_json::json!({
            "PROXY_CONFIG": metadata["PROXY_CONFIG"].to_string(),
            "ANNOTATIONS": metadata["ANNOTATIONS"].to_string(),
        });
        let redacted = redact_metadata(&texts).to_string();
        assert!(redacted.contains("concurrency"), "{redacted}");
        assert!(!redacted.contains("hunter2"), "{redacted}");
    }

    #[test]
    fn equal_values_have_equal_digests_in_one_process() {
        let redactor = Redactor::new();
        let value = |text: &str| {
            let all = secret(&[("key", text)], "");
            redactor.secret(&all).spec.data["key"].expose().clone()
        };
        assert_eq!(value("one"), value("one"));
        assert_ne!(value("one"), value("two"));
    }
}

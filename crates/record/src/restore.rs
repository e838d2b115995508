//! Replacements for redacted secrets in a replay: every pair of key and certificate is replaced by
//! a generated one.

use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::kubernetes::{Secret, SecretBytes};
use navarch_api::object::Object;

use super::redact::KEY_OF;

/// Replaces all pairs of certificate and key by one generated pair.
#[derive(Debug)]
pub(crate) struct Restorer {
    chain: SecretBytes,
    key: SecretBytes,
}

impl Restorer {
    /// Generates the pair.
    ///
    /// # Errors
    /// When it cannot be generated.
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let pair = rcgen::generate_simple_self_signed(vec!["record.invalid".to_owned()])?;
        let chain = pair.cert.pem();
        let key = pair.signing_key.serialize_pem();
        Ok(Self {
            chain: SecretBytes::new(chain.into_bytes()),
            key: SecretBytes::new(key.into_bytes()),
        })
    }

    /// An object with its secrets replaced.
    pub(crate) fn restore(&self, object: AnyObject) -> AnyObject {
        if let AnyObject::Secret(secret) = &object {
            return AnyObject::Secret(Arc::new(self.secret(secret)));
        }
        object
    }

    pub(crate) fn secret(&self, secret: &Object<Secret>) -> Object<Secret> {
        let mut restored = secret.clone();
        for (name, value) in &secret.spec.data {
            let chain = std::str::from_utf8(value.expose())
                .ok()
                .and_then(|text| text.strip_prefix(KEY_OF));
            let Some((chain, _)) = chain.and_then(|text| text.rsplit_once(' ')) else {
                continue;
            };
            restored
                .spec
                .data
                .insert(Arc::from(chain), self.chain.clone());
            restored.spec.data.insert(name.clone(), self.key.clone());
        }
        restored
    }
}

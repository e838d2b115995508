//! Secrets are compared by digest, so that no report has their content.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The fields that have the content of certificates and keys.
const CONTENT: [&str; 2] = ["inlineBytes", "inlineString"];

/// Replaces the content of all certificates and keys in a Secret by its digest.
pub(crate) fn replace_by_digest(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Value::String(text) = value
                    && CONTENT.contains(&key.as_str())
                {
                    *text = digest(text);
                } else {
                    replace_by_digest(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(replace_by_digest),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
            replace_by_digest(&mut secret);
            secret
        };
        assert_eq!(secret("KEY"), secret("KEY"));
        assert_ne!(secret("KEY"), secret("OTHER"));
        assert!(!secret("KEY").to_string().contains("\"KEY\""));
        assert_eq!(secret("KEY")["name"], "kubernetes://a");
    }
}

//! Symmetric keys in the JWKS of objects (`kty` is `oct`): whoever reads one can sign tokens.

use std::borrow::Cow;

use serde_json::Value;

/// The type of symmetric keys in a JWKS (RFC 7518, section 6.1).
const SYMMETRIC: &str = "oct";
/// The field with such a key.
const KEY: &str = "k";
/// The value in place of a key.
const LEFT_OUT: &str = "left out by navarch support-bundle";

/// A page without symmetric keys; unchanged if it has none, or is not JSON.
pub(super) fn leave_out(page: &[u8]) -> Cow<'_, [u8]> {
    let has_some = std::str::from_utf8(page).is_ok_and(|text| text.contains(SYMMETRIC));
    if !has_some {
        return Cow::Borrowed(page);
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(page) else {
        return Cow::Borrowed(page);
    };

    if leave_out_of(&mut value) {
        Cow::Owned(value.to_string().into_bytes())
    } else {
        Cow::Borrowed(page)
    }
}

/// Replaces all symmetric keys in a value, and in the JSON in its texts, as which
/// RequestAuthentications and EnvoyFilters hold a JWKS. Returns whether there were any.
fn leave_out_of(value: &mut Value) -> bool {
    match value {
        Value::String(text) => leave_out_of_text(text),
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |found, item| leave_out_of(item) | found),
        Value::Object(fields) => {
            let is_symmetric = fields.get("kty").and_then(Value::as_str) == Some(SYMMETRIC);
            let mut found = false;
            for (name, field) in fields {
                if is_symmetric && name == KEY {
                    *field = LEFT_OUT.into();
                    found = true;
                } else {
                    found |= leave_out_of(field);
                }
            }

            found
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn leave_out_of_text(text: &mut String) -> bool {
    if !text.contains(SYMMETRIC) {
        return false;
    }

    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            let found = leave_out_of(&mut value);
            if found {
                *text = value.to_string();
            }
            found
        }
        // A JWKS with a mistake in it still has its keys.
        Err(_) if text.contains("\"oct\"") && text.contains("\"k\"") => {
            LEFT_OUT.clone_into(text);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A page with an object that has this JWKS.
    fn page(jwks: &str) -> Vec<u8> {
        let rules = json!([{ "issuer": "doctor", "jwks": jwks }]);
        let object = json!({ "kind": "RequestAuthentication", "spec": { "jwtRules": rules } });
        json!([object]).to_string().into_bytes()
    }

    #[test]
    fn symmetric_keys_are_left_out_and_public_ones_are_not() {
        let jwks = json!({ "keys": [
            { "kty": "oct", "kid": "a", "k": "c2VjcmV0" },
            { "kty": "RSA", "kid": "b", "n": "public", "e": "AQAB" },
        ] });
        let left = leave_out(&page(&jwks.to_string())).into_owned();
        let text = String::from_utf8(left).unwrap();
        assert!(!text.contains("c2VjcmV0"), "{text}");
        for kept in ["public", "AQAB", "doctor", LEFT_OUT] {
            assert!(text.contains(kept), "{kept}: {text}");
        }

        let structured = json!({ "spec": { "value": jwks } }).to_string();
        let left = leave_out(structured.as_bytes()).into_owned();
        assert!(!String::from_utf8(left).unwrap().contains("c2VjcmV0"));
    }

    #[test]
    fn a_jwks_with_a_mistake_is_left_out_as_a_whole() {
        let left = leave_out(&page(r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"},]}"#)).into_owned();
        let text = String::from_utf8(left).unwrap();
        assert!(
            !text.contains("c2VjcmV0") && text.contains("doctor"),
            "{text}"
        );
    }

    #[test]
    fn pages_without_symmetric_keys_are_unchanged() {
        for text in ["{ \"a\": 1.0 }", "[\"october\"]", "# oct\nup 1\n"] {
            assert!(
                matches!(leave_out(text.as_bytes()), Cow::Borrowed(_)),
                "{text}"
            );
        }
        assert!(matches!(leave_out(b"\xff oct"), Cow::Borrowed(_)));
    }
}

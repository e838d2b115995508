//! An issuer of service account tokens.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};

const NAME: &str = "https://issuer.example";

#[derive(Clone)]
pub struct Issuer(Arc<KeyPair>);

impl Issuer {
    pub fn with_new_key() -> Self {
        Self(Arc::new(KeyPair::generate().unwrap()))
    }

    /// The `JWT_RULE` that trusts it.
    pub fn rule(&self) -> String {
        let point = self.0.public_key_raw();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": part(&point[1..33]), "y": part(&point[33..65])});
        json!({"issuer": NAME, "audiences": ["istio-ca"], "jwks": json!({"keys": [jwk]}).to_string()}).to_string()
    }

    /// A token of the service account `web` in the namespace `shop`; `claims` override the
    /// defaults.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers make the claims in place"
    )]
    pub fn token(&self, over: Value) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let mut claims = json!({
            "iss": NAME, "aud": ["istio-ca"], "sub": "system:serviceaccount:shop:web", "iat": now, "exp": now + 3600,
        });
        claims
            .as_object_mut()
            .unwrap()
            .extend(over.as_object().unwrap().clone());

        let header = Header {
            kid: Some("one".into()),
            ..Header::new(Algorithm::ES256)
        };
        jsonwebtoken::encode(
            &header,
            &claims,
            &EncodingKey::from_ec_der(&self.0.serialize_der()),
        )
        .unwrap()
    }
}

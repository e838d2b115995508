//! Tokens of an issuer whose keys are configured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::{Mesh, admit, headers, shown, with_token};
use crate::authenticate::{Authenticator, JwtAuthenticator, JwtRule, TrustedNetworks};
use navarch_base::error_chain::chain;

/// An issuer of tokens.
pub(super) struct Issuer {
    pub(super) key: KeyPair,
}

impl Issuer {
    /// Its key with the ID `one`.
    fn jwk(&self) -> Value {
        let point = self.key.public_key_raw();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": part(&point[1..33]), "y": part(&point[33..65])})
    }

    /// The rule that trusts it.
    pub(super) fn rule(&self) -> JwtRule {
        JwtRule {
            issuer: "https://issuer.example".into(),
            audiences: vec!["istio-ca".into()],
            jwks: json!({ "keys": [self.jwk()] }).to_string(),
            ..JwtRule::default()
        }
    }

    /// A token with these claims, signed by the key with the ID `one`.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_of_key(Some("one"), claims)
    }

    /// A token with these claims, which names its key by this ID.
    fn token_of_key(&self, id: Option<&str>, claims: &Value) -> String {
        let header = Header {
            kid: id.map(str::to_owned),
            ..Header::new(Algorithm::ES256)
        };
        jsonwebtoken::encode(
            &header,
            claims,
            &EncodingKey::from_ec_der(&self.key.serialize_der()),
        )
        .unwrap()
    }
}

/// Valid claims, overridden by these.
pub(super) fn claims(over: Value) -> Value {
    let now = jiff::Timestamp::now().as_second();
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": ["istio-ca"], "sub": "system:serviceaccount:shop:web",
        "iat": now, "nbf": now, "exp": now + 600,
    });
    let Value::Object(over) = over else {
        return over;
    };
    claims.as_object_mut().unwrap().extend(over);
    claims
}

#[tokio::test]
async fn a_key_that_cannot_be_read_disables_no_other() {
    let issuer = Issuer {
        key: KeyPair::generate().unwrap(),
    };
    let mut rule = issuer.rule();
    let mut set: Value = serde_json::from_str(&rule.jwks).unwrap();
    let unreadable = [
        json!({"kid": 7}),
        json!(null),
        json!({"kty": "EC", "kid": ["x"]}),
    ];
    for (at, key) in unreadable.iter().enumerate() {
        set["keys"].as_array_mut().unwrap().insert(at, key.clone());
    }
    rule.jwks = set.to_string();

    let jwt = JwtAuthenticator::new(rule.clone()).unwrap();
    let authenticator =
        Authenticator::new(Arc::new(Mesh), Some(jwt), None, TrustedNetworks::default());
    let headers = with_token(&issuer.token(&claims(json!({}))));
    let admitted = admit(&authenticator, shown("192.0.2.1:5", &headers)).await;
    assert_eq!(admitted.unwrap(), ["spiffe://td/ns/shop/sa/web"]);

    rule.jwks = json!({ "keys": unreadable }).to_string();
    let rejected = chain(&JwtAuthenticator::new(rule).unwrap_err());
    assert_eq!(rejected, "JWT_RULE: jwks: none of its 3 keys can be read");
}

#[tokio::test]
async fn each_key_that_may_be_the_one_of_a_token_is_tried() {
    let [first, second, third, stranger] = [(); 4].map(|()| Issuer {
        key: KeyPair::generate().unwrap(),
    });
    let mut third_key = third.jwk();
    third_key["kid"] = json!("two");
    // Its algorithm is another one.
    let rsa = json!({"kty": "RSA", "kid": "one", "n": "AQAB", "e": "AQAB"});
    let rule = JwtRule {
        jwks: json!({ "keys": [rsa, first.jwk(), second.jwk(), third_key] }).to_string(),
        ..first.rule()
    };

    let jwt = JwtAuthenticator::new(rule).unwrap();
    let authenticator =
        Authenticator::new(Arc::new(Mesh), Some(jwt), None, TrustedNetworks::default());
    let valid = claims(json!({}));
    let expired = claims(json!({"exp": 1_600_000_000}));
    for (token, expected) in [
        (first.token(&valid), Ok(())),
        (second.token(&valid), Ok(())),
        (second.token_of_key(None, &valid), Ok(())),
        (third.token_of_key(Some(""), &valid), Ok(())),
        (first.token(&expired), Err("expired")),
        (second.token(&expired), Err("expired")),
        (third.token(&valid), Err("signature is invalid")),
        (stranger.token(&valid), Err("signature is invalid")),
        (
            stranger.token_of_key(None, &valid),
            Err("signature is invalid"),
        ),
        (
            first.token_of_key(Some("other"), &valid),
            Err("not one of the issuer's"),
        ),
    ] {
        let headers = with_token(&token);
        let admitted = admit(&authenticator, shown("192.0.2.1:5", &headers)).await;
        match expected {
            Ok(()) => assert_eq!(admitted.unwrap(), ["spiffe://td/ns/shop/sa/web"]),
            Err(part) => {
                let reason = admitted.unwrap_err();
                assert!(reason.contains(part), "{reason:?} should hold {part:?}");
            }
        }
    }
}

/// A server of key sets.
#[derive(Debug, Default)]
struct KeyServer {
    keys: Mutex<Value>,
    requests: Mutex<usize>,
}

impl KeyServer {
    /// Serves the current keys on a port of this machine.
    fn start(self: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // A request fits in one segment.
                let received = stream.read(&mut [0; 4096]).unwrap();
                assert!(received > 0);
                *server.requests.lock() += 1;
                let body = server.keys.lock().to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        address
    }

    fn set(&self, issuer: &Issuer) {
        *self.keys.lock() = json!({ "keys": [issuer.jwk()] });
    }
}

#[tokio::test]
async fn a_key_that_is_replaced_under_its_id_is_fetched_but_wrong_tokens_cause_no_flood() {
    let [before, after, stranger] = [(); 3].map(|()| Issuer {
        key: KeyPair::generate().unwrap(),
    });
    let server = Arc::new(KeyServer::default());
    let address = server.start();
    server.set(&before);

    let rule = JwtRule {
        jwks: String::new(),
        jwks_uri: format!("http://{address}/keys"),
        ..before.rule()
    };
    let jwt = JwtAuthenticator::new(rule).unwrap();
    let authenticator =
        Authenticator::new(Arc::new(Mesh), Some(jwt), None, TrustedNetworks::default());
    let is_admitted = async |issuer: &Issuer| {
        let headers = with_token(&issuer.token(&claims(json!({}))));
        admit(&authenticator, shown("192.0.2.1:5", &headers))
            .await
            .is_ok()
    };

    assert!(is_admitted(&before).await);
    assert_eq!(*server.requests.lock(), 1);

    server.set(&after);
    assert!(is_admitted(&after).await);
    assert_eq!(*server.requests.lock(), 2);

    for _ in 0..5 {
        assert!(!is_admitted(&stranger).await);
        assert!(!is_admitted(&before).await);
    }
    assert!(is_admitted(&after).await);
    assert_eq!(*server.requests.lock(), 2, "at most one fetch a minute");
}

#[test]
fn passwords_of_addresses_are_not_in_the_debug_output() {
    let rule = JwtRule {
        issuer: "https://user:secret@issuer.example".into(),
        jwks_uri: "https://user:secret@keys.example".into(),
        audiences: vec!["istio-ca".into()],
        ..JwtRule::default()
    };
    let shown = format!("{rule:?}");
    assert!(shown.contains("keys.example"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");

    let authenticator = JwtAuthenticator::new(rule).unwrap();
    assert!(!format!("{authenticator:?}").contains("secret"));
}

#[tokio::test]
async fn tokens_of_a_configured_issuer_identify_the_caller() {
    let issuer = Issuer {
        key: KeyPair::generate().unwrap(),
    };
    let jwt = JwtAuthenticator::new(issuer.rule()).unwrap();
    let authenticator =
        Authenticator::new(Arc::new(Mesh), Some(jwt), None, TrustedNetworks::default());
    let other = Issuer {
        key: KeyPair::generate().unwrap(),
    };

    let good = issuer.token(&claims(json!({})));

    // The payload `null` crashed istiod (CVE-2022-23635).
    for (token, expected) in [
        (good.clone(), Ok("spiffe://td/ns/shop/sa/web")),
        (
            issuer.token(&claims(json!({"exp": 1_600_000_000}))),
            Err("expired"),
        ),
        (
            issuer.token(&claims(json!({"nbf": 4_000_000_000_u64}))),
            Err("not valid yet"),
        ),
        (
            issuer.token(&claims(json!({"aud": "other"}))),
            Err("another audience"),
        ),
        (
            issuer.token(&claims(json!({"iss": "https://evil.example"}))),
            Err("another issuer"),
        ),
        (
            issuer.token(&claims(json!({"sub": "alice"}))),
            Err("not a service account"),
        ),
        (
            issuer.token(&claims(json!({"sub": "system:serviceaccount:shop:web:x"}))),
            Err("not a service account"),
        ),
        (
            issuer.token(&claims(json!({"sub": "system:serviceaccount:"}))),
            Err("not a service account"),
        ),
        (issuer.token(&claims(json!({"sub": null}))), Err("token")),
        (issuer.token(&Value::Null), Err("token")),
        (issuer.token(&json!([1, 2])), Err("token")),
        (other.token(&claims(json!({}))), Err("signature is invalid")),
        (format!("{}x", good), Err("token")),
        ("x.y.z".to_owned(), Err("not a JWT")),
        ("e30.bnVsbA.".to_owned(), Err("not a JWT")),
        (
            jsonwebtoken::encode(
                &Header {
                    kid: Some("one".into()),
                    ..Header::new(Algorithm::HS256)
                },
                &claims(json!({})),
                &EncodingKey::from_secret(issuer.key.public_key_raw()),
            )
            .unwrap(),
            Err("does not match"),
        ),
    ] {
        let headers = headers(&[("authorization", &format!("Bearer {token}"))]);
        let found = admit(&authenticator, shown("192.0.2.1:5", &headers)).await;
        match (&found, expected) {
            (Ok(identities), Ok(identity)) => assert_eq!(identities, &[identity]),
            (Err(reason), Err(part)) => {
                assert!(reason.contains(part), "{reason:?} should hold {part:?}")
            }
            _ => panic!("{found:?}, not {expected:?}"),
        }

        if let Err(reason) = found {
            assert!(
                !reason.contains(&token),
                "the reason does not contain the token"
            );
        }
    }
}

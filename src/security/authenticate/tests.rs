//! Who is let in, and who is not.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::token_review::{Account, Answer, Reviewer, Verdict};
use super::*;

/// A mesh of trust domain `td`, once called `old`.
#[derive(Debug)]
struct Mesh;

impl Surroundings for Mesh {
    fn glance(&self) -> Glance {
        Glance {
            objects: Objects::default(),
            trust_domain: TrustDomain::new("td"),
            aliases: vec![TrustDomain::new("old")],
            cluster: ClusterId::new("Kubernetes"),
        }
    }
}

/// Knows one token, and counts how often it is asked.
#[derive(Debug, Default)]
struct Fake(AtomicUsize);

impl Reviewer for Fake {
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> Answer<'a> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            assert_eq!(audiences, ["istio-ca"]);
            Ok(match token {
                "good" => Verdict::Good(Account { namespace: "shop".into(), name: "web".into(), pod: None }),
                _ => Verdict::Bad("it has expired".into()),
            })
        })
    }
}

/// Headers with these values.
fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
    values
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect()
}

/// What a caller from an address shows.
fn shown<'a>(peer: &str, headers: &'a HeaderMap) -> Credentials<'a> {
    Credentials { peer: Some(peer.parse().unwrap()), certificates: &[], headers }
}

/// The identities of a caller, or why there is none.
async fn admit(gatekeeper: &Gatekeeper, credentials: Credentials<'_>) -> Result<Vec<String>, String> {
    let admitted = gatekeeper.admit(credentials).await;
    admitted
        .map(|caller| caller.identities.iter().map(ToString::to_string).collect())
        .map_err(|unknown| unknown.to_string())
}

/// An issuer of tokens.
struct Issuer {
    key: KeyPair,
}

impl Issuer {
    /// The rule that trusts it.
    fn rule(&self) -> JwtRule {
        let point = self.key.public_key_raw();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let jwk =
            json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": part(&point[1..33]), "y": part(&point[33..65])});
        JwtRule {
            issuer: "https://issuer.example".into(),
            audiences: vec!["istio-ca".into()],
            jwks: json!({ "keys": [jwk] }).to_string(),
            ..JwtRule::default()
        }
    }

    /// A token with these claims.
    fn token(&self, claims: &Value) -> String {
        let header = Header { kid: Some("one".into()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &EncodingKey::from_ec_der(&self.key.serialize_der())).unwrap()
    }
}

/// Claims that are good, but for what is laid over them.
fn claims(over: Value) -> Value {
    let now = jiff::Timestamp::now().as_second();
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": ["istio-ca"], "sub": "system:serviceaccount:shop:web",
        "iat": now, "nbf": now, "exp": now + 600,
    });
    let Value::Object(over) = over else { return over };
    claims.as_object_mut().unwrap().extend(over);
    claims
}

#[tokio::test]
async fn tokens_of_a_known_issuer_say_who_calls() {
    let issuer = Issuer { key: KeyPair::generate().unwrap() };
    let jwt = JwtAuthenticator::new(issuer.rule()).unwrap();
    let gatekeeper = Gatekeeper::new(Arc::new(Mesh), Some(jwt), None, TrustedNetworks::default());
    let other = Issuer { key: KeyPair::generate().unwrap() };
    let good = issuer.token(&claims(json!({})));
    // The payload `null` once brought istiod down (CVE-2022-23635).
    for (token, expected) in [
        (good.clone(), Ok("spiffe://td/ns/shop/sa/web")),
        (issuer.token(&claims(json!({"exp": 1_600_000_000}))), Err("expired")),
        (issuer.token(&claims(json!({"nbf": 4_000_000_000_u64}))), Err("not valid yet")),
        (issuer.token(&claims(json!({"aud": "other"}))), Err("another audience")),
        (issuer.token(&claims(json!({"iss": "https://evil.example"}))), Err("another issuer")),
        (issuer.token(&claims(json!({"sub": "alice"}))), Err("no service account")),
        (issuer.token(&claims(json!({"sub": "system:serviceaccount:shop:web:x"}))), Err("no service account")),
        (issuer.token(&claims(json!({"sub": "system:serviceaccount:"}))), Err("no service account")),
        (issuer.token(&claims(json!({"sub": null}))), Err("token")),
        (issuer.token(&Value::Null), Err("token")),
        (issuer.token(&json!([1, 2])), Err("token")),
        (other.token(&claims(json!({}))), Err("signature is wrong")),
        (format!("{}x", good), Err("token")),
        ("x.y.z".to_owned(), Err("no JWT")),
        ("e30.bnVsbA.".to_owned(), Err("no JWT")),
        (
            jsonwebtoken::encode(
                &Header { kid: Some("one".into()), ..Header::new(Algorithm::HS256) },
                &claims(json!({})),
                &EncodingKey::from_secret(issuer.key.public_key_raw()),
            )
            .unwrap(),
            Err("does not fit"),
        ),
    ] {
        let headers = headers(&[("authorization", &format!("Bearer {token}"))]);
        let found = admit(&gatekeeper, shown("192.0.2.1:5", &headers)).await;
        match (&found, expected) {
            (Ok(identities), Ok(identity)) => assert_eq!(identities, &[identity]),
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason:?} should hold {part:?}"),
            _ => panic!("{found:?}, not {expected:?}"),
        }
        if let Err(reason) = found {
            assert!(!reason.contains(&token), "the token is not shown");
        }
    }
}

#[tokio::test]
async fn many_who_show_one_token_ask_once() {
    let fake = Arc::new(Fake::default());
    let reviews = TokenReviews::new(fake.clone(), vec!["istio-ca".into()]);
    let gatekeeper = Gatekeeper::new(Arc::new(Mesh), None, Some(reviews), TrustedNetworks::default());
    let good = headers(&[("authorization", "Bearer good"), ("clusterid", "Kubernetes")]);
    let (a, b, c) = tokio::join!(
        admit(&gatekeeper, shown("192.0.2.1:5", &good)),
        admit(&gatekeeper, shown("192.0.2.2:5", &good)),
        admit(&gatekeeper, shown("192.0.2.3:5", &good)),
    );
    for found in [a, b, c] {
        assert_eq!(found.unwrap(), ["spiffe://td/ns/shop/sa/web"]);
    }
    assert_eq!(fake.0.load(Ordering::Relaxed), 1);
    let bad = headers(&[("authorization", "bearer bad")]);
    for _ in 0..3 {
        assert_eq!(admit(&gatekeeper, shown("192.0.2.1:5", &bad)).await.unwrap_err(), "token: it has expired");
    }
    assert_eq!(fake.0.load(Ordering::Relaxed), 2);
    let elsewhere = headers(&[("authorization", "Bearer good"), ("clusterid", "moon")]);
    assert!(admit(&gatekeeper, shown("192.0.2.1:5", &elsewhere)).await.unwrap_err().contains("cluster \"moon\""));
    assert!(admit(&gatekeeper, shown("192.0.2.1:5", &HeaderMap::new())).await.unwrap_err().contains("neither"));
}

#[tokio::test]
async fn only_trusted_gateways_vouch_for_others_and_only_for_whom_they_have_seen() {
    let trusted = TrustedNetworks::parse("10.0.0.0/8, fd00::/16").unwrap();
    let gatekeeper = Gatekeeper::new(Arc::new(Mesh), None, None, trusted);
    let value = "By=x;URI=spiffe://td/ns/bank/sa/admin,By=y;Subject=\"CN=a,URI=b\";URI=spiffe://td/ns/shop/sa/web";
    let vouched = headers(&[("x-forwarded-client-cert", value)]);
    let web = Ok(vec!["spiffe://td/ns/shop/sa/web".to_owned()]);
    assert_eq!(admit(&gatekeeper, shown("10.1.2.3:5", &vouched)).await, web);
    assert_eq!(admit(&gatekeeper, shown("127.0.0.1:5", &vouched)).await, web);
    assert_eq!(admit(&gatekeeper, shown("[fd00::1]:5", &vouched)).await, web);
    assert!(admit(&gatekeeper, shown("192.0.2.1:5", &vouched)).await.unwrap_err().contains("no trusted gateway"));
    let foreign = headers(&[("x-forwarded-client-cert", "URI=spiffe://other/ns/shop/sa/web")]);
    assert!(admit(&gatekeeper, shown("10.1.2.3:5", &foreign)).await.unwrap_err().contains("nobody of trust domain td"));
    let nobody = Gatekeeper::new(Arc::new(Mesh), None, None, TrustedNetworks::default());
    assert!(admit(&nobody, shown("127.0.0.1:5", &vouched)).await.is_err());
    assert_eq!(TrustedNetworks::parse("10.0.0.0/33"), Err("10.0.0.0/33".to_owned()));
}

#[tokio::test]
async fn a_certificate_of_this_mesh_or_an_older_name_of_it_counts() {
    use crate::api::identity::Identity;
    use crate::security::ca::{Authority, Bundle, KeyType, Subject};
    let (now, hour) = (std::time::SystemTime::from(jiff::Timestamp::now()), std::time::Duration::from_secs(3600));
    let root = Bundle::self_signed("td", KeyType::P256, hour, now).unwrap();
    let authority = Authority::new(&root, now).unwrap();
    let gatekeeper = Gatekeeper::new(Arc::new(Mesh), None, None, TrustedNetworks::default());
    let empty = HeaderMap::new();
    for (identity, allowed) in [
        ("spiffe://td/ns/shop/sa/web", true),
        ("spiffe://old/ns/shop/sa/web", true),
        ("spiffe://other/ns/shop/sa/web", false),
    ] {
        let subject = Subject::Workload(Identity::parse(identity).unwrap());
        let (chain, _) = authority.issue(&subject, hour, now).unwrap();
        let credentials = Credentials { peer: None, certificates: &chain, headers: &empty };
        assert_eq!(admit(&gatekeeper, credentials).await.is_ok(), allowed, "{identity}");
    }
}

#[tokio::test]
async fn callers_are_known_until_what_they_showed_expires() {
    let issuer = Issuer { key: KeyPair::generate().unwrap() };
    let exp = 4_102_444_800_i64;
    let token = issuer.token(&claims(json!({ "exp": exp })));
    let bearer = headers(&[("authorization", &format!("Bearer {token}"))]);
    let expires = |admitted: Result<Caller, Unknown>| admitted.unwrap().expires.map(jiff::Timestamp::as_second);
    let by_keys = Gatekeeper::new(
        Arc::new(Mesh),
        Some(JwtAuthenticator::new(issuer.rule()).unwrap()),
        None,
        TrustedNetworks::default(),
    );
    // Clocks may be ten seconds apart.
    assert_eq!(expires(by_keys.admit(shown("192.0.2.1:5", &bearer)).await), Some(exp + 10));
    let reviews = TokenReviews::new(Arc::new(Anybody), vec!["istio-ca".to_owned()]);
    let by_review = Gatekeeper::new(Arc::new(Mesh), None, Some(reviews), TrustedNetworks::default());
    assert_eq!(expires(by_review.admit(shown("192.0.2.1:5", &bearer)).await), Some(exp));
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::URI("spiffe://td/ns/shop/sa/web".try_into().unwrap())];
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let certificate = params.self_signed(&issuer.key).unwrap().der().clone();
    let (none, chain) = (HeaderMap::new(), [certificate]);
    let credentials = Credentials { certificates: &chain, ..shown("192.0.2.1:5", &none) };
    assert_eq!(expires(by_keys.admit(credentials).await), Some(exp));
}

/// Knows every token.
#[derive(Debug)]
struct Anybody;

impl Reviewer for Anybody {
    fn review<'a>(&'a self, _: &'a str, _: &'a [String]) -> Answer<'a> {
        Box::pin(async { Ok(Verdict::Good(Account { namespace: "shop".into(), name: "web".into(), pod: None })) })
    }
}

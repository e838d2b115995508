//! Authentication: accepted and rejected callers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::token_review::{Account, Answer, Reviewer, Verdict};
use super::*;
use navarch_api::identity::PodOfCaller;

/// A mesh with the trust domain `td`, formerly `old`.
#[derive(Debug)]
struct Mesh;

impl SnapshotProvider for Mesh {
    fn snapshot(&self) -> MeshSnapshot {
        MeshSnapshot {
            objects: Objects::default(),
            remotes: OrdMap::default(),
            trust_domain: TrustDomain::new("td"),
            aliases: vec![TrustDomain::new("old")],
            cluster: ClusterId::new("Kubernetes"),
        }
    }
}

/// Accepts tokens whose subject is `good`, and counts the reviews.
#[derive(Debug, Default)]
struct Fake {
    requests: AtomicUsize,
    /// Concurrent reviews, and their maximum.
    under_way: AtomicUsize,
    most: AtomicUsize,
    /// Whether it delays its responses about other tokens.
    silent: AtomicBool,
}

/// The pod of accepted tokens.
fn pod() -> PodOfCaller {
    PodOfCaller {
        name: "web-1".into(),
        uid: "u1".into(),
        cluster: None,
    }
}

impl Reviewer for Fake {
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> Answer<'a> {
        Box::pin(async move {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.most.fetch_max(
                self.under_way.fetch_add(1, Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
            assert_eq!(audiences, ["istio-ca"]);
            let claims = URL_SAFE_NO_PAD
                .decode(token.split('.').nth(1).unwrap())
                .unwrap();
            let claims: Value = serde_json::from_slice(&claims).unwrap();
            let good = claims["sub"] == "good";

            tokio::task::yield_now().await;
            while !good && self.silent.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }

            self.under_way.fetch_sub(1, Ordering::Relaxed);
            Ok(match good {
                true => Verdict::Good(Account {
                    namespace: "shop".into(),
                    name: "web".into(),
                    pod: Some(pod()),
                }),
                false => Verdict::Bad("the API server rejected it".into()),
            })
        })
    }
}

/// A token with a valid form and no valid signature.
fn unproved(subject: &str, number: usize) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(json!({"alg": "RS256"}));
    format!(
        "{header}.{}.c2ln",
        part(json!({"sub": subject, "aud": ["istio-ca"], "jti": number}))
    )
}

/// An authenticator with token reviews.
fn reviewed(fake: &Arc<Fake>) -> Authenticator {
    let reviews = TokenReviews::new(fake.clone(), vec!["istio-ca".into()]);
    Authenticator::new(
        Arc::new(Mesh),
        None,
        Some(reviews),
        TrustedNetworks::default(),
    )
}

fn with_token(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

/// Headers with these values.
fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
    values
        .iter()
        .map(|(name, value)| {
            (
                http::HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        })
        .collect()
}

/// The credentials of a caller from an address.
fn shown<'a>(peer: &str, headers: &'a HeaderMap) -> Credentials<'a> {
    Credentials {
        peer: Some(peer.parse().unwrap()),
        certificates: &[],
        headers,
    }
}

/// The identities of a caller, or the reason for rejection.
async fn admit(
    authenticator: &Authenticator,
    credentials: Credentials<'_>,
) -> Result<Vec<String>, String> {
    let admitted = authenticator.admit(credentials).await;
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
        let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": part(&point[1..33]), "y": part(&point[33..65])});
        JwtRule {
            issuer: "https://issuer.example".into(),
            audiences: vec!["istio-ca".into()],
            jwks: json!({ "keys": [jwk] }).to_string(),
            ..JwtRule::default()
        }
    }

    /// A token with these claims.
    fn token(&self, claims: &Value) -> String {
        let header = Header {
            kid: Some("one".into()),
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
fn claims(over: Value) -> Value {
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
    let refused = JwtAuthenticator::new(rule).unwrap_err();
    assert!(refused.contains("none of its 3 keys"), "{refused}");
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

#[tokio::test]
async fn concurrent_reviews_of_one_token_are_shared() {
    let fake = Arc::new(Fake::default());
    let authenticator = reviewed(&fake);
    let good = unproved("good", 0);
    let good = headers(&[
        ("authorization", &format!("Bearer {good}")),
        ("clusterid", "Kubernetes"),
    ]);
    let (a, b, c) = tokio::join!(
        admit(&authenticator, shown("192.0.2.1:5", &good)),
        admit(&authenticator, shown("192.0.2.2:5", &good)),
        admit(&authenticator, shown("192.0.2.3:5", &good)),
    );

    for found in [a, b, c] {
        assert_eq!(found.unwrap(), ["spiffe://td/ns/shop/sa/web"]);
    }

    assert_eq!(fake.requests.load(Ordering::Relaxed), 1);
    let bad = headers(&[("authorization", &format!("bearer {}", unproved("bad", 0)))]);

    for _ in 0..3 {
        let refused = admit(&authenticator, shown("192.0.2.1:5", &bad))
            .await
            .unwrap_err();
        assert_eq!(refused, "token: the API server rejected it");
    }

    assert_eq!(fake.requests.load(Ordering::Relaxed), 2);
    let elsewhere = headers(&[
        ("authorization", &format!("Bearer {}", unproved("good", 0))),
        ("clusterid", "moon"),
    ]);
    assert!(
        admit(&authenticator, shown("192.0.2.1:5", &elsewhere))
            .await
            .unwrap_err()
            .contains("cluster \"moon\"")
    );

    assert!(
        admit(&authenticator, shown("192.0.2.1:5", &HeaderMap::new()))
            .await
            .unwrap_err()
            .contains("neither")
    );
}

#[tokio::test]
async fn tokens_are_reviewed_in_the_cluster_that_the_caller_names() {
    let here = Arc::new(Fake::default());
    let there = Arc::new(Fake::default());
    let east = ClusterId::new("east");
    let moon = ClusterId::new("moon");
    let remotes = RemoteServers::new(
        [
            (moon, east.clone()),
            (ClusterId::new("home"), ClusterId::new("Kubernetes")),
        ]
        .into(),
    );

    remotes.insert(
        east.clone(),
        None,
        TokenReviews::new(there.clone(), vec!["istio-ca".into()]),
    );
    let authenticator = reviewed(&here).with_remotes(remotes.clone());
    let requests = || {
        (
            here.requests.load(Ordering::Relaxed),
            there.requests.load(Ordering::Relaxed),
        )
    };

    let of = |cluster: &str| {
        let token = format!("Bearer {}", unproved("good", 0));
        headers(&[("authorization", &token), ("clusterid", cluster)])
    };
    let of_east = Some(east.clone());

    for (cluster, expected, home) in [
        ("home", (1, 0), &None),
        ("east", (1, 1), &of_east),
        ("moon", (1, 1), &of_east),
    ] {
        let found = admit(&authenticator, shown("192.0.2.1:5", &of(cluster)))
            .await
            .unwrap();
        assert_eq!(
            (found, requests()),
            (vec!["spiffe://td/ns/shop/sa/web".to_owned()], expected),
            "{cluster}"
        );
        // Its pod belongs to the cluster whose API server accepted the token.
        let headers = of(cluster);
        let caller = authenticator
            .admit(shown("192.0.2.1:5", &headers))
            .await
            .unwrap();
        assert_eq!(
            caller.pod.map(|pod| pod.cluster).as_ref(),
            Some(home),
            "{cluster}"
        );
    }

    // After the cluster is removed, its tokens are reviewed nowhere.
    remotes.remove(&east);
    assert!(
        admit(&authenticator, shown("192.0.2.1:5", &of("moon")))
            .await
            .unwrap_err()
            .contains("cluster \"moon\"")
    );

    assert_eq!(requests(), (1, 1));
}

#[tokio::test]
async fn obviously_invalid_tokens_are_rejected_without_a_token_review() {
    let fake = Arc::new(Fake::default());
    let authenticator = reviewed(&fake);
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claimed =
        |claims: Value| format!("{}.{}.c2ln", part(json!({"alg": "RS256"})), part(claims));
    for (token, reason) in [
        ("x".repeat(10_000), "not a JWT"),
        (claimed(json!({"exp": 1_600_000_000})), "expired"),
        (claimed(json!({"aud": "somebody-else"})), "another audience"),
        ("y".repeat(MAX_TOKEN + 1), "too long"),
    ] {
        let refused = admit(&authenticator, shown("192.0.2.1:5", &with_token(&token)))
            .await
            .unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
    assert_eq!(fake.requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn token_floods_are_limited_and_do_not_delay_others() {
    let fake = Arc::new(Fake {
        silent: true.into(),
        ..Fake::default()
    });
    let authenticator = reviewed(&fake);
    let mut flood = tokio::task::JoinSet::new();

    for number in 0..20_000 {
        let authenticator = authenticator.clone();
        flood.spawn(async move {
            let headers = with_token(&unproved("bad", number));
            admit(&authenticator, shown("192.0.2.1:5", &headers))
                .await
                .unwrap_err()
        });
    }

    tokio::task::yield_now().await;
    let good = with_token(&unproved("good", 0));
    admit(&authenticator, shown("192.0.2.2:5", &good))
        .await
        .unwrap();
    fake.silent.store(false, Ordering::Relaxed);
    let mut reasons: Vec<String> = flood.join_all().await;
    reasons.sort();

    reasons.dedup();
    assert_eq!(
        reasons,
        [
            "token: the API server rejected it",
            "token: too many TokenReviews are pending; try again later",
            "token: too many tokens from this address were rejected; try again later",
        ]
    );

    assert!(
        fake.most.load(Ordering::Relaxed) <= 33,
        "half of 64, and the other reviewer: {:?}",
        fake.most
    );
    let requests = fake.requests.load(Ordering::Relaxed);
    assert!(requests < 500, "{requests} of 20000 were reviewed");
    let other = with_token(&unproved("good", 1));

    // A cached token stays accepted, and a client that stops flooding is served again.
    assert!(
        admit(&authenticator, shown("192.0.2.1:5", &good))
            .await
            .is_ok()
    );

    let is_heard = async {
        while let Err(reason) = admit(&authenticator, shown("192.0.2.1:5", &other)).await {
            assert!(reason.contains("were rejected"), "{reason}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };

    tokio::time::timeout(Duration::from_secs(60), is_heard)
        .await
        .expect("a client that stops flooding is served again");
}

#[tokio::test]
async fn xfcc_is_accepted_only_from_trusted_gateways() {
    let trusted = TrustedNetworks::parse("10.0.0.0/8, fd00::/16").unwrap();
    let authenticator = Authenticator::new(Arc::new(Mesh), None, None, trusted);
    let value = "By=x;URI=spiffe://td/ns/bank/sa/admin,By=y;Subject=\"CN=a,URI=b\";URI=spiffe://td/ns/shop/sa/web";
    let vouched = headers(&[("x-forwarded-client-cert", value)]);
    let web = Ok(vec!["spiffe://td/ns/shop/sa/web".to_owned()]);
    assert_eq!(
        admit(&authenticator, shown("10.1.2.3:5", &vouched)).await,
        web
    );

    assert_eq!(
        admit(&authenticator, shown("127.0.0.1:5", &vouched)).await,
        web
    );
    assert_eq!(
        admit(&authenticator, shown("[fd00::1]:5", &vouched)).await,
        web
    );

    assert!(
        admit(&authenticator, shown("192.0.2.1:5", &vouched))
            .await
            .unwrap_err()
            .contains("not a trusted gateway")
    );

    let foreign = headers(&[(
        "x-forwarded-client-cert",
        "URI=spiffe://other/ns/shop/sa/web",
    )]);
    assert!(
        admit(&authenticator, shown("10.1.2.3:5", &foreign))
            .await
            .unwrap_err()
            .contains("no identity in trust domain td")
    );

    let nobody = Authenticator::new(Arc::new(Mesh), None, None, TrustedNetworks::default());
    assert!(
        admit(&nobody, shown("127.0.0.1:5", &vouched))
            .await
            .is_err()
    );
    assert_eq!(
        TrustedNetworks::parse("10.0.0.0/33"),
        Err("10.0.0.0/33".to_owned())
    );
}

#[tokio::test]
async fn a_certificate_of_this_mesh_or_an_older_name_of_it_counts() {
    use crate::ca::{Authority, Bundle, Subject};
    use navarch_api::identity::Identity;
    use navarch_pki::KeyType;

    let now = std::time::SystemTime::from(jiff::Timestamp::now());
    let hour = std::time::Duration::from_secs(3600);
    let root = Bundle::self_signed("td", KeyType::P256, hour, now).unwrap();
    let authority = Authority::new(&root, now).unwrap();
    let authenticator = Authenticator::new(Arc::new(Mesh), None, None, TrustedNetworks::default());
    let empty = HeaderMap::new();

    for (identity, allowed) in [
        ("spiffe://td/ns/shop/sa/web", true),
        ("spiffe://old/ns/shop/sa/web", true),
        ("spiffe://other/ns/shop/sa/web", false),
    ] {
        let subject = Subject::Workload(Identity::parse(identity).unwrap());
        let (chain, _) = authority.issue(&subject, hour, now).unwrap();
        let credentials = Credentials {
            peer: None,
            certificates: &chain,
            headers: &empty,
        };
        assert_eq!(
            admit(&authenticator, credentials).await.is_ok(),
            allowed,
            "{identity}"
        );
    }

    let subject = Subject::Workload(Identity::parse("spiffe://td/ns/shop/sa/web").unwrap());
    let (chain, _) = authority.issue(&subject, hour, now).unwrap();

    for (at, expected) in [
        (now + hour - std::time::Duration::from_secs(2), Ok(())),
        (
            now + hour + std::time::Duration::from_secs(2),
            Err("it has expired"),
        ),
        (now - hour, Err("it is not valid yet")),
    ] {
        let found = certificate::caller(&chain, &Mesh.snapshot(), at.try_into().unwrap());
        assert_eq!(found.map(drop), expected.map_err(str::to_owned));
    }
}

#[tokio::test]
async fn authentication_lasts_until_the_credential_expires() {
    let issuer = Issuer {
        key: KeyPair::generate().unwrap(),
    };
    let exp = 4_102_444_800_i64;
    let token = issuer.token(&claims(json!({ "exp": exp })));
    let bearer = headers(&[("authorization", &format!("Bearer {token}"))]);
    let expires = |admitted: Result<Caller, Unknown>| {
        admitted.unwrap().expires.map(jiff::Timestamp::as_second)
    };

    let by_keys = Authenticator::new(
        Arc::new(Mesh),
        Some(JwtAuthenticator::new(issuer.rule()).unwrap()),
        None,
        TrustedNetworks::default(),
    );

    // Clocks may differ by ten seconds.
    assert_eq!(
        expires(by_keys.admit(shown("192.0.2.1:5", &bearer)).await),
        Some(exp + 10)
    );
    let reviews = TokenReviews::new(Arc::new(Anybody), vec!["istio-ca".to_owned()]);
    let by_review = Authenticator::new(
        Arc::new(Mesh),
        None,
        Some(reviews),
        TrustedNetworks::default(),
    );

    assert_eq!(
        expires(by_review.admit(shown("192.0.2.1:5", &bearer)).await),
        Some(exp)
    );
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::URI(
        "spiffe://td/ns/shop/sa/web".try_into().unwrap(),
    )];

    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let certificate = params.self_signed(&issuer.key).unwrap().der().clone();
    let none = HeaderMap::new();
    let chain = [certificate];
    let credentials = Credentials {
        certificates: &chain,
        ..shown("192.0.2.1:5", &none)
    };
    assert_eq!(expires(by_keys.admit(credentials).await), Some(exp));
}

/// Accepts every token.
#[derive(Debug)]
struct Anybody;

impl Reviewer for Anybody {
    fn review<'a>(&'a self, _: &'a str, _: &'a [String]) -> Answer<'a> {
        Box::pin(async {
            Ok(Verdict::Good(Account {
                namespace: "shop".into(),
                name: "web".into(),
                pod: None,
            }))
        })
    }
}

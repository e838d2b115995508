//! Authentication: accepted and rejected callers.

mod issuer;
mod reviews;

use http::HeaderValue;
use rcgen::KeyPair;
use serde_json::json;

use super::token_review::{Account, ReviewFuture, Reviewer, Verdict};
use super::*;
use issuer::{Issuer, claims};

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
    fn review<'a>(&'a self, _: &'a str, _: &'a [String]) -> ReviewFuture<'a> {
        Box::pin(async {
            Ok(Verdict::Good(Account {
                namespace: "shop".into(),
                name: "web".into(),
                pod: None,
            }))
        })
    }
}

//! Tokens that the API server reviews.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::{Value, json};

use super::{Mesh, admit, headers, shown, with_token};
use crate::authenticate::token_review::{Account, ReviewFuture, Reviewer, Verdict};
use crate::authenticate::{Authenticator, MAX_TOKEN, TokenReviews, TrustedNetworks};
use crate::remote_servers::RemoteServers;
use navarch_api::identity::PodOfCaller;
use navarch_api::names::ClusterId;

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
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> ReviewFuture<'a> {
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
        let error = admit(&authenticator, shown("192.0.2.1:5", &bad))
            .await
            .unwrap_err();
        assert_eq!(error, "token: the API server rejected it");
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
        let error = admit(&authenticator, shown("192.0.2.1:5", &with_token(&token)))
            .await
            .unwrap_err();
        assert!(error.contains(reason), "{error}");
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

//! Tokens, as strangers show them.
//!
//! The key below has signed for the service account `web` of `shop` alone, so whatever is believed
//! must be that.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use navarch::api::names::{ClusterId, TrustDomain};
use navarch::security::authenticate::{JwtAuthenticator, JwtRule, MeshSnapshot};
use navarch::store::Objects;

/// The issuer's keys.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"one","x":"zzkrqd7MQg81hoQSprthRZ7NmIsUw6_mWBZYmCSuLRc","y":"yt5CCGdXnGAFX4gM4yhUxxEmj_u_I1DJHEw_YVqEYoY"}]}"#;

/// A mesh of which nothing is known but its names.
fn snapshot() -> MeshSnapshot {
    MeshSnapshot {
        objects: Objects::default(),
        remotes: Default::default(),
        trust_domain: TrustDomain::new("cluster.local"),
        aliases: Vec::new(),
        cluster: ClusterId::new("Kubernetes"),
    }
}

/// Shows one token.
///
/// # Panics
/// When a token is believed that the key has not signed.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let rule = JwtRule {
        issuer: "https://issuer.example".to_owned(),
        audiences: vec!["istio-ca".to_owned()],
        jwks: KEYS.to_owned(),
        ..JwtRule::default()
    };

    let authenticator = JwtAuthenticator::new(rule).expect("the rule is good");
    let snapshot = snapshot();
    let future = pin!(authenticator.caller(text.trim(), &snapshot));

    // Keys that are given are never waited for.
    let Poll::Ready(answer) = future.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("nothing is fetched");
    };

    if let Ok(caller) = answer {
        let names: Vec<String> = caller.identities.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["spiffe://cluster.local/ns/shop/sa/web"]);
    }
}

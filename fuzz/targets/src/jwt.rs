//! JWTs of unauthenticated clients.
//!
//! The key below has signed tokens only for the service account `web` in `shop`, so an accepted
//! token must have that identity.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use navarch::api::names::{ClusterId, TrustDomain};
use navarch::security::authenticate::{JwtAuthenticator, JwtRule, MeshSnapshot};
use navarch::store::Objects;

/// The issuer's key set.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"one","x":"zzkrqd7MQg81hoQSprthRZ7NmIsUw6_mWBZYmCSuLRc","y":"yt5CCGdXnGAFX4gM4yhUxxEmj_u_I1DJHEw_YVqEYoY"}]}"#;

/// A mesh without objects.
fn snapshot() -> MeshSnapshot {
    MeshSnapshot {
        objects: Objects::default(),
        remotes: Default::default(),
        trust_domain: TrustDomain::new("cluster.local"),
        aliases: Vec::new(),
        cluster: ClusterId::new("Kubernetes"),
    }
}

/// Authenticates with one token.
///
/// # Panics
/// If a token is accepted that the key has not signed.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let rule = JwtRule {
        issuer: "https://issuer.example".to_owned(),
        audiences: vec!["istio-ca".to_owned()],
        jwks: KEYS.to_owned(),
        ..JwtRule::default()
    };

    let authenticator = JwtAuthenticator::new(rule).expect("the rule is valid");
    let snapshot = snapshot();
    let future = pin!(authenticator.caller(text.trim(), &snapshot));

    // A rule with inline keys never waits for a fetch.
    let Poll::Ready(answer) = future.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("inline keys need no fetch");
    };

    if let Ok(caller) = answer {
        let names: Vec<String> = caller.identities.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["spiffe://cluster.local/ns/shop/sa/web"]);
    }
}

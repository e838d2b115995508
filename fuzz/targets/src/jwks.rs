//! JSON Web Key Sets, as issuers publish them and users write them into policies.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use navarch::api::names::{ClusterId, TrustDomain};
use navarch::security::authenticate::{JwtAuthenticator, JwtRule, MeshSnapshot};
use navarch::store::Objects;
use navarch::webhook::verdict::validate;
use serde_json::json;

/// A token whose header has a key id.
const TOKEN: &str = "eyJhbGciOiAiRVMyNTYiLCAia2lkIjogIm9uZSIsICJ0eXAiOiAiSldUIn0.eyJpc3MiOiAiaHR0cHM6Ly9pc3N1ZXIuZXhhbXBsZSIsICJhdWQiOiBbImlzdGlvLWNhIl0sICJzdWIiOiAic3lzdGVtOnNlcnZpY2VhY2NvdW50OnNob3A6d2ViIiwgImlhdCI6IDE3MDAwMDAwMDAsICJleHAiOiA0MTAyNDQ0ODAwfQ.-mcTgDG44SarBOIeNKcVsgmmEb1rZTg-AHoL3OSRldrINv62YxEAe1QZlQeRNBvkoDdJj9ZMHwu_HhCLjG-ffQ";

/// Parses one set, and validates a token with it.
pub fn run(data: &[u8]) {
    let keys = String::from_utf8_lossy(data).into_owned();
    let policy = json!({
        "apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication", "metadata": { "name": "r", "namespace": "shop" },
        "spec": { "jwtRules": [{ "issuer": "https://issuer.example", "jwks": keys }] },
    });
    let _ = validate(&policy);
    let rule = JwtRule {
        issuer: "https://issuer.example".to_owned(),
        audiences: vec!["istio-ca".to_owned()],
        jwks: if keys.is_empty() {
            "{}".to_owned()
        } else {
            keys
        },
        ..JwtRule::default()
    };

    let Ok(authenticator) = JwtAuthenticator::new(rule) else {
        return;
    };

    let snapshot = MeshSnapshot {
        objects: Objects::default(),
        remotes: Default::default(),
        trust_domain: TrustDomain::new("cluster.local"),
        aliases: Vec::new(),
        cluster: ClusterId::new("Kubernetes"),
    };

    let mut future = pin!(authenticator.caller(TOKEN, &snapshot));
    let _ = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
}

//! Comparison with Envoy: it accepts every key set that is sent, and rejects every set that is
//! rejected here.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may fail loudly and spawn"
)]

use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use serde_json::{Value, json};

use navarch_api::key_set::KeySet;

/// A modulus of 2048 bits.
const MODULUS: &str = "xAE7eB6qugXyCAG3yhh7pkDkT65pHymX-P7KfIupjf59vsdo91bSP9C8H07pSAGQO1MV_xFj9VswgsCg4R6otmg5PV2He95lZdHtOcU5DXIg_pbhLdKXbi66GlVeK6ABZOUW3WYtnNHD-91gVuoeJT_DwtGGcp4ignkgXfkiEm4sw-4sfb4qdt5oLbyVpmW6x9cfa7vs2WTfURiCrBoUqgBo_-4WTiULmmHSGZHOjzwa8WtrtOQGsAFjIbno85jp6MnGGGZPYZbDAa_b3y5u-YpW7ypZrvD8BgtKVjgtQgZhLAGezMt0ua3DRrWnKqTZ0BJ_EyxOGuHJrLsn00fnMQ";
/// A point on P-256.
const X: &str = "rkhpANiY5T-ItSDbmi2cZrsckltJzu6zllb-88gcORs";
const Y: &str = "DQW0zXEeN8oYJdUnRMhRYnvRDJi7U_EenTfRArpzUp8";
/// A point of Ed25519.
const EDWARDS: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

/// Whether Envoy accepts a listener with these keys.
fn envoy_accepts(program: &std::path::Path, keys: &str) -> bool {
    let filter = |name: &str, config: Value| json!({"name": name, "typed_config": config});
    let authentication = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
        "providers": {"p": {"issuer": "i", "local_jwks": {"inline_string": keys}}},
    });

    let router =
        json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "x",
        "route_config": {},
        "http_filters": [filter("jwt", authentication), filter("router", router)],
    });

    let listener = json!({
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [filter("http", manager)]}],
    });
    let bootstrap = json!({"static_resources": {"listeners": [listener]}});

    let status = Command::new(program)
        .args(["--mode", "validate", "--disable-hot-restart", "-l", "off"])
        .arg("--config-yaml")
        .arg(bootstrap.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();

    status.success()
}

/// An odd number of this many bits.
fn odd(bits: usize) -> String {
    let mut bytes = vec![0xa5; bits.div_ceil(8)];
    let top = 1_u8 << ((bits - 1) % 8);
    bytes[0] = top;
    *bytes.last_mut().unwrap() |= 1;
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Keys with one changed member each; `null` removes a member.
fn variants(key: &Value, changes: &[Value]) -> Vec<String> {
    let change = |change: &Value| {
        let mut key = key.clone();
        for (name, value) in change.as_object().unwrap() {
            key[name] = value.clone();
        }
        key.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        json!({ "keys": [key] }).to_string()
    };
    changes.iter().map(change).collect()
}

/// Certificates as a key set.
fn certificates(names: &[(&str, &str)]) -> String {
    let certificates = names
        .iter()
        .map(|(name, pem)| ((*name).to_owned(), Value::from(*pem)));
    Value::Object(certificates.collect()).to_string()
}

/// Key sets of every kind that issuers serve, and with each fault that Envoy rejects.
fn sets() -> Vec<String> {
    [
        rsa_sets(),
        elliptic_sets(),
        edwards_sets(),
        shared_sets(),
        other_texts(),
        certificate_sets(),
    ]
    .concat()
}

fn rsa() -> Value {
    json!({"kty": "RSA", "kid": "k", "alg": "RS256", "n": MODULUS, "e": "AQAB"})
}

fn rsa_sets() -> Vec<String> {
    let kinds = [
        json!({}),
        json!({"kty": null}),
        json!({"kty": "XYZ"}),
        json!({"kty": 1}),
        json!({"alg": "ES256"}),
        json!({"alg": "PS384"}),
        json!({"alg": "R"}),
        json!({"alg": 5}),
        json!({"kid": 5}),
    ];

    let moduli = [
        json!({"n": null}),
        json!({"n": 5}),
        json!({"n": format!("{MODULUS}==")}),
        json!({"n": format!("{MODULUS}=")}),
        json!({"n": MODULUS.replace('-', "+")}),
        json!({"n": format!(" {MODULUS}\n")}),
        json!({"n": odd(511)}),
        json!({"n": odd(512)}),
        json!({"n": odd(16384)}),
        json!({"n": odd(16385)}),
        json!({"n": MODULUS.replace("fnMQ", "fnMA")}),
    ];

    let exponents = [
        json!({"e": "Aw"}),
        json!({"e": "Aw.."}),
        json!({"e": "Aw="}),
        json!({"e": "Ax"}),
        json!({"e": "EQ"}),
        json!({"e": "AAEAAQ"}),
        json!({"e": ""}),
    ];

    variants(&rsa(), &[&kinds[..], &moduli, &exponents].concat())
}

fn elliptic_sets() -> Vec<String> {
    let elliptic = json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y});

    variants(
        &elliptic,
        &[
            json!({}),
            json!({"alg": "ES256"}),
            json!({"alg": "ES384"}),
            json!({"alg": "RS256"}),
            json!({"crv": null}),
            json!({"crv": null, "alg": "ES256"}),
            json!({"crv": null, "alg": "ES257"}),
            json!({"crv": 5}),
            json!({"crv": "P-384"}),
            json!({"crv": "P-999"}),
            json!({"y": X}),
            json!({"y": null}),
            json!({"x": ""}),
            json!({"x": format!("AAAA{X}")}),
        ],
    )
}

fn edwards_sets() -> Vec<String> {
    let edwards = json!({"kty": "OKP", "crv": "Ed25519", "x": EDWARDS});

    variants(
        &edwards,
        &[
            json!({}),
            json!({"alg": "EdDSA"}),
            json!({"alg": "Ed25519"}),
            json!({"crv": "X25519"}),
            json!({"crv": null}),
            json!({"x": "AAAA"}),
            json!({"x": URL_SAFE_NO_PAD.encode([0xff; 32])}),
        ],
    )
}

/// Symmetric keys.
fn shared_sets() -> Vec<String> {
    let shared = json!({"kty": "oct", "k": "YWJj"});

    variants(
        &shared,
        &[
            json!({}),
            json!({"alg": "HS256"}),
            json!({"alg": "RS256"}),
            json!({"k": ""}),
            json!({"k": null}),
        ],
    )
}

/// Deep nesting, sets with keys of several kinds, and texts that are no sets.
fn other_texts() -> Vec<String> {
    let rsa = rsa();
    let bad = json!({"kty": "XYZ"});
    let deep = |depth: usize| {
        let nested = "[".repeat(depth) + &"]".repeat(depth);
        format!(r#"{{"keys":[{rsa}],"x":{nested}}}"#)
    };

    let mut texts = vec![
        deep(80),
        deep(120),
        json!({"keys": [bad, rsa]}).to_string(),
        json!({"keys": [rsa, 1, bad]}).to_string(),
        rsa.to_string(),
        r#"{"keys":[{"kty":"RSA","kty":"RSA","n":"MODULUS","e":"AQAB"}]}"#
            .replace("MODULUS", MODULUS),
    ];

    let others = [
        "null",
        "[]",
        "{}",
        "<html>",
        r#"{"keys":[]}"#,
        r#"{"keys":null}"#,
    ];
    texts.extend(others.map(str::to_owned));

    texts
}

fn certificate_sets() -> Vec<String> {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let certificate = CertificateParams::default()
        .self_signed(&key)
        .unwrap()
        .pem();
    let certificate = certificate.replace('\r', "");

    let other = KeyPair::generate().unwrap();
    let elliptic = CertificateParams::default()
        .self_signed(&other)
        .unwrap()
        .pem();
    let elliptic = elliptic.replace('\r', "");

    vec![
        certificates(&[("a", &certificate)]),
        certificates(&[("a", &elliptic)]),
        certificates(&[("a", &certificate), ("b", &elliptic)]),
        certificates(&[("a", "x")]),
        certificates(&[("", &certificate)]),
    ]
}

#[test]
fn envoy_accepts_what_is_sent_and_rejects_what_is_rejected() {
    let program = navarch_testkit::envoy::program();
    if !program.exists() {
        navarch_testkit::skip::skip("Envoy is missing: run `make tools`");
        return;
    }

    let mut accepted = 0;
    for set in sets() {
        match KeySet::parse(&set) {
            Ok(found) => {
                accepted += 1;
                assert!(envoy_accepts(&program, &found.text), "is sent: {set}");
                let is_whole = envoy_accepts(&program, &set);
                assert!(is_whole || found.text != set, "is sent as it is: {set}");
            }
            Err(error) => assert!(!envoy_accepts(&program, &set), "{set}: {error}"),
        }
    }
    assert!(accepted > 20, "{accepted}");
}

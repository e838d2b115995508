//! Key sets that Envoy accepts and rejects. crates/api/tests/key_sets.rs compares more sets with
//! Envoy itself.

use serde_json::{Value, json};

use super::*;

/// A modulus of 2048 bits.
const MODULUS: &str = "xAE7eB6qugXyCAG3yhh7pkDkT65pHymX-P7KfIupjf59vsdo91bSP9C8H07pSAGQO1MV_xFj9VswgsCg4R6otmg5PV2He95lZdHtOcU5DXIg_pbhLdKXbi66GlVeK6ABZOUW3WYtnNHD-91gVuoeJT_DwtGGcp4ignkgXfkiEm4sw-4sfb4qdt5oLbyVpmW6x9cfa7vs2WTfURiCrBoUqgBo_-4WTiULmmHSGZHOjzwa8WtrtOQGsAFjIbno85jp6MnGGGZPYZbDAa_b3y5u-YpW7ypZrvD8BgtKVjgtQgZhLAGezMt0ua3DRrWnKqTZ0BJ_EyxOGuHJrLsn00fnMQ";

fn rsa() -> Value {
    json!({"kty": "RSA", "kid": "k1", "alg": "RS256", "use": "sig", "n": MODULUS, "e": "AQAB"})
}

fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

#[test]
fn a_set_of_usable_keys_is_sent_as_it_is() {
    let text = format!("  {}\n", set(&[rsa()]));

    let found = KeySet::parse(&text).unwrap();

    assert_eq!(found.text, text);
    assert_eq!(found.rejected, RejectedKeys::default());
}

#[test]
fn keys_that_envoy_cannot_use_are_left_out_and_named() {
    let unknown = json!({"kty": "EC", "crv": "P-999", "x": "aa", "y": "bb", "kid": "z"});

    let found = KeySet::parse(&set(&[unknown, rsa(), json!(1)])).unwrap();

    let kept: Value = serde_json::from_str(&found.text).unwrap();
    assert_eq!(kept["keys"][0]["kid"], "k1");
    assert_eq!(kept["keys"].as_array().unwrap().len(), 1);
    assert_eq!(
        found.rejected.to_string(),
        ": key 0 (\"z\") has a \"crv\" that Envoy does not know, or that is not that of \"alg\"; \
         key 2 is not an object"
    );
}

#[test]
fn a_set_without_a_usable_key_is_rejected() {
    for (text, why) in [
        (r#"{"keys":[]}"#, "it has no key that Envoy can use"),
        (
            r#"{"keys":[{"kty":"XYZ","kid":"bad"}]}"#,
            "it has no key that Envoy can use: key 0 (\"bad\") is of a type that Envoy does not know",
        ),
        (r#"{"keys":{}}"#, "it has no list \"keys\""),
        ("{}", "it has no list \"keys\""),
        ("[]", "it has no list \"keys\""),
    ] {
        assert_eq!(KeySet::parse(text).unwrap_err().to_string(), why, "{text}");
    }
    let one = KeySet::parse(&rsa().to_string()).unwrap_err();
    assert_eq!(one, KeySetError::NoKeys, "a key is not a set");
    assert!(matches!(
        KeySet::parse("<html>"),
        Err(KeySetError::NotJson(_))
    ));
}

#[test]
fn json_that_protobuf_rejects_is_normalized() {
    let twice = format!(r#"{{"keys":[{{"kty":"RSA","kty":"RSA","n":"{MODULUS}","e":"AQAB"}}]}}"#);
    let deep = format!(
        r#"{{"keys":[{}],"x":{}{}}}"#,
        rsa(),
        "[".repeat(110),
        "]".repeat(110)
    );

    for text in [twice, deep] {
        let found = KeySet::parse(&text).unwrap();
        let anew: Value = serde_json::from_str(&found.text).unwrap();
        assert_eq!(anew["keys"][0]["n"], MODULUS);
        assert_eq!(anew.get("x"), None);
        assert!(KeySet::parse(&found.text).unwrap().text == found.text);
    }
}

#[test]
fn a_text_names_few_keys() {
    let many = vec![json!({"kty": "XYZ", "kid": "k".repeat(500)}); 100];
    let words = KeySet::parse(&set(&many)).unwrap_err().to_string();
    assert!(
        words.ends_with("; and 92 more") && words.len() < 2000,
        "{words}"
    );
}

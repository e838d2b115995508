//! Checks of a token without a TokenReview: whether it can be a service account token that the API
//! server would accept.
//!
//! These checks never accept a token. They reject tokens that the API server would certainly
//! reject, so that made-up tokens, which cost a client nothing, do not cause load on the API
//! server.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::expiry_of_claims;

/// How long after its expiry a token is still reviewed, in seconds: the API server allows a minute,
/// and clocks differ.
const LEEWAY: i64 = 300;

/// Checks the form, the expiry and the audience of a token. Returns its expiry, if it has one.
///
/// # Errors
/// The reason why the API server would reject the token.
pub(super) fn check(
    token: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<Option<Timestamp>, &'static str> {
    const NO_JWT: &str = "it is not a JWT";
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(NO_JWT);
    };

    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| NO_JWT);

    // Both parts must be JSON objects: for a struct, serde would also accept an array.
    let header: Map<String, Value> =
        serde_json::from_slice(&decode(header)?).map_err(|_| NO_JWT)?;
    let algorithm = header.get("alg").and_then(Value::as_str).ok_or(NO_JWT)?;
    if decode(signature)?.is_empty() || algorithm.eq_ignore_ascii_case("none") {
        return Err("it is not signed");
    }

    // Tokens of Secrets have neither an expiry nor an audience.
    let claims: Map<String, Value> =
        serde_json::from_slice(&decode(claims)?).map_err(|_| "its claims cannot be parsed")?;
    let [end, audience] = ["exp", "aud"].map(|name| claims.get(name).unwrap_or(&Value::Null));
    let expires = expiry_of_claims(end);
    if expires.is_none() && !end.is_null() {
        return Err("its claims cannot be parsed");
    }

    if expires.is_some_and(|expires| expires.as_second().saturating_add(LEEWAY) < now.as_second()) {
        return Err("it has expired");
    }

    let meant: Vec<&str> = match audience {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };

    // The API server decides about a token without an audience; without configured audiences, it
    // decides about every token.
    let is_for_others = !meant.is_empty()
        && !meant
            .iter()
            .any(|one| audiences.iter().any(|ours| ours == one));
    if is_for_others && !audiences.is_empty() {
        return Err("it is for another audience");
    }

    Ok(expires)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(header: &Value, claims: &Value, signature: &str) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{signature}", part(header), part(claims))
    }

    #[test]
    fn only_tokens_that_the_api_server_may_accept_are_reviewed() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let at = now.as_second();
        let ours = ["istio-ca".to_owned()];
        let signed = |claims: Value| token(&json!({"alg": "RS256"}), &claims, "c2ln");

        for (token, expected) in [
            (
                signed(json!({"aud": ["istio-ca"], "exp": at + 60, "sub": "x"})),
                Ok(()),
            ),
            (signed(json!({"aud": "istio-ca", "exp": at})), Ok(())),
            (
                signed(json!({"aud": ["other", "istio-ca"], "exp": at - 60})),
                Ok(()),
            ),
            // Of a Secret: neither end nor audience.
            (
                signed(
                    json!({"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:shop:web"}),
                ),
                Ok(()),
            ),
            (signed(json!({"aud": []})), Ok(())),
            (
                signed(json!({"aud": ["istio-ca"], "exp": at - 3600})),
                Err("it has expired"),
            ),
            (
                signed(json!({"aud": "other", "exp": at + 60})),
                Err("it is for another audience"),
            ),
            (
                signed(json!({"aud": ["a", "b"]})),
                Err("it is for another audience"),
            ),
            (
                signed(json!({"exp": "soon"})),
                Err("its claims cannot be parsed"),
            ),
            (signed(json!(null)), Err("its claims cannot be parsed")),
            (signed(json!([])), Err("its claims cannot be parsed")),
            (
                token(&json!({"alg": "none"}), &json!({}), "c2ln"),
                Err("it is not signed"),
            ),
            (
                token(&json!({"alg": "RS256"}), &json!({}), ""),
                Err("it is not signed"),
            ),
            (
                token(&json!({}), &json!({}), "c2ln"),
                Err("it is not a JWT"),
            ),
            (String::new(), Err("it is not a JWT")),
            ("x".repeat(16 << 10), Err("it is not a JWT")),
            ("a.b".to_owned(), Err("it is not a JWT")),
            ("a.b.c.d".to_owned(), Err("it is not a JWT")),
            ("!.e30.c2ln".to_owned(), Err("it is not a JWT")),
            (format!("{}x", signed(json!({}))), Err("it is not a JWT")),
        ] {
            assert_eq!(check(&token, &ours, now).map(drop), expected, "{token}");
        }

        assert_eq!(
            check(&signed(json!({"aud": "other"})), &[], now),
            Ok(None),
            "there is no audience to be for"
        );
        assert_eq!(
            check(&signed(json!({"exp": at + 60})), &ours, now),
            Ok(Timestamp::from_second(at + 60).ok())
        );
    }
}

//! Rules for RequestAuthentication.

use serde_json::Value;

use super::header::plain_name;
use super::name::optional_duration;
use super::path::Path;
use super::target_ref::attachment;
use super::{Validate, Verdict};
use crate::istio::{JwtRule, RequestAuthentication};
use crate::key_set::KeySet;
use crate::object::ObjectMeta;
use navarch_base::shown_url::ShownUrl;

impl Validate for RequestAuthentication {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            selector,
            target_ref,
            target_refs,
            jwt_rules,
        } = self;

        let spec = Path::root("spec");
        attachment(
            &mut verdict,
            &spec,
            selector.as_ref(),
            target_ref.as_ref(),
            target_refs,
        );

        let at = spec.field("jwtRules");
        for (index, rule) in jwt_rules.iter().enumerate() {
            jwt_rule(&mut verdict, &at.item(index), rule);
        }

        verdict
    }
}

/// Validates a rule.
fn jwt_rule(verdict: &mut Verdict, at: &Path<'_>, rule: &JwtRule) {
    let JwtRule {
        issuer,
        audiences,
        jwks_uri,
        jwks,
        from_headers,
        from_params,
        output_payload_to_header: _,
        from_cookies,
        forward_original_token: _,
        output_claim_to_headers,
        timeout,
        space_delimited_claims: _,
        presence: _,
    } = rule;

    if issuer.is_empty() && jwks_uri.is_empty() {
        verdict.error(
            &at.field("issuer"),
            "is missing, and so is jwksUri; write one of them",
        );
    }

    if !jwks_uri.is_empty() {
        verdict.check(&at.field("jwksUri"), jwks_address(jwks_uri));
    }

    if !jwks.is_empty() {
        inline_keys(verdict, &at.field("jwks"), jwks);
    }

    for (field, values) in [
        ("audiences", audiences),
        ("fromParams", from_params),
        ("fromCookies", from_cookies),
    ] {
        let at = at.field(field);
        for (index, _) in values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_empty())
        {
            verdict.error(&at.item(index), "is empty");
        }
    }

    let headers = at.field("fromHeaders");

    for (index, _) in from_headers
        .iter()
        .enumerate()
        .filter(|(_, header)| header.name.is_empty())
    {
        verdict.error(&headers.item(index).field("name"), "is missing");
    }
    let claims = at.field("outputClaimToHeaders");

    for (index, output) in output_claim_to_headers.iter().enumerate() {
        let at = claims.item(index);
        if output.claim.is_empty() || output.header.is_empty() {
            verdict.error(&at, "needs both a claim and a header");
        } else {
            verdict.check(&at.field("header"), plain_name(&output.header));
        }
    }

    optional_duration(verdict, &at.field("timeout"), *timeout);
}

/// The URL of keys.
fn jwks_address(uri: &str) -> Result<(), String> {
    let shown = ShownUrl::new(uri);
    let fault = |why: &str| {
        Err(format!(
            "{shown:?} is not a valid URI for a JSON Web Key Set: {why}"
        ))
    };
    let parsed = match uri.parse::<hyper::Uri>() {
        Ok(parsed) => parsed,
        Err(error) => return fault(&error.to_string()),
    };
    match parsed.scheme_str() {
        Some("http" | "https") => {}
        Some(_) | None => return fault("write http:// or https:// and a host"),
    }
    if parsed.host().is_none_or(str::is_empty) {
        return fault("it has no host");
    }
    Ok(())
}

/// Validates keys in the rule.
fn inline_keys(verdict: &mut Verdict, at: &Path<'_>, jwks: &str) {
    let keys = match parse_keys(jwks) {
        Ok(keys) => keys,
        Err(why) => return verdict.error(at, format!("is not a JSON Web Key Set: {why}")),
    };
    match KeySet::parse(jwks) {
        Ok(set) if set.rejected.0.is_empty() => {}
        Ok(set) => verdict.warn(
            at,
            format!(
                "holds keys that Envoy cannot use, which are left out{}",
                set.rejected
            ),
        ),
        Err(why) => verdict.warn(
            at,
            format!("is no key set for Envoy, so no token of this issuer is accepted: {why}"),
        ),
    }

    for (index, key) in keys.iter().enumerate() {
        let is_private =
            key.get("d").is_some() || key.get("kty").and_then(Value::as_str) == Some("oct");
        if is_private {
            verdict.warn(
                at,
                format!("holds the private part of key {index}; tokens are verified with public keys, so leave it out"),
            );
        }
    }
}

/// The keys of a set, or a single key.
fn parse_keys(jwks: &str) -> Result<Vec<Value>, String> {
    let value: Value = serde_json::from_str(jwks).map_err(|error| error.to_string())?;
    let keys = match value.get("keys") {
        Some(Value::Array(keys)) => keys.clone(),
        Some(_) => return Err("\"keys\" is not a list".to_owned()),
        None => vec![value],
    };

    for (index, key) in keys.iter().enumerate() {
        let text = |member: &str| {
            key.get(member)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };

        let needed: &[&str] = match text("kty") {
            Some("RSA") => &["n", "e"],
            Some("EC") => &["crv", "x", "y"],
            Some("OKP") => &["crv", "x"],
            Some("oct") => &["k"],
            Some(other) => return Err(format!("key {index} is of the unknown type {other:?}")),
            None => return Err(format!("key {index} has no \"kty\"")),
        };

        if let Some(missing) = needed.iter().find(|member| text(member).is_none()) {
            return Err(format!("key {index} has no {missing:?}"));
        }
    }

    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_complete() {
        assert_eq!(parse_keys(r#"{"keys":[]}"#).map(|keys| keys.len()), Ok(0));
        assert_eq!(
            parse_keys(r#"{"kty":"RSA","n":"x","e":"AQAB"}"#).map(|keys| keys.len()),
            Ok(1)
        );
        for bad in [
            "",
            " ",
            "null",
            "[]",
            "{}",
            r#"{"keys":1}"#,
            r#"{"keys":[{"kty":"RSA","n":"x"}]}"#,
            r#"{"keys":[null]}"#,
        ] {
            assert!(parse_keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn jwks_uris_must_be_http_or_https() {
        assert!(
            jwks_address("https://a.example/keys?x=1").is_ok()
                && jwks_address("http://10.0.0.1:80/k").is_ok()
        );
        for bad in [
            "ftp://a",
            "file:///etc/passwd",
            "a.example",
            "https://",
            "http:///x",
            "https://a b",
        ] {
            assert!(jwks_address(bad).is_err(), "{bad}");
        }

        let fault = jwks_address("ftp://user:password@host/a").unwrap_err();
        assert!(!fault.contains("password"), "{fault}");
    }
}

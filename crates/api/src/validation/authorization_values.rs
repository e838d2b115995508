//! Rules for the values that AuthorizationPolicies compare with.

use super::Verdict;
use super::name::ip_or_cidr;
use super::path::Path;

/// The maximum number of service accounts in one list, which bounds the configuration.
const MAX_ACCOUNTS: usize = 16;

/// The maximum length of one service account with its namespace, in bytes.
const MAX_ACCOUNT_LENGTH: usize = 320;

/// Matches one segment of a path.
const ONE_SEGMENT: &str = "{*}";

/// Matches the rest of a path.
const REST_OF_PATH: &str = "{**}";

/// Checks each value of a list.
pub(super) fn each(
    verdict: &mut Verdict,
    at: &Path<'_>,
    values: &[String],
    check: fn(&str) -> Result<(), String>,
) {
    for (index, value) in values.iter().enumerate() {
        verdict.check(&at.item(index), check(value));
    }
}

/// Any text.
pub(super) fn not_empty(value: &str) -> Result<(), String> {
    if value.is_empty() {
        Err("is empty, which matches nothing; write a value".to_owned())
    } else {
        Ok(())
    }
}

/// An IP address or a CIDR block.
pub(super) fn address(value: &str) -> Result<(), String> {
    not_empty(value)?;
    ip_or_cidr(value)
}

/// A port as text; 0 is valid here, as in Envoy.
pub(super) fn port(value: &str) -> Result<(), String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse::<u16>() {
        Ok(_) if digits => Ok(()),
        Ok(_) | Err(_) => Err(format!("{value:?} is not a port; ports are 0 to 65535")),
    }
}

/// A text with at most one wildcard, at its start or its end.
pub(super) fn edge_wildcard(value: &str) -> Result<(), String> {
    not_empty(value)?;
    let inner = value
        .strip_prefix('*')
        .or_else(|| value.strip_suffix('*'))
        .unwrap_or(value);
    if inner.contains('*') {
        return Err(format!(
            "{value:?} may have one wildcard, at its start or its end"
        ));
    }
    Ok(())
}

/// A trust domain, with at most one wildcard.
pub(super) fn trust_domain(value: &str) -> Result<(), String> {
    edge_wildcard(value)?;
    if value.contains('/') {
        return Err(format!("{value:?} is not a trust domain: it holds \"/\""));
    }
    Ok(())
}

/// A list of service accounts. Only the first error is reported, since later ones may be its
/// consequences.
pub(super) fn service_accounts(verdict: &mut Verdict, at: &Path<'_>, values: &[String]) {
    if values.len() > MAX_ACCOUNTS {
        verdict.error(
            at,
            format!("holds {} values; {MAX_ACCOUNTS} are allowed", values.len()),
        );
        return;
    }
    for (index, value) in values.iter().enumerate() {
        if let Err(message) = service_account(value) {
            verdict.error(&at.item(index), message);
            return;
        }
    }
}

/// A service account with or without its namespace.
fn service_account(value: &str) -> Result<(), String> {
    not_empty(value)?;

    if value.contains('*') {
        return Err(format!(
            "{value:?} has a wildcard; write the service account in full"
        ));
    }

    if value.len() > MAX_ACCOUNT_LENGTH {
        return Err(format!(
            "is {} bytes long; {MAX_ACCOUNT_LENGTH} are allowed",
            value.len()
        ));
    }

    let parts: Vec<&str> = value.split('/').collect();
    if parts.len() > 2 || parts.contains(&"") {
        return Err(format!(
            "{value:?} is not a service account; write \"account\" or \"namespace/account\""
        ));
    }

    Ok(())
}

/// Whether a path is a template.
fn is_template(path: &str) -> bool {
    path.contains(ONE_SEGMENT) || path.contains(REST_OF_PATH)
}

/// A path, which may be a template: `{*}` matches one segment; `{**}`, only as the last one,
/// matches any number.
pub(super) fn path(value: &str) -> Result<(), String> {
    not_empty(value)?;
    let mut ended = false;

    for segment in value.trim_matches('/').split('/') {
        match segment {
            ONE_SEGMENT | REST_OF_PATH if ended => {
                return Err(format!(
                    "{value:?} has {segment} after {{**}}, which must be the last template segment"
                ));
            }
            REST_OF_PATH => ended = true,
            ONE_SEGMENT => {}
            other if other.contains(['{', '}']) => {
                return Err(format!(
                    "{value:?} has braces that are neither {{*}} nor {{**}} as a whole segment"
                ));
            }
            other if is_template(value) && !is_literal(other) => {
                return Err(format!(
                    "{value:?} is a template, but {other:?} has characters that are invalid in a path"
                ));
            }
            _ => {}
        }
    }

    Ok(())
}

/// Whether a segment consists of characters that paths may contain (`pchar` of RFC 3986).
fn is_literal(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&byte);
    !segment.is_empty() && segment.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_templates_are_segments_and_double_stars_come_last() {
        for good in [
            "/a",
            "/a*",
            "*/b",
            "/{*}/b",
            "/a/{**}",
            "/{*}/{**}/c",
            "/a//b",
        ] {
            assert_eq!(path(good), Ok(()), "{good}");
        }

        for bad in [
            "",
            "/{**}/{*}",
            "/{**}/{**}",
            "/a{*}",
            "/{a}",
            "/{*}/b c",
            "/{*}//b",
            "/{*}/b*",
        ] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_are_plain_numbers() {
        assert!(port("0").is_ok() && port("65535").is_ok());
        assert!(
            port("65536").is_err()
                && port("+1").is_err()
                && port("").is_err()
                && port("-1s").is_err()
        );
    }

    #[test]
    fn service_accounts_have_at_most_a_namespace() {
        assert!(service_account("a").is_ok() && service_account("ns/a.b").is_ok());
        for bad in ["", "/a", "a/", "a/b/c", "a*"] {
            assert!(service_account(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_wildcard_at_the_start_or_end_is_valid() {
        assert!(
            edge_wildcard("*").is_ok()
                && edge_wildcard("*a").is_ok()
                && edge_wildcard("a*").is_ok()
        );
        assert!(
            edge_wildcard("a*b").is_err()
                && edge_wildcard("*a*").is_err()
                && edge_wildcard("**").is_err()
        );
        assert!(trust_domain("a/b").is_err());
    }
}

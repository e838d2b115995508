//! Rules for names and values of HTTP headers.

use super::Verdict;
use super::path::Path;
use crate::istio::{HeaderOperations, Headers};

/// The prefix of header names that refer to a claim of the request's token.
const CLAIM_PREFIX: &str = "@request.auth.claims";

/// Whether the name refers to a claim: the prefix, then `.name` or `[name]`.
pub(super) fn is_claim(name: &str) -> bool {
    let Some((prefix, rest)) = name.split_at_checked(CLAIM_PREFIX.len()) else {
        return false;
    };
    let dotted = rest.starts_with('.') && rest.len() > 1;
    let bracketed = rest.starts_with('[') && rest.ends_with(']') && rest.len() > 2;
    prefix.eq_ignore_ascii_case(CLAIM_PREFIX) && (dotted || bracketed)
}

/// Whether a probe may send a header of this name.
pub(super) fn is_probe_header(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Whether the name is a token as HTTP defines it.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A header to match: a name, a pseudo header, or a claim.
pub(super) fn match_name(name: &str) -> Result<(), String> {
    let is_pseudo = matches!(
        name,
        ":method" | ":scheme" | ":authority" | ":path" | ":status"
    );
    if is_pseudo || is_claim(name) || is_token(name) {
        return Ok(());
    }
    Err(format!("{name:?} is not the name of a header"))
}

/// A header in a list of the cross-origin policy.
pub(super) fn cors_name(name: &str) -> Result<(), String> {
    if is_token(name) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not the name of a header; write one, or \"*\" for all"
    ))
}

/// A header for claims: no pseudo header, and none of the less common characters of names.
pub(super) fn plain_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !name.is_empty() && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not the name of a header for claims; write letters, digits, - and _"
    ))
}

/// Whether the header contains the authority of a request.
pub(super) fn is_authority(name: &str) -> bool {
    name.eq_ignore_ascii_case(":authority") || name.eq_ignore_ascii_case("host")
}

/// Validates header changes.
pub(super) fn headers(verdict: &mut Verdict, at: &Path<'_>, headers: Option<&Headers>) {
    let Some(Headers { request, response }) = headers else {
        return;
    };
    if let Some(request) = request {
        operations(verdict, &at.field("request"), request, is_authority);
    }
    if let Some(response) = response {
        operations(verdict, &at.field("response"), response, |_| false);
    }
}

/// Validates header changes in one direction; `settable` returns whether a reserved header may be
/// set there.
fn operations(
    verdict: &mut Verdict,
    at: &Path<'_>,
    operations: &HeaderOperations,
    settable: fn(&str) -> bool,
) {
    let HeaderOperations { set, add, remove } = operations;
    for (field, changes) in [("set", set), ("add", add)] {
        let map = at.field(field);
        for (name, text) in changes {
            let at = &map.field(name);
            if !settable(name) {
                verdict.check(at, changeable(name));
            }
            verdict.check(at, value(text));
        }
    }
    let list = at.field("remove");
    for (index, name) in remove.iter().enumerate() {
        verdict.check(&list.item(index), changeable(name));
    }
}

/// A header that may be changed.
fn changeable(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty; write the name of a header".to_owned());
    }
    if name.starts_with(':') || name.eq_ignore_ascii_case("host") {
        return Err(format!(
            "{name:?} cannot be changed here; the authority can be set on requests, or with rewrite"
        ));
    }
    Ok(())
}

/// The value of a header, in which Envoy replaces `%NAME%` and `%NAME(...)%`.
pub(super) fn value(text: &str) -> Result<(), String> {
    if text
        .bytes()
        .any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f)
    {
        return Err(format!(
            "{text:?} has control characters, which a header cannot hold"
        ));
    }
    let mut state = State::Literal;
    let mut bytes = text.bytes();

    while let Some(byte) = bytes.next() {
        state = match step(state, byte, &mut bytes) {
            Some(next) => next,
            None => return Err(unbalanced(text)),
        };
    }

    if state == State::Literal {
        Ok(())
    } else {
        Err(unbalanced(text))
    }
}

/// The message for a value whose variables do not parse.
fn unbalanced(text: &str) -> String {
    format!(
        "{text:?} has a \"%\" that is not part of a variable; write %NAME% or %NAME(...)%, or %% for a literal percent sign"
    )
}

/// The state of the parser of header values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// In text.
    Literal,
    /// In the name of a variable.
    Name,
    /// Before the list of arguments.
    Arguments,
    /// Before a quoted argument.
    Quote,
    Argument,
    /// After a quoted argument.
    AfterArgument,
    /// Before the closing parenthesis.
    Parenthesis,
    /// Before the closing `%`.
    End,
}

/// The state after a byte, as in Envoy's header parser; `None` if the parser rejects the byte.
fn step(place: State, byte: u8, rest: &mut std::str::Bytes<'_>) -> Option<State> {
    Some(match (place, byte) {
        (State::Literal, b'%') if peek(rest) == Some(b'%') => {
            rest.next();
            State::Literal
        }
        (State::Literal, b'%') if peek(rest).is_none() => return None,
        (State::Literal, b'%') => State::Name,
        (State::Literal, _) | (State::Name | State::End, b'%') => State::Literal,

        (State::Name, b'(') => State::Arguments,
        (State::Arguments, b'[') | (State::AfterArgument, b',') => State::Quote,
        (State::Quote, b'"') => State::Argument,
        (State::Argument, b'\\') => {
            rest.next()?;
            State::Argument
        }
        (State::Argument | State::Parenthesis, b')') => State::End,
        (State::Argument, b'"') => State::AfterArgument,
        (State::AfterArgument, b']') => State::Parenthesis,
        (
            State::Arguments
            | State::Quote
            | State::AfterArgument
            | State::Parenthesis
            | State::End,
            b' ',
        ) => place,

        (State::Arguments, _) => State::Argument,
        (State::Name | State::Argument, _) => place,
        (State::Quote | State::AfterArgument | State::Parenthesis | State::End, _) => return None,
    })
}

/// The next byte, which is not consumed.
fn peek(bytes: &std::str::Bytes<'_>) -> Option<u8> {
    bytes.clone().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_must_have_complete_variables() {
        for good in [
            "",
            "foo",
            "%HOSTNAME%",
            "100%%",
            "a %HOSTNAME% b",
            "%REQ(a)%",
            "%DYNAMIC_METADATA([\"a\", \"b\"])%",
            "%PER_REQUEST_STATE(x)%",
            "%START_TIME(%s)%",
            "%A([\"\\\"\"])%",
            "%%",
            "\t",
        ] {
            assert_eq!(value(good), Ok(()), "{good}");
        }

        for bad in [
            "%",
            "abc%123",
            "%START_TIME%%",
            "%A(",
            "%A([\"b\" \"c\"])%",
            "%A([\"a\"])x%",
            "a\nb",
            "%A(\\",
        ] {
            assert!(value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn claims_follow_the_prefix() {
        assert!(is_claim("@request.auth.claims.sub") && is_claim("@Request.Auth.Claims[a][b]"));
        assert!(
            !is_claim("@request.auth.claims")
                && !is_claim("@request.auth.claims.")
                && !is_claim("x")
        );
        assert!(
            !is_claim("@request.auth.claims[]") && match_name("@request.auth.claims.sub").is_ok()
        );
        assert!(
            match_name("@a").is_err() && match_name(":path").is_ok() && match_name("").is_err()
        );
    }
}

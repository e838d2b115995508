//! Attributes that rules match, by their names in policies.

/// An attribute of requests or connections that rules match on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attribute<'a> {
    Operation(OperationAttribute<'a>),
    Source(SourceAttribute<'a>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperationAttribute<'a> {
    /// The host of a request.
    Host,
    /// The method of a request.
    Method,
    /// The path of a request.
    Path,
    /// The port of the workload.
    Port,
    /// The address of the workload.
    Address,
    /// The requested server name (SNI).
    Sni,
    /// Metadata that a filter wrote: the filter and the key.
    Metadata(&'a str, &'a str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourceAttribute<'a> {
    /// The peer's identity.
    Principal,
    /// The peer's namespace.
    Namespace,
    /// The peer's service account.
    ServiceAccount,
    /// The peer's trust domain.
    TrustDomain,
    /// The peer's address.
    Address,
    /// The original client address, behind trusted proxies.
    RemoteAddress,
    /// A header of the request.
    Header(&'a str),
    /// Issuer and subject of the token.
    TokenPrincipal,
    /// A claim of the token, by its path.
    Claim(Vec<&'a str>),
}

impl<'a> Attribute<'a> {
    /// The attribute of a condition's key; `None` if unknown.
    pub(super) fn of_condition(key: &'a str) -> Option<Self> {
        let source = |attribute| Some(Self::Source(attribute));
        let operation = |attribute| Some(Self::Operation(attribute));
        match key {
            "destination.ip" => operation(OperationAttribute::Address),
            "destination.port" => operation(OperationAttribute::Port),
            "connection.sni" => operation(OperationAttribute::Sni),
            "source.ip" => source(SourceAttribute::Address),
            "remote.ip" => source(SourceAttribute::RemoteAddress),
            "source.namespace" => source(SourceAttribute::Namespace),
            "source.serviceAccount" => source(SourceAttribute::ServiceAccount),
            "source.trustDomain" => source(SourceAttribute::TrustDomain),
            "source.principal" => source(SourceAttribute::Principal),
            "request.auth.principal" => source(SourceAttribute::TokenPrincipal),
            "request.auth.audiences" => source(SourceAttribute::Claim(vec!["aud"])),
            "request.auth.presenter" => source(SourceAttribute::Claim(vec!["azp"])),
            _ => Self::of_member(key),
        }
    }

    /// The attribute of a condition's key with a member in brackets.
    fn of_member(key: &'a str) -> Option<Self> {
        if let Some(rest) = key.strip_prefix("experimental.") {
            let (filter, member) = rest.strip_suffix(']').unwrap_or(rest).split_once('[')?;
            return filter
                .starts_with("envoy.filters.")
                .then_some(Self::Operation(OperationAttribute::Metadata(
                    filter, member,
                )));
        }
        if let Some(rest) = key.strip_prefix("request.headers") {
            return Some(Self::Source(SourceAttribute::Header(in_brackets(rest)?)));
        }
        let claims = path_in_brackets(key.strip_prefix("request.auth.claims")?)?;
        Some(Self::Source(SourceAttribute::Claim(claims)))
    }
}

/// The content of brackets.
fn in_brackets(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.strip_suffix(']')
}

/// The contents of consecutive pairs of brackets. Nested brackets belong to one name.
fn path_in_brackets(text: &str) -> Option<Vec<&str>> {
    let mut path = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let part = rest
            .strip_prefix('[')
            .and_then(|inner| inner.split_once(']'));
        match part.filter(|(name, _)| !name.contains('[')) {
            Some((name, after)) => {
                path.push(name);
                rest = after;
            }
            None => return in_brackets(text).map(|name| vec![name]),
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_nest_in_brackets() {
        assert_eq!(path_in_brackets("[a]"), Some(vec!["a"]));
        assert_eq!(path_in_brackets("[a][b.c]"), Some(vec!["a", "b.c"]));
        assert_eq!(path_in_brackets("[a[b]]"), Some(vec!["a[b]"]));
        assert_eq!(path_in_brackets("[a]b"), None);
        assert_eq!(path_in_brackets("a"), None);
    }

    #[test]
    fn unknown_keys_have_no_attribute() {
        for key in [
            "",
            "source.labels",
            "request.headers",
            "request.headersx[a]",
            "experimental.envoy.filters.a",
            "experimental.x[a]",
        ] {
            assert_eq!(Attribute::of_condition(key), None, "{key}");
        }
        assert_eq!(
            Attribute::of_condition("experimental.envoy.filters.a.b[c]"),
            Some(Attribute::Operation(OperationAttribute::Metadata(
                "envoy.filters.a.b",
                "c"
            )))
        );
    }
}

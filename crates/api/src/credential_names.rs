//! Which values hold credentials, as far as their names tell: names of environment variables, of
//! values of Helm, and of fields of JSON.
//!
//! Callers differ in what a mistake costs, not in what they look for. A log hides a value on the
//! least suspicion; values that are carried over to another installation lose only what is
//! certain, as the installation works differently without the others.

/// How likely the value of a name is a credential, or contains one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CredentialLikelihood {
    /// The name does not suggest one.
    Unlikely,
    /// The name has a word that names of credentials have, and others too: `XDS_AUTH`.
    Possible,
    /// Such values often contain one: headers, and addresses, which may have a user or a query.
    Likely,
    /// The name is that of a password, a private key or a token.
    Certain,
}

/// The likelihood for a name in any case, whose words are separated by anything or nothing:
/// `ACCESS_TOKEN`, `access-token` and `accessToken` are one name.
#[must_use]
pub fn credential_likelihood(name: &str) -> CredentialLikelihood {
    let name: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|character| character.to_ascii_uppercase())
        .collect();
    let contains = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let ends_with = |words: &[&str]| words.iter().any(|word| name.ends_with(word));

    if contains(&["PASSWORD", "PRIVATEKEY", "ACCESSTOKEN", "APIKEY"])
        || ends_with(&["TOKEN", "SECRET"])
    {
        return CredentialLikelihood::Certain;
    }

    if contains(&["SECRET", "CREDENTIAL", "HEADERS"]) || ends_with(&["URL", "ENDPOINT"]) {
        return CredentialLikelihood::Likely;
    }

    if contains(&["AUTH", "HEADER", "KEY", "TOKEN", "URL"]) {
        return CredentialLikelihood::Possible;
    }

    CredentialLikelihood::Unlikely
}

#[cfg(test)]
mod tests {
    use super::CredentialLikelihood::{Certain, Likely, Possible, Unlikely};
    use super::*;

    #[test]
    fn names_are_judged_by_their_words_however_they_are_separated() {
        for (name, expected) in [
            ("db_password", Certain),
            ("LIGHTSTEP_ACCESS_TOKEN", Certain),
            ("accessToken", Certain),
            ("private-key", Certain),
            ("clientSecret", Certain),
            ("OTEL_EXPORTER_OTLP_HEADERS", Likely),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", Likely),
            ("NAVARCH_PROMETHEUS_URL", Likely),
            ("PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER", Likely),
            ("imagePullSecrets", Likely),
            ("XDS_AUTH", Possible),
            ("TOKEN_AUDIENCES", Possible),
            ("XDS_HEADER_X_API", Possible),
            ("ISTIO_META_DNS_CAPTURE", Unlikely),
            ("", Unlikely),
        ] {
            assert_eq!(credential_likelihood(name), expected, "{name}");
        }
    }
}

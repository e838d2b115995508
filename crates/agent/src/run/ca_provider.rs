//! `CA_PROVIDER`: the clients of CAs, by name.

/// Certificates that GKE mounts.
pub(super) const GKE: &str = "GkeWorkloadCertificate";
/// Certificates that the control plane, or the CA at `CA_ADDR`, signs.
const CITADEL: &str = "Citadel";
/// Google's CAs, for which pilot-agent had clients up to Istio 1.14.
const GOOGLE: [&str; 2] = ["GoogleCA", "GoogleCAS"];

/// Errors of `CA_PROVIDER`.
#[derive(Debug, thiserror::Error)]
pub enum CaProviderError {
    /// There is no such CA.
    #[error("CA_PROVIDER={0:?} is unknown: set it to {CITADEL} or {GKE}, or unset it")]
    Unknown(String),
    /// The agent has no client for this CA.
    #[error(
        "CA_PROVIDER={0} is not supported, because that CA signs only over Google's own API: \
         unset it, so that the control plane signs, or another CA with Istio's API at CA_ADDR; \
         or set it to {GKE}, if GKE mounts the certificates"
    )]
    Google(String),
}

/// Whether certificates can be requested from a provider, which may be unset.
///
/// # Errors
/// If there is no client for it.
pub(super) fn check(provider: &str) -> Result<(), CaProviderError> {
    match provider {
        "" | CITADEL => Ok(()),
        google if GOOGLE.contains(&google) => Err(CaProviderError::Google(google.to_owned())),
        other => Err(CaProviderError::Unknown(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_with_a_typo_is_rejected() {
        for known in ["", "Citadel"] {
            assert!(check(known).is_ok(), "{known:?}");
        }
        for unknown in ["citadel", "Citadell", "googleca"] {
            let error = check(unknown).unwrap_err().to_string();
            let named = format!("CA_PROVIDER={unknown:?} is unknown");
            assert!(error.starts_with(&named), "{error}");
        }
    }

    #[test]
    fn a_ca_of_google_is_rejected_with_what_to_do_instead() {
        for provider in ["GoogleCA", "GoogleCAS"] {
            let error = check(provider).unwrap_err().to_string();
            let named = format!("CA_PROVIDER={provider} is not supported");
            assert!(error.starts_with(&named), "{error}");
            assert!(error.contains("unset it"), "{error}");
        }
    }
}

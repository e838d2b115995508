//! Standards that restrict the TLS of proxies and of all ports.

use serde::{Deserialize, Serialize};

/// A standard that restricts TLS; see `navarch_net::cryptography`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompliancePolicy {
    /// The default: TLS is only restricted by mesh config and by objects.
    #[default]
    None,
    /// `fips-140-2`.
    Fips140v2,
    /// `fips-140-3`.
    Fips140v3,
    /// `pqc`: key exchange that resists quantum computers.
    PostQuantum,
}

impl CompliancePolicy {
    /// Parses a value of `COMPLIANCE_POLICY`; `None` if it is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::None),
            "fips-140-2" => Some(Self::Fips140v2),
            "fips-140-3" => Some(Self::Fips140v3),
            "pqc" => Some(Self::PostQuantum),
            _ => None,
        }
    }
}

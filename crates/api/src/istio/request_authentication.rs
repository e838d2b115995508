//! RequestAuthentication: the JWTs that a workload accepts.

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector};
use crate::duration::Duration;

/// `security.istio.io/RequestAuthentication`: accepted tokens. Requests with an invalid token are
/// rejected; requests without a token pass, and AuthorizationPolicies decide about them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RequestAuthentication {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Deprecated form of `target_refs`; `target_refs` takes precedence.
    pub target_ref: Option<PolicyTargetReference>,
    /// Gateways and services that the policy applies to. Mutually exclusive with `selector`.
    pub target_refs: Vec<PolicyTargetReference>,
    /// The accepted issuers and the location of their tokens.
    pub jwt_rules: Vec<JwtRule>,
}

/// Validation of the tokens of one issuer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct JwtRule {
    /// The required value of the claim `iss`.
    pub issuer: String,
    /// Accepted values of the claim `aud`; empty accepts any audience.
    pub audiences: Vec<String>,
    /// URL of the issuer's JWKS; empty uses OpenID Connect discovery at the issuer, unless `jwks`
    /// is set.
    pub jwks_uri: String,
    /// The issuer's public keys as an inline JWKS.
    pub jwks: String,
    /// Headers that contain the token. Without any location, `Authorization: Bearer` and
    /// `?access_token=` apply.
    pub from_headers: Vec<JwtHeader>,
    /// Query parameters that contain the token.
    pub from_params: Vec<String>,
    /// The header in which the application receives the claims, in base64; empty sends no header.
    pub output_payload_to_header: String,
    /// Cookies that contain the token.
    pub from_cookies: Vec<String>,
    /// Whether Envoy forwards the token to the application.
    pub forward_original_token: bool,
    /// Headers in which the application receives individual claims.
    pub output_claim_to_headers: Vec<ClaimToHeader>,
    /// Timeout for fetching the JWKS; unset means 5 s.
    pub timeout: Option<Duration>,
    /// Claims, besides `scope` and `permission`, whose values are space-delimited lists.
    pub space_delimited_claims: Vec<String>,
    /// Whether requests must carry a token of this issuer; those without a valid one are answered
    /// with 401, even if other rules are satisfied.
    pub presence: JwtPresence,
}

wire_enum! {
    /// Whether requests must carry a token.
    JwtPresence {
        /// Requests without a token are valid.
        Optional = 0, "OPTIONAL";
        /// Requests without a token are invalid.
        Required = 1, "REQUIRED";
    }
}

/// A header that contains a token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct JwtHeader {
    /// The header's name.
    pub name: String,
    /// The text before the token, including its trailing space.
    pub prefix: String,
}

/// A header that Envoy sets from a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimToHeader {
    /// The header's name.
    pub header: String,
    /// The claim; dots separate the names of nested claims.
    pub claim: String,
}

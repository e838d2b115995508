//! RequestAuthentication: which tokens a workload believes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector};
use crate::duration::Duration;

/// `security.istio.io/RequestAuthentication`: tokens that are believed. Requests with others are refused; requests without
/// any pass, and AuthorizationPolicies say what they may do.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestAuthentication {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// The old form of `target_refs`, which wins over this.
    pub target_ref: Option<PolicyTargetReference>,
    /// The gateways and services it is for. At most one of selector and targets is set.
    pub target_refs: Vec<PolicyTargetReference>,
    /// The issuers and where their tokens are.
    pub jwt_rules: Vec<JwtRule>,
}

/// The tokens of one issuer.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JwtRule {
    /// What the claim `iss` must say.
    pub issuer: String,
    /// What the claim `aud` may say; empty is anything.
    pub audiences: Vec<String>,
    /// Where the issuer's keys are; empty asks the issuer itself by OpenID Connect discovery, unless `jwks` is set.
    pub jwks_uri: String,
    /// The issuer's keys.
    pub jwks: String,
    /// Headers that hold the token. Without any place it is `Authorization: Bearer` and `?access_token=`.
    pub from_headers: Vec<JwtHeader>,
    /// Query parameters that hold the token.
    pub from_params: Vec<String>,
    /// The header in which the application gets the claims, in base64; empty is none.
    pub output_payload_to_header: String,
    /// Cookies that hold the token.
    pub from_cookies: Vec<String>,
    /// Whether the application gets the token.
    pub forward_original_token: bool,
    /// Headers in which the application gets single claims.
    pub output_claim_to_headers: Vec<ClaimToHeader>,
    /// How long fetching the keys may take; `None` is 5 s.
    pub timeout: Option<Duration>,
    /// Claims besides `scope` and `permission` that are lists with spaces.
    pub space_delimited_claims: Vec<String>,
    /// Whether requests must carry a token of this issuer. Read by nothing.
    pub presence: JwtPresence,
}

wire_enum! {
    /// Whether requests must carry a token.
    JwtPresence {
        /// They need not.
        Optional = 0, "OPTIONAL";
        /// They must.
        Required = 1, "REQUIRED";
    }
}

/// A header that holds a token.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JwtHeader {
    /// The header's name.
    pub name: String,
    /// What stands before the token, with its space.
    pub prefix: String,
}

/// A header that is made from a claim.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimToHeader {
    /// The header's name.
    pub header: String,
    /// The claim, its parts joined by dots.
    pub claim: String,
}

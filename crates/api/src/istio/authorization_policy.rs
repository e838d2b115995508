//! AuthorizationPolicy: access control for workloads.

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector};

/// `security.istio.io/AuthorizationPolicy`: rules, and the action on requests that match one of the
/// rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationPolicy {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Deprecated form of `target_refs`; `target_refs` takes precedence.
    pub target_ref: Option<PolicyTargetReference>,
    /// Gateways and services that the policy applies to. Mutually exclusive with `selector`.
    pub target_refs: Vec<PolicyTargetReference>,
    /// The policy matches a request if any rule matches. Without rules the policy matches no
    /// request.
    pub rules: Vec<AuthorizationRule>,
    /// The action on requests that match.
    pub action: AuthorizationAction,
    /// The extension provider that decides, for [`AuthorizationAction::Custom`] only.
    pub provider: Option<AuthorizationProvider>,
}

wire_enum! {
    /// The action on requests that match a policy.
    AuthorizationAction {
        /// Allows the request; if any `ALLOW` policy applies to the workload, requests that match
        /// none are denied.
        Allow = 0, "ALLOW";
        /// Denies the request, regardless of `ALLOW` policies.
        Deny = 1, "DENY";
        /// Marks the request for auditing.
        Audit = 2, "AUDIT";
        /// Delegates the decision to an extension provider.
        Custom = 3, "CUSTOM";
    }
}

/// The extension provider that decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationProvider {
    /// The provider's name in mesh config.
    pub name: String,
}

/// A rule: matches if one of its sources, one of its operations and all of its conditions match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationRule {
    /// Sources of the request; empty matches any source.
    pub from: Vec<AuthorizationFrom>,
    /// Operations of the request; empty matches any operation.
    pub to: Vec<AuthorizationTo>,
    /// Additional conditions, all of which must match.
    pub when: Vec<AuthorizationCondition>,
}

/// One source of a rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationFrom {
    /// The source; required by validation.
    pub source: Option<AuthorizationSource>,
}

/// One operation of a rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationTo {
    /// The operation; required by validation.
    pub operation: Option<AuthorizationOperation>,
}

/// Conditions on the client: one value of each list that is not empty must match, and no value of a
/// `not_` list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationSource {
    /// Identities of peers, without `spiffe://`; requires mutual TLS.
    pub principals: Vec<String>,
    /// Excluded identities of peers.
    pub not_principals: Vec<String>,
    /// Identities from JWTs, `issuer/subject`; requires a RequestAuthentication.
    pub request_principals: Vec<String>,
    /// Excluded identities from JWTs.
    pub not_request_principals: Vec<String>,
    /// Namespaces of peers; requires mutual TLS.
    pub namespaces: Vec<String>,
    /// Excluded namespaces of peers.
    pub not_namespaces: Vec<String>,
    /// Service accounts of peers, `account` or `namespace/account`; requires mutual TLS.
    pub service_accounts: Vec<String>,
    /// Excluded service accounts of peers.
    pub not_service_accounts: Vec<String>,
    /// Source IPs or CIDRs of connections.
    pub ip_blocks: Vec<String>,
    /// Excluded source IPs or CIDRs of connections.
    pub not_ip_blocks: Vec<String>,
    /// IPs or CIDRs of the original clients, which may be behind proxies.
    pub remote_ip_blocks: Vec<String>,
    /// Excluded IPs or CIDRs of the original clients.
    pub not_remote_ip_blocks: Vec<String>,
    /// Trust domains of peers; requires mutual TLS.
    pub trust_domains: Vec<String>,
    /// Excluded trust domains of peers.
    pub not_trust_domains: Vec<String>,
}

/// Conditions on the request: one value of each list that is not empty must match, and no value of
/// a `not_` list. For TCP only ports are available.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationOperation {
    /// Hosts of requests; matching ignores case.
    pub hosts: Vec<String>,
    /// Excluded hosts of requests.
    pub not_hosts: Vec<String>,
    /// Ports of the workload.
    pub ports: Vec<String>,
    /// Excluded ports of the workload.
    pub not_ports: Vec<String>,
    /// HTTP methods, such as `GET`.
    pub methods: Vec<String>,
    /// Excluded HTTP methods.
    pub not_methods: Vec<String>,
    /// Paths without query: exact, `prefix*`, `*suffix`, or templates with `{*}` and `{**}`.
    pub paths: Vec<String>,
    /// Excluded paths.
    pub not_paths: Vec<String>,
}

/// An additional condition on an attribute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationCondition {
    /// The attribute, such as `request.headers[x-token]`.
    pub key: String,
    /// Values, one of which must match the attribute.
    pub values: Vec<String>,
    /// Values, none of which may match the attribute.
    pub not_values: Vec<String>,
}

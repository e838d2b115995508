//! AuthorizationPolicy: who may do what at a workload.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector};

/// `security.istio.io/AuthorizationPolicy`: rules, and what becomes of requests that match one of them.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationPolicy {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// The old form of `target_refs`, which wins over this.
    pub target_ref: Option<PolicyTargetReference>,
    /// The gateways and services it is for. At most one of selector and targets is set.
    pub target_refs: Vec<PolicyTargetReference>,
    /// A request matches when any of these does. Without rules nothing matches.
    pub rules: Vec<AuthorizationRule>,
    /// What becomes of requests that match.
    pub action: AuthorizationAction,
    /// Who decides, for [`AuthorizationAction::Custom`] alone.
    pub provider: Option<AuthorizationProvider>,
}

wire_enum! {
    /// What becomes of requests that match a policy.
    AuthorizationAction {
        /// They are let in; where any such policy holds, nobody else is.
        Allow = 0, "ALLOW";
        /// They are refused, whoever allows them.
        Deny = 1, "DENY";
        /// They are marked for auditing.
        Audit = 2, "AUDIT";
        /// An extension provider decides.
        Custom = 3, "CUSTOM";
    }
}

/// The extension provider that decides.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationProvider {
    /// Its name in mesh config.
    pub name: String,
}

/// A rule: it matches when one of its sources, one of its operations and all of its conditions do.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationRule {
    /// Who may ask; empty is anybody.
    pub from: Vec<AuthorizationFrom>,
    /// What may be asked; empty is anything.
    pub to: Vec<AuthorizationTo>,
    /// What must hold besides.
    pub when: Vec<AuthorizationCondition>,
}

/// One source.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationFrom {
    /// The source; valid policies have one.
    pub source: Option<AuthorizationSource>,
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationTo {
    /// The operation; valid policies have one.
    pub operation: Option<AuthorizationOperation>,
}

/// Who asks: each list that is not empty must hold a value that matches, each `not_` list none.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationSource {
    /// Identities of peers, without `spiffe://`; needs mutual TLS.
    pub principals: Vec<String>,
    /// Identities of peers that do not match.
    pub not_principals: Vec<String>,
    /// Identities in tokens, `issuer/subject`; needs request authentication.
    pub request_principals: Vec<String>,
    /// Identities in tokens that do not match.
    pub not_request_principals: Vec<String>,
    /// Namespaces of peers; needs mutual TLS.
    pub namespaces: Vec<String>,
    /// Namespaces of peers that do not match.
    pub not_namespaces: Vec<String>,
    /// Service accounts of peers, `account` or `namespace/account`; needs mutual TLS.
    pub service_accounts: Vec<String>,
    /// Service accounts of peers that do not match.
    pub not_service_accounts: Vec<String>,
    /// Addresses that connections come from.
    pub ip_blocks: Vec<String>,
    /// Addresses that connections do not come from.
    pub not_ip_blocks: Vec<String>,
    /// Addresses of clients, which may stand behind proxies.
    pub remote_ip_blocks: Vec<String>,
    /// Addresses of clients that do not match.
    pub not_remote_ip_blocks: Vec<String>,
    /// Trust domains of peers; needs mutual TLS.
    pub trust_domains: Vec<String>,
    /// Trust domains of peers that do not match.
    pub not_trust_domains: Vec<String>,
}

/// What is asked: each list that is not empty must hold a value that matches, each `not_` list none. Only ports are known of
/// TCP.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationOperation {
    /// Hosts of requests, case aside.
    pub hosts: Vec<String>,
    /// Hosts that do not match.
    pub not_hosts: Vec<String>,
    /// Ports of the workload.
    pub ports: Vec<String>,
    /// Ports that do not match.
    pub not_ports: Vec<String>,
    /// HTTP methods.
    pub methods: Vec<String>,
    /// HTTP methods that do not match.
    pub not_methods: Vec<String>,
    /// Paths without query: exact, `prefix*`, `*suffix`, or templates with `{*}` and `{**}`.
    pub paths: Vec<String>,
    /// Paths that do not match.
    pub not_paths: Vec<String>,
}

/// Something else that must hold.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationCondition {
    /// The attribute, such as `request.headers[x-token]`.
    pub key: String,
    /// One of these matches it.
    pub values: Vec<String>,
    /// None of these does.
    pub not_values: Vec<String>,
}

//! The kinds of objects that steps edit, and which objects a record of a namespace may name.

use super::objects::ObjectName;

/// The longest name of an object, in bytes.
const MAX_NAME: usize = 253;

/// What an object that steps edit is for them: it decides which edits of it steps make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The namespace that moves. Steps set labels.
    Namespace,
    /// A Gateway, the waypoint. Steps create it.
    Waypoint,
    /// An AuthorizationPolicy. Steps create copies, and change rules.
    Authorization,
    /// A RequestAuthentication. Steps create copies.
    Authentication,
    /// A workload. Steps restart it without sidecars.
    Workload,
}

/// A kind that steps edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditedKind {
    pub(crate) role: Role,
    /// The API group; empty for Kubernetes' core.
    pub group: &'static str,
    /// The API version that steps write, such as `v1`.
    pub version: &'static str,
    /// Such as `Gateway`.
    pub kind: &'static str,
    /// As it stands in URLs of the API server, such as `gateways`.
    pub plural: &'static str,
}

/// A kind in the version `v1`.
const fn first_version(
    role: Role,
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> EditedKind {
    EditedKind {
        role,
        group,
        version: "v1",
        kind,
        plural,
    }
}

const fn authorization(version: &'static str) -> EditedKind {
    EditedKind {
        role: Role::Authorization,
        group: SECURITY,
        version,
        kind: "AuthorizationPolicy",
        plural: "authorizationpolicies",
    }
}

const fn authentication(version: &'static str) -> EditedKind {
    EditedKind {
        role: Role::Authentication,
        group: SECURITY,
        version,
        kind: "RequestAuthentication",
        plural: "requestauthentications",
    }
}

const SECURITY: &str = "security.istio.io";
const GATEWAY_API: &str = "gateway.networking.k8s.io";

/// All of them, in the versions in which a cluster is read.
static ALL: [EditedKind; 9] = [
    first_version(Role::Namespace, "", "Namespace", "namespaces"),
    first_version(Role::Waypoint, GATEWAY_API, "Gateway", "gateways"),
    authorization("v1"),
    authorization("v1beta1"),
    authentication("v1"),
    authentication("v1beta1"),
    first_version(Role::Workload, "apps", "Deployment", "deployments"),
    first_version(Role::Workload, "apps", "StatefulSet", "statefulsets"),
    first_version(Role::Workload, "apps", "DaemonSet", "daemonsets"),
];

impl EditedKind {
    /// The kind of an object, if steps edit it. The whole `apiVersion` is compared, as a part of it
    /// would become a part of a URL.
    #[must_use]
    pub fn of(object: &ObjectName) -> Option<&'static Self> {
        ALL.iter().find(|known| {
            let is_of_version = match object.api_version.split_once('/') {
                Some((group, version)) => {
                    !group.is_empty() && group == known.group && version == known.version
                }
                None => known.group.is_empty() && object.api_version == known.version,
            };
            is_of_version && object.kind == known.kind
        })
    }
}

/// The role of an object that the record of a namespace names; `None` if it may not name it. It may
/// name objects in the namespace of the kinds that steps edit, and the Namespace itself.
pub(crate) fn role_in_record(object: &ObjectName, namespace: &str) -> Option<Role> {
    let role = EditedKind::of(object)?.role;
    let is_placed = match role {
        Role::Namespace => object.namespace.is_empty() && object.name == namespace,
        Role::Waypoint | Role::Authorization | Role::Authentication | Role::Workload => {
            object.namespace == namespace
        }
    };
    (is_placed && is_subdomain(&object.name)).then_some(role)
}

/// Whether a text is a DNS subdomain (RFC 1123), as names of objects are.
fn is_subdomain(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes
                .iter()
                .all(|byte| is_edge(Some(byte)) || *byte == b'-')
    };
    text.len() <= MAX_NAME && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectName {
        ObjectName {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn records_name_objects_of_their_namespace_in_whole_versions() {
        let policy = |version: &str, namespace: &str, name: &str| {
            object(version, "AuthorizationPolicy", namespace, name)
        };
        for allowed in [
            object("v1", "Namespace", "", "shop"),
            object("apps/v1", "Deployment", "shop", "web"),
            policy("security.istio.io/v1", "shop", "deny"),
            policy("security.istio.io/v1beta1", "shop", "a.b-c"),
        ] {
            assert!(role_in_record(&allowed, "shop").is_some(), "{allowed:?}");
        }

        let path = "security.istio.io/v1/namespaces/bank/authorizationpolicies/deny?x=";
        for foreign in [
            policy(path, "shop", "deny"),
            policy("/v1", "shop", "deny"),
            policy("v1", "shop", "deny"),
            policy("security.istio.io/v1", "bank", "deny"),
            policy("security.istio.io/v1", "", "deny"),
            policy("security.istio.io/v1", "shop", "../../bank/x"),
            policy("security.istio.io/v1", "shop", "deny?x="),
            policy("security.istio.io/v1", "shop", "Deny"),
            policy("security.istio.io/v1", "shop", ""),
            policy("security.istio.io/v1", "shop", "a..b"),
            policy("security.istio.io/v1", "shop", &"a".repeat(254)),
            object("v1", "Namespace", "", "bank"),
            object("v1", "Namespace", "shop", "shop"),
            object("v1", "Secret", "shop", "token"),
        ] {
            assert!(role_in_record(&foreign, "shop").is_none(), "{foreign:?}");
        }
    }
}

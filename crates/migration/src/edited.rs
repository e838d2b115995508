//! The kinds of objects that steps edit, and which objects a record of a namespace may name.

use super::objects::ObjectName;

/// The longest name of an object, in bytes.
const MAX_NAME: usize = 253;

/// A kind that steps edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditedKind {
    /// The API group; empty for Kubernetes' core.
    pub group: &'static str,
    /// The API version that steps write, such as `v1`.
    pub version: &'static str,
    /// Such as `Gateway`.
    pub kind: &'static str,
    /// As it stands in URLs of the API server, such as `gateways`.
    pub plural: &'static str,
}

const fn edited(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> EditedKind {
    EditedKind {
        group,
        version,
        kind,
        plural,
    }
}

const SECURITY: &str = "security.istio.io";
const AUTHORIZATION: (&str, &str) = ("AuthorizationPolicy", "authorizationpolicies");
const AUTHENTICATION: (&str, &str) = ("RequestAuthentication", "requestauthentications");

/// All of them, in the versions in which a cluster is read.
static ALL: [EditedKind; 9] = [
    edited("", "v1", "Namespace", "namespaces"),
    edited("gateway.networking.k8s.io", "v1", "Gateway", "gateways"),
    edited(SECURITY, "v1", AUTHORIZATION.0, AUTHORIZATION.1),
    edited(SECURITY, "v1beta1", AUTHORIZATION.0, AUTHORIZATION.1),
    edited(SECURITY, "v1", AUTHENTICATION.0, AUTHENTICATION.1),
    edited(SECURITY, "v1beta1", AUTHENTICATION.0, AUTHENTICATION.1),
    edited("apps", "v1", "Deployment", "deployments"),
    edited("apps", "v1", "StatefulSet", "statefulsets"),
    edited("apps", "v1", "DaemonSet", "daemonsets"),
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

/// Whether the record of a namespace may name an object: one in the namespace of a kind that steps
/// edit, or the Namespace itself.
pub(crate) fn is_of_record(object: &ObjectName, namespace: &str) -> bool {
    let Some(kind) = EditedKind::of(object) else {
        return false;
    };
    let is_placed = if kind.kind == "Namespace" {
        object.namespace.is_empty() && object.name == namespace
    } else {
        object.namespace == namespace
    };
    is_placed && is_subdomain(&object.name)
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
            assert!(is_of_record(&allowed, "shop"), "{allowed:?}");
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
            assert!(!is_of_record(&foreign, "shop"), "{foreign:?}");
        }
    }
}

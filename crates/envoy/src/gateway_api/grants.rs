//! Grants of references to objects of other namespaces.

use std::collections::{BTreeMap, BTreeSet};

use navarch_api::gateway_api::{self, ReferenceGrant};
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// A kind with references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Referrer {
    Gateway,
    ListenerSet,
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    TcpRoute,
}

/// A kind in grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Referent {
    ConfigMap,
    Secret,
    Service,
    XBackend,
    InferencePool,
}

/// References from one kind in one namespace to another kind in another namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Reference {
    /// The referring kind.
    pub(super) from: Referrer,
    pub(super) from_namespace: Namespace,
    /// The referenced kind.
    pub(super) to: Referent,
    pub(super) to_namespace: Namespace,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllGrants;

/// The grants of one kind of references.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Granted(Reference);

/// The objects that may be referenced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    /// All of the kind.
    all: bool,
    /// Objects of these names.
    named: BTreeSet<String>,
}

impl Referrer {
    fn parse(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            (gateway_api::GROUP, "Gateway") => Some(Self::Gateway),
            (gateway_api::GROUP, "ListenerSet") => Some(Self::ListenerSet),
            (gateway_api::GROUP, "HTTPRoute") => Some(Self::HttpRoute),
            (gateway_api::GROUP, "GRPCRoute") => Some(Self::GrpcRoute),
            (gateway_api::GROUP, "TLSRoute") => Some(Self::TlsRoute),
            (gateway_api::GROUP, "TCPRoute") => Some(Self::TcpRoute),
            _ => None,
        }
    }
}

impl Referent {
    pub(super) fn parse(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("", "ConfigMap") => Some(Self::ConfigMap),
            ("", "Secret") => Some(Self::Secret),
            ("", "Service") => Some(Self::Service),
            (gateway_api::EXPERIMENTAL_GROUP, "XBackend") => Some(Self::XBackend),
            (gateway_api::INFERENCE_GROUP, "InferencePool") => Some(Self::InferencePool),
            _ => None,
        }
    }
}

impl Query for AllGrants {
    type Value = BTreeMap<Reference, Names>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut granted = Self::Value::new();

        for grant in view.list_all::<ReferenceGrant>() {
            for from in &grant.spec.from {
                let Some(referrer) = Referrer::parse(&from.group, &from.kind) else {
                    continue;
                };

                for to in &grant.spec.to {
                    let Some(referent) = Referent::parse(&to.group, &to.kind) else {
                        continue;
                    };

                    let names = granted
                        .entry(Reference {
                            from: referrer,
                            from_namespace: Namespace::new(&from.namespace),
                            to: referent,
                            to_namespace: grant.meta.key.namespace.clone(),
                        })
                        .or_default();

                    match &to.name {
                        None => names.all = true,
                        Some(name) => _ = names.named.insert(name.clone()),
                    }
                }
            }
        }

        granted
    }
}

impl Query for Granted {
    type Value = Names;

    fn compute(&self, view: &View<'_>) -> Names {
        view.get(&AllGrants)
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

/// Whether a grant allows objects of this kind and namespace to reference a Secret of another
/// namespace. Conditions and the secrets that proxies get must both depend on this.
pub(crate) fn allows_secret(
    view: &View<'_>,
    from: Referrer,
    from_namespace: &Namespace,
    secret: &NamespacedName,
) -> bool {
    let reference = Reference {
        from,
        from_namespace: from_namespace.clone(),
        to: Referent::Secret,
        to_namespace: secret.namespace.clone(),
    };
    allows(view, reference, &secret.name)
}

/// Whether a grant allows a reference to this object.
pub(super) fn allows(view: &View<'_>, reference: Reference, name: &str) -> bool {
    let granted = view.get(&Granted(reference));
    granted.all || granted.named.contains(name)
}

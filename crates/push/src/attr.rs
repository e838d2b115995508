//! Attributes: the properties of a proxy that translators can read, each recorded with its value.

use std::net::IpAddr;
use std::sync::Arc;

use super::namespace_list::NamespaceList;
use super::proxy::{IpFamilies, Locality, Proxy, ProxyKind};
use navarch_api::identity::Identity;
use navarch_registry::model::Labels;

/// An attribute of a proxy. The more specific the attribute, the more proxies share its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attr {
    /// Sidecar, router, waypoint…
    Kind,
    /// The configuration namespace.
    Namespace,
    /// The configuration namespace if it is one of these, else absent.
    NamespaceAmong(NamespaceList),
    /// All addresses, first is primary.
    Ips,
    /// The IP families of its addresses.
    Families,
    /// `<pod>.<namespace>` of the node id.
    Name,
    /// The DNS domain of the node id.
    DnsDomain,
    /// `node.cluster`.
    ServiceCluster,
    /// One key of the node metadata, scalars as text, others as JSON text.
    Meta(Arc<str>),
    /// Whether a metadata key is this text.
    HasText(Arc<str>, Arc<str>),
    /// All labels in the node metadata (`LABELS`).
    MetaLabels,
    /// The whole node metadata as JSON text. Splits proxies finely: for EnvoyFilter's metadata
    /// match and debugging only.
    AllMeta,
    /// `node.locality` of the request.
    Locality,
    /// Whether it supports this Envoy extension.
    Supports(Arc<str>),
    /// Whether its stream is delta xDS.
    TakesDeltas,
    /// The namespace of the stream's verified identity, if any.
    VerifiedNamespace,
    /// The verified identity of the stream, if any.
    Identity,
    /// Whether its scope was learned when its stream started.
    LearnedScope,
}

/// The value of an [`Attr`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttrValue {
    /// The attribute is absent.
    Absent,
    /// The value of `HasText`, `Supports`, `TakesDeltas` and `LearnedScope`.
    Bool(bool),
    /// A namespace, a name, a DNS domain, or metadata: scalars as text, others as JSON.
    Text(Arc<str>),
    /// A verified identity.
    Identity(Identity),
    /// A type of proxy.
    Kind(ProxyKind),
    /// Addresses.
    Ips(Arc<[IpAddr]>),
    /// Whether the proxy has IPv4 and IPv6 addresses, and which come first.
    Families(IpFamilies),
    /// `LABELS` of the metadata; empty if there are none.
    Labels(Arc<Labels>),
    /// Region, zone and subzone of the node message; empty texts if it has no locality.
    Locality(Locality),
}

impl Attr {
    /// The value of the attribute for a proxy.
    #[must_use]
    pub fn of(&self, proxy: &Proxy) -> AttrValue {
        match self {
            Self::Kind => AttrValue::Kind(proxy.kind),
            Self::Namespace => AttrValue::Text(Arc::from(proxy.namespace.as_str())),
            Self::NamespaceAmong(namespaces) => match namespaces.contains(&proxy.namespace) {
                true => AttrValue::Text(Arc::from(proxy.namespace.as_str())),
                false => AttrValue::Absent,
            },

            Self::Ips => AttrValue::Ips(proxy.ips.clone()),
            Self::Families => AttrValue::Families(proxy.families()),
            Self::Name => AttrValue::Text(proxy.name.clone()),
            Self::DnsDomain => AttrValue::Text(proxy.dns_domain.clone()),
            Self::ServiceCluster => AttrValue::Text(proxy.service_cluster.clone()),

            Self::Meta(key) => proxy
                .meta(key)
                .map_or(AttrValue::Absent, |text| AttrValue::Text(Arc::from(text))),
            Self::HasText(key, value) => {
                let found = proxy
                    .metadata
                    .get(&**key)
                    .and_then(serde_json::Value::as_str);
                AttrValue::Bool(found == Some(&**value))
            }
            Self::MetaLabels => AttrValue::Labels(proxy.labels.clone()),
            Self::AllMeta => AttrValue::Text(Arc::from(proxy.metadata.to_string())),

            Self::Locality => AttrValue::Locality(proxy.locality.clone()),
            Self::Supports(extension) => AttrValue::Bool(proxy.supports(extension)),
            Self::TakesDeltas => AttrValue::Bool(proxy.uses_delta),

            Self::LearnedScope => AttrValue::Bool(proxy.has_learned_scope),

            Self::VerifiedNamespace => match &proxy.identity {
                Some(identity) => AttrValue::Text(Arc::from(identity.namespace.as_str())),
                None => AttrValue::Absent,
            },
            Self::Identity => proxy
                .identity
                .clone()
                .map_or(AttrValue::Absent, AttrValue::Identity),
        }
    }
}

//! Names that cross function borders, each a separate type so that the compiler distinguishes them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::shared_texts::{HasTexts, SharedTexts};

/// The longest label of a name of an object in Kubernetes, in bytes.
const MAX_LABEL: usize = 63;
/// The longest name of an object in Kubernetes, in bytes.
const MAX_NAME: usize = 253;

/// Whether a text can be the name of a namespace in Kubernetes: a label of RFC 1123 in lower case.
#[must_use]
pub fn is_kubernetes_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_label(text)
}

/// Whether a text can be the name of an object in Kubernetes: a subdomain of RFC 1123 in lower
/// case. Such a name needs no escaping in a path.
#[must_use]
pub fn is_kubernetes_name(text: &str) -> bool {
    text.len() <= MAX_NAME && text.split('.').all(is_label)
}

/// The same, except for the length.
fn is_label(text: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_edge)
        && bytes.last().is_some_and(is_edge)
        && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
}

/// Declares a cheap-to-clone name: `Arc<str>` inside, ordered and printed as its text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps text that was validated before.
            #[must_use]
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            /// The wire form.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the name is the empty text.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Whether both share one text, so that they need not be compared.
            #[must_use]
            #[inline]
            pub fn is_same_text(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
            }
        }

        impl From<Arc<str>> for $name {
            /// Wraps shared text.
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self(Arc::default())
            }
        }

        impl HasTexts for $name {
            fn share(&mut self, texts: &mut SharedTexts) {
                texts.share(&mut self.0);
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::new)
            }
        }
    };
}

name! {
    /// A Kubernetes namespace. Empty for cluster-scoped objects.
    Namespace
}
name! {
    /// A host in Istio's sense: a DNS name, `*`, or `*.` and a suffix.
    Hostname
}
name! {
    /// The id of a Kubernetes cluster; the default is `Kubernetes`.
    ClusterId
}
name! {
    /// The id of an L3 network in a multi-network mesh; empty when there is one network only.
    NetworkId
}
name! {
    /// A SPIFFE trust domain, such as `cluster.local`.
    TrustDomain
}
name! {
    /// The name of a Kubernetes ServiceAccount (not its SPIFFE id).
    ServiceAccount
}
name! {
    /// The name of one port of a service.
    PortName
}
name! {
    /// The name of an xDS resource, such as `outbound|80||reviews.shop.svc.cluster.local`.
    ResourceName
}

impl TrustDomain {
    /// As it stands in SPIFFE ids, which cannot contain the `@` of a Google service account.
    #[must_use]
    pub fn in_ids(trust_domain: &str) -> Self {
        Self::new(trust_domain.replace('@', "."))
    }
}

impl Hostname {
    /// Whether this is `*` or starts with `*`.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with('*')
    }
}

//! The object that a secret's resource name refers to.

use std::sync::Arc;

use crate::sds::{
    CA_SUFFIX, CONFIG_MAP_PREFIX, GATEWAY_SECRET_PREFIX, INVALID_PREFIX, SECRET_PREFIX,
};
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;

/// An object with keys, certificates or roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) store: Store,
    /// Its name, including the suffix for roots.
    pub(crate) name: Arc<str>,
}

/// The store of keys, certificates or roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// A Secret of the proxy's own namespace. If the name contains a namespace, it must be the
    /// same.
    Secret(Option<Namespace>),
    /// A Secret that a Gateway of the Gateway API references.
    GatewaySecret(Namespace),
    ConfigMap(Namespace),
}

/// Errors of parsing a resource name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReferenceError {
    /// The prefix is unknown.
    #[error(
        "{0:?} is not a secret name: the scheme must be kubernetes://, kubernetes-gateway:// or configmap://"
    )]
    Unknown(String),
    /// Namespace or name is missing.
    #[error("{0:?} is not a secret name: it must end in <namespace>/<name>")]
    Incomplete(String),
}

impl Reference {
    /// Parses a resource name; `None` for the reserved name that means no secret.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, ReferenceError> {
        if text.starts_with(INVALID_PREFIX) {
            return Ok(None);
        }

        if let Some(rest) = text.strip_prefix(SECRET_PREFIX) {
            let mut parts = rest.split('/');
            let first = parts.next().unwrap_or_default();
            return Ok(Some(match parts.next() {
                None => Self {
                    store: Store::Secret(None),
                    name: Arc::from(first),
                },
                Some(name) => Self {
                    store: Store::Secret(Some(Namespace::new(first))),
                    name: Arc::from(name),
                },
            }));
        }

        let full = |rest: &str, store: fn(Namespace) -> Store| {
            let mut parts = rest.split('/').filter(|part| !part.is_empty());
            match (parts.next(), parts.next()) {
                (Some(namespace), Some(name)) if !rest.starts_with('/') => Ok(Some(Self {
                    store: store(Namespace::new(namespace)),
                    name: Arc::from(name),
                })),
                _ => Err(ReferenceError::Incomplete(shown(text))),
            }
        };

        if let Some(rest) = text.strip_prefix(GATEWAY_SECRET_PREFIX) {
            full(rest, Store::GatewaySecret)
        } else if let Some(rest) = text.strip_prefix(CONFIG_MAP_PREFIX) {
            full(rest, Store::ConfigMap)
        } else {
            Err(ReferenceError::Unknown(shown(text)))
        }
    }

    /// Whether only roots are requested, which are public.
    pub(crate) fn is_roots(&self) -> bool {
        self.name.ends_with(CA_SUFFIX)
    }
}

/// The start of a name, for messages.
fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}

/// The object's name without the suffix for its roots.
pub(crate) fn without_suffix(name: &NamespacedName) -> NamespacedName {
    let plain = name.name.strip_suffix(CA_SUFFIX).unwrap_or(&name.name);
    NamespacedName::of(name.namespace.clone(), Arc::from(plain))
}

/// The Secret that the Gateway API references by this resource name.
pub(crate) fn gateway_secret(resource_name: &str) -> Option<NamespacedName> {
    let reference = Reference::parse(resource_name).ok()??;
    match reference.store {
        Store::GatewaySecret(namespace) => Some(NamespacedName::of(namespace, reference.name)),
        Store::Secret(_) | Store::ConfigMap(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_where_secrets_are_kept() {
        let found = |store: Store, name: &str| {
            Ok(Some(Reference {
                store,
                name: Arc::from(name),
            }))
        };

        let shop = || Namespace::new("shop");
        assert_eq!(
            Reference::parse("kubernetes://web"),
            found(Store::Secret(None), "web")
        );
        assert_eq!(
            Reference::parse("kubernetes://shop/web-cacert"),
            found(Store::Secret(Some(shop())), "web-cacert")
        );

        assert_eq!(
            Reference::parse("kubernetes-gateway://shop/web"),
            found(Store::GatewaySecret(shop()), "web")
        );
        assert_eq!(
            Reference::parse("configmap://shop/ca-cacert"),
            found(Store::ConfigMap(shop()), "ca-cacert")
        );

        assert_eq!(Reference::parse("invalid://"), Ok(None));
    }

    #[test]
    fn other_names_are_rejected() {
        for name in [
            "web",
            "sds://web",
            "default",
            "ROOTCA",
            "configmap://web",
            "configmap:///web",
            "kubernetes-gateway://a/",
        ] {
            assert!(Reference::parse(name).is_err(), "{name}");
        }
    }
}

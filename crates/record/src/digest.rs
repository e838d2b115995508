//! The digest of a collection: a sum over its resources, so that updating it costs what differs.
//!
//! Resources that depend on Secrets are included by name only: a recording has no secrets, so a
//! replay builds different bytes.

use memchr::memmem;
use sha2::{Digest as _, Sha256};

use navarch_push::resource::{Collection, Resource, ResourceType};

/// The variable of Wasm filters that carries the credentials of their image.
const PULL_SECRET: &[u8] = b"ISTIO_META_WASM_IMAGE_PULL_SECRET";

/// The digest of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(u128);

impl Digest {
    /// Computes the digest of a collection.
    pub(crate) fn of(collection: &Collection) -> Self {
        let resources = collection.resources.iter().map(|resource| part(resource));
        let unknown = collection.unknown.iter().flat_map(|names| names.iter());
        let unknown = unknown.map(|name| hash(&[b"unknown", name.as_str().as_bytes()]));
        Self(resources.chain(unknown).fold(0, u128::wrapping_add))
    }

    /// Computes the digest incrementally from that of the previous collection.
    pub(crate) fn after(self, before: &Collection, now: &Collection) -> Self {
        if before.unknown.is_some() || now.unknown.is_some() {
            return Self::of(now);
        }
        let [old, new] = before.resources.apart(&now.resources);
        let less = old.fold(self.0, |sum, resource| sum.wrapping_sub(part(resource)));
        Self(new.fold(less, |sum, resource| sum.wrapping_add(part(resource))))
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Whether the content of a resource depends on a Secret, or has data that recordings omit.
pub(crate) fn depends_on_secrets(resource: &Resource) -> bool {
    match resource.resource_type {
        // Statuses report errors of certificates.
        ResourceType::Secret | ResourceType::ObjectStatus => true,
        // Objects are recorded with all their annotations.
        ResourceType::Object(_) => true,
        ResourceType::ExtensionConfig => memmem::find(&resource.body, PULL_SECRET).is_some(),
        ResourceType::Cluster
        | ResourceType::Endpoint
        | ResourceType::Listener
        | ResourceType::Route
        | ResourceType::VirtualHost
        | ResourceType::NameTable
        | ResourceType::ProxyConfig
        | ResourceType::Bootstrap
        | ResourceType::Locality
        | ResourceType::Address
        | ResourceType::Workload
        | ResourceType::Authorization => false,
    }
}

/// The summand of one resource.
fn part(resource: &Resource) -> u128 {
    let name = resource.name.as_str().as_bytes();
    if depends_on_secrets(resource) {
        hash(&[name])
    } else {
        hash(&[name, resource.version.bytes()])
    }
}

/// The first 128 bits of the SHA-256 of parts, each with its length.
fn hash(parts: &[&[u8]]) -> u128 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    let all = hasher.finalize();
    all.iter()
        .take(16)
        .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use navarch_api::names::ResourceName;
    use navarch_push::resources::Resources;

    use super::*;

    fn collection(resource_type: ResourceType, resources: &[(&str, &str)]) -> Collection {
        let one = |(name, body): &(&str, &str)| {
            Arc::new(Resource::new(
                resource_type,
                ResourceName::new(name),
                Bytes::copy_from_slice(body.as_bytes()),
            ))
        };
        Collection::new(
            resource_type,
            resources.iter().map(one).collect::<Resources>(),
        )
    }

    #[test]
    fn an_incremental_digest_equals_the_full_digest() {
        let cds = ResourceType::Cluster;
        let before = collection(cds, &[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = collection(cds, &[("a", "1"), ("b", "2"), ("d", "1")]);
        let digest = Digest::of(&before);
        assert_eq!(digest.after(&before, &after), Digest::of(&after));
        assert_ne!(digest, Digest::of(&after));
        assert_ne!(
            Digest::of(&collection(cds, &[("a", "b")])),
            Digest::of(&collection(cds, &[("ab", "")]))
        );
    }

    #[test]
    fn digests_of_secrets_depend_only_on_names() {
        let sds = ResourceType::Secret;
        let digests = [&[("a", "1")], &[("a", "2")], &[("b", "1")]]
            .map(|all| Digest::of(&collection(sds, all)));
        assert_eq!(digests[0], digests[1]);
        assert_ne!(digests[0], digests[2]);
    }
}

//! Interns names and versions as numbers: thousands of proxies have the same ones.

use std::hash::Hasher as _;

use bytes::Bytes;
use navarch_base::resource_version::Version;
use parking_lot::{RwLock, RwLockReadGuard};
use rustc_hash::{FxHashMap, FxHasher};

use crate::xds::resource_type::ResourceType;
use crate::xds::wire::ReceivedResource;

/// The number of a name within its type, or of a version. Numbers are small, so that proxies can
/// use them as indices of vectors.
pub(crate) type Id = u32;

/// The number that is never assigned.
pub(crate) const UNASSIGNED: Id = 0;

/// All names so far, shared by all proxies.
#[derive(Debug, Default)]
pub(crate) struct Names(RwLock<Texts>);

/// The texts of all numbers.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Names by type.
    names: [Table; 5],
    versions: Table,
    /// The numbers of versions by a hash of the content, for resources that come without: thousands
    /// of proxies receive the same content, and its digest is computed once.
    of_contents: FxHashMap<u64, Id>,
}

/// Texts by number and numbers by text.
#[derive(Debug, Default)]
struct Table {
    /// The number of each text.
    ids: FxHashMap<Bytes, Id>,
    /// The texts; the first has number 1.
    texts: Vec<Bytes>,
}

impl Names {
    /// The numbers of names of a type, in the same order.
    pub(crate) fn ids(&self, resource_type: ResourceType, names: &[&[u8]]) -> Vec<Id> {
        if names.is_empty() {
            return Vec::new();
        }
        if let Some(ids) = self
            .0
            .read()
            .of(resource_type)
            .and_then(|table| names.iter().map(|name| table.known(name)).collect())
        {
            return ids;
        }
        let mut texts = self.0.write();
        let table = texts.of_mut(resource_type);
        names.iter().map(|name| table.id(name)).collect()
    }

    /// The numbers of the names and versions of resources, in the same order.
    pub(crate) fn numbers(
        &self,
        resource_type: ResourceType,
        received: &[ReceivedResource<'_>],
    ) -> Vec<(Id, Id)> {
        {
            let texts = self.0.read();
            let names = texts.of(resource_type);
            let known = |received: &ReceivedResource<'_>| {
                Some((names?.known(received.name)?, texts.known_version(received)?))
            };
            if let Some(known) = received.iter().map(known).collect() {
                return known;
            }
        }

        let mut texts = self.0.write();
        received
            .iter()
            .map(|received| {
                (
                    texts.of_mut(resource_type).id(received.name),
                    texts.version_of(received),
                )
            })
            .collect()
    }

    /// The texts, locked while the guard exists.
    pub(crate) fn texts(&self) -> RwLockReadGuard<'_, Texts> {
        self.0.read()
    }
}

impl Texts {
    /// A resource's name; empty if the number was not given out.
    pub(crate) fn name(&self, resource_type: ResourceType, id: Id) -> &[u8] {
        self.of(resource_type)
            .map(|table| table.text(id))
            .unwrap_or_default()
    }

    pub(crate) fn version(&self, id: Id) -> &[u8] {
        self.versions.text(id)
    }

    /// The number of a resource's version that has one.
    fn known_version(&self, received: &ReceivedResource<'_>) -> Option<Id> {
        if received.version.is_empty() {
            return self.of_contents.get(&hash(received.content)).copied();
        }
        self.versions.known(received.version)
    }

    /// The number of a resource's version; of the digest of its content if it comes without.
    fn version_of(&mut self, received: &ReceivedResource<'_>) -> Id {
        if let Some(id) = self.known_version(received) {
            return id;
        }
        if !received.version.is_empty() {
            return self.versions.id(received.version);
        }

        let version = Version::of(received.content).to_string();
        let id = self.versions.id(version.as_bytes());
        self.of_contents.insert(hash(received.content), id);
        id
    }

    /// The names of a type.
    fn of(&self, resource_type: ResourceType) -> Option<&Table> {
        self.names.get(resource_type.index())
    }

    /// The names of a type, mutable.
    fn of_mut(&mut self, resource_type: ResourceType) -> &mut Table {
        let [clusters, endpoints, listeners, routes, hosts] = &mut self.names;
        match resource_type {
            ResourceType::Clusters => clusters,
            ResourceType::Endpoints => endpoints,
            ResourceType::Listeners => listeners,
            ResourceType::Routes => routes,
            ResourceType::VirtualHosts => hosts,
        }
    }
}

impl Table {
    /// The number of a text that has one.
    fn known(&self, text: &[u8]) -> Option<Id> {
        self.ids.get(text).copied()
    }

    /// The number of a text, a new one if it has none.
    fn id(&mut self, text: &[u8]) -> Id {
        if let Some(id) = self.known(text) {
            return id;
        }
        let text = Bytes::copy_from_slice(text);
        self.texts.push(text.clone());
        let id = Id::try_from(self.texts.len()).unwrap_or(Id::MAX);
        self.ids.insert(text, id);
        id
    }

    fn text(&self, id: Id) -> &[u8] {
        let place = (id as usize).checked_sub(1);
        place
            .and_then(|place| self.texts.get(place))
            .map(|text| text.as_ref())
            .unwrap_or_default()
    }
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(content);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_among_those_of_its_type() {
        let names = Names::default();
        assert_eq!(
            names.ids(ResourceType::Clusters, &[b"a", b"b", b"a"]),
            [1, 2, 1]
        );
        assert_eq!(names.ids(ResourceType::Clusters, &[b"b"]), [2]);
        assert_eq!(names.ids(ResourceType::Routes, &[b"b"]), [1]);
        let received = |name, version| ReceivedResource {
            name,
            version,
            content: &[],
        };

        assert_eq!(
            names.numbers(
                ResourceType::Clusters,
                &[received(b"c", b"v"), received(b"a", b"v")]
            ),
            [(3, 1), (1, 1)]
        );
        let texts = names.texts();
        assert_eq!(
            (
                texts.name(ResourceType::Clusters, 2),
                texts.name(ResourceType::Routes, 1)
            ),
            (&b"b"[..], &b"b"[..])
        );

        assert_eq!(
            (
                texts.version(1),
                texts.version(UNASSIGNED),
                texts.version(7)
            ),
            (&b"v"[..], &b""[..], &b""[..])
        );
    }

    #[test]
    fn a_resource_without_a_version_has_that_of_its_content() {
        let names = Names::default();
        let received = |content| ReceivedResource {
            name: b"a",
            version: &[],
            content,
        };

        let [one, same, other]: [(Id, Id); 3] = names
            .numbers(
                ResourceType::Clusters,
                &[received(b"abc"), received(b"abc"), received(b"abd")],
            )
            .try_into()
            .unwrap();

        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(
            names.texts().version(one.1),
            Version::of(b"abc").to_string().as_bytes()
        );
    }
}

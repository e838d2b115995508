//! Interns names and versions as numbers: thousands of proxies have the same ones.

use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;

use crate::xds::kind::Kind;
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
    pub(crate) fn ids(&self, kind: Kind, names: &[&[u8]]) -> Vec<Id> {
        if names.is_empty() {
            return Vec::new();
        }
        if let Some(ids) = self
            .0
            .read()
            .of(kind)
            .and_then(|table| names.iter().map(|name| table.known(name)).collect())
        {
            return ids;
        }
        let mut texts = self.0.write();
        let table = texts.of_mut(kind);
        names.iter().map(|name| table.id(name)).collect()
    }

    /// The numbers of the names and versions of resources, in the same order.
    pub(crate) fn numbers(&self, kind: Kind, received: &[ReceivedResource<'_>]) -> Vec<(Id, Id)> {
        {
            let texts = self.0.read();
            let names = texts.of(kind);
            let known = |received: &ReceivedResource<'_>| {
                Some((
                    names?.known(received.name)?,
                    texts.versions.known(received.version)?,
                ))
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
                    texts.of_mut(kind).id(received.name),
                    texts.versions.id(received.version),
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
    pub(crate) fn name(&self, kind: Kind, id: Id) -> &[u8] {
        self.of(kind)
            .map(|table| table.text(id))
            .unwrap_or_default()
    }

    pub(crate) fn version(&self, id: Id) -> &[u8] {
        self.versions.text(id)
    }

    /// The names of a type.
    fn of(&self, kind: Kind) -> Option<&Table> {
        self.names.get(kind.index())
    }

    /// The names of a type, mutable.
    fn of_mut(&mut self, kind: Kind) -> &mut Table {
        let [clusters, endpoints, listeners, routes, hosts] = &mut self.names;
        match kind {
            Kind::Clusters => clusters,
            Kind::Endpoints => endpoints,
            Kind::Listeners => listeners,
            Kind::Routes => routes,
            Kind::VirtualHosts => hosts,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_among_those_of_its_kind() {
        let names = Names::default();
        assert_eq!(names.ids(Kind::Clusters, &[b"a", b"b", b"a"]), [1, 2, 1]);
        assert_eq!(names.ids(Kind::Clusters, &[b"b"]), [2]);
        assert_eq!(names.ids(Kind::Routes, &[b"b"]), [1]);
        let received = |name, version| ReceivedResource {
            name,
            version,
            content: &[],
        };

        assert_eq!(
            names.numbers(
                Kind::Clusters,
                &[received(b"c", b"v"), received(b"a", b"v")]
            ),
            [(3, 1), (1, 1)]
        );
        let texts = names.texts();
        assert_eq!(
            (texts.name(Kind::Clusters, 2), texts.name(Kind::Routes, 1)),
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
}

//! Names and versions as numbers: thousands of proxies hold the same ones.

use bytes::Bytes;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// A name or version by number.
pub(crate) type Id = u32;

/// All names met so far. Shared by all proxies.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Both ways.
    table: RwLock<Table>,
}

/// Names by number and numbers by name.
#[derive(Debug, Default)]
struct Table {
    /// The number of each.
    ids: FxHashMap<Bytes, Id>,
    /// Each, by its number.
    names: Vec<Bytes>,
}

impl Names {
    /// The numbers of some names, in their order.
    pub(crate) fn ids<'a>(&self, names: impl Iterator<Item = &'a Bytes> + Clone) -> Vec<Id> {
        {
            let table = self.table.read();
            let known: Option<Vec<Id>> = names.clone().map(|name| table.ids.get(name).copied()).collect();
            if let Some(known) = known {
                return known;
            }
        }
        let mut table = self.table.write();
        names.map(|name| table.id(name)).collect()
    }

    /// The text of a name.
    pub(crate) fn text(&self, id: Id) -> String {
        let table = self.table.read();
        let name = table.names.get(usize::try_from(id).unwrap_or(usize::MAX));
        name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
    }
}

impl Table {
    /// The number of a name, a new one where it has none.
    fn id(&mut self, name: &Bytes) -> Id {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        // A copy: the name as it came keeps the whole response in memory.
        let name = Bytes::copy_from_slice(name);
        let id = Id::try_from(self.names.len()).unwrap_or(Id::MAX);
        self.names.push(name.clone());
        self.ids.insert(name, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let names = Names::default();
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        assert_eq!(names.ids([&a, &b, &a].into_iter()), [0, 1, 0]);
        assert_eq!(names.ids([&b].into_iter()), [1]);
        assert_eq!(names.text(1), "b");
        assert_eq!(names.text(7), "");
    }
}

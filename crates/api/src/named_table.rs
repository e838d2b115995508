//! Items with names, by name and by number.

use std::fmt;
use std::sync::Arc;

use super::object::NamespacedName;
use navarch_tables::growth::push_tight;
use navarch_tables::hash_index::{HashIndex, KeyHash};

/// An item with a name.
pub trait HasName {
    /// Unique in a [`NamedTable`], which finds the item by it.
    fn name(&self) -> &NamespacedName;
}

impl<T: HasName + ?Sized> HasName for Arc<T> {
    fn name(&self) -> &NamespacedName {
        (**self).name()
    }
}

/// Items by their unique names. Each item has a number as long as it is in the table; other indexes
/// store the number.
#[derive(Clone)]
pub struct NamedTable<T> {
    /// The items, each at the index of its number.
    places: Vec<Option<T>>,
    /// Unused numbers.
    free: Vec<u32>,
    /// Numbers by name.
    by_name: HashIndex,
}

impl<T> Default for NamedTable<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            by_name: HashIndex::default(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for NamedTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.places.iter().flatten())
            .finish()
    }
}

/// A number as an index.
fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl<T: HasName> NamedTable<T> {
    /// Inserts an item, or replaces the item of the same name and returns the old one. The number
    /// stays the same.
    pub fn put(&mut self, thing: T) -> (u32, Option<T>) {
        let hash = KeyHash::of(thing.name());
        if let Some(number) = self.number_at(hash, thing.name()) {
            let place = self
                .places
                .get_mut(place(number))
                .expect("an issued number has an entry");
            return (number, place.replace(thing));
        }
        let number = self.free.pop().unwrap_or_else(|| {
            push_tight(&mut self.places, None);
            u32::try_from(self.places.len() - 1)
                .expect("memory is exhausted before the numbers are")
        });
        self.by_name.insert_at(hash, number);
        if let Some(place) = self.places.get_mut(place(number)) {
            *place = Some(thing);
        }
        (number, None)
    }

    /// Removes the item of a name, and returns it with its number.
    pub fn remove(&mut self, name: &NamespacedName) -> Option<(u32, T)> {
        let number = self.number(name)?;
        let thing = self.places.get_mut(place(number))?.take()?;
        self.by_name.remove(name, number);
        self.free.push(number);
        Some((number, thing))
    }

    /// The number of the item with this name.
    #[must_use]
    pub fn number(&self, name: &NamespacedName) -> Option<u32> {
        self.number_at(KeyHash::of(name), name)
    }

    /// The number of the item with this name, which has this hash.
    fn number_at(&self, hash: KeyHash, name: &NamespacedName) -> Option<u32> {
        let is_it = |number: &u32| self.at(*number).is_some_and(|thing| thing.name() == name);
        self.by_name.get_at(hash).iter().copied().find(is_it)
    }

    /// The item with this name.
    #[must_use]
    pub fn get(&self, name: &NamespacedName) -> Option<&T> {
        self.number(name).and_then(|number| self.at(number))
    }

    /// The item with this name; the caller must not change the name.
    pub fn get_mut(&mut self, name: &NamespacedName) -> Option<&mut T> {
        let number = self.number(name)?;
        self.places.get_mut(place(number))?.as_mut()
    }

    /// The item with this number.
    #[must_use]
    pub fn at(&self, number: u32) -> Option<&T> {
        self.places.get(place(number))?.as_ref()
    }

    /// All items, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// The wanted items among these numbers, sorted by name, since the order of numbers is
    /// arbitrary.
    #[must_use]
    pub fn by_name<'a>(&'a self, numbers: &[u32], is_wanted: impl Fn(&T) -> bool) -> Vec<&'a T> {
        let things = numbers.iter().filter_map(|number| self.at(*number));
        let mut things: Vec<&T> = things.filter(|thing| is_wanted(thing)).collect();
        things.sort_unstable_by_key(|thing| thing.name());
        things
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name and what is said under it.
    #[derive(Debug, PartialEq)]
    struct Thing(NamespacedName, i32);

    impl HasName for Thing {
        fn name(&self) -> &NamespacedName {
            &self.0
        }
    }

    #[test]
    fn things_keep_their_numbers_and_leave_them_to_others() {
        let name = |name: &str| NamespacedName::new("shop", name);
        let mut table = NamedTable::default();
        let (a, _) = table.put(Thing(name("a"), 1));
        let (b, _) = table.put(Thing(name("b"), 2));
        assert_eq!(
            table.put(Thing(name("a"), 3)),
            (a, Some(Thing(name("a"), 1)))
        );

        assert_eq!(table.get(&name("a")).map(|thing| thing.1), Some(3));
        let values = |table: &NamedTable<Thing>| {
            table
                .by_name(&[b, a, 9], |_| true)
                .iter()
                .map(|t| t.1)
                .collect::<Vec<_>>()
        };

        assert_eq!(values(&table), [3, 2]);
        assert_eq!(table.remove(&name("a")), Some((a, Thing(name("a"), 3))));
        assert_eq!((table.remove(&name("a")), table.at(a)), (None, None));
        assert_eq!(table.put(Thing(name("c"), 4)).0, a);
        assert_eq!((table.number(&name("a")), table.iter().count()), (None, 2));
    }
}

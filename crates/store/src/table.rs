//! The objects of one kind.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use super::Stored;
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};

/// Objects of one kind by namespace and name, in that order. Cheap to clone.
#[derive(Debug)]
pub struct Table<T> {
    /// Shared with the tables that it was cloned from, as far as they are equal.
    objects: OrdMap<NamespacedName, Arc<Object<T>>>,
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
        }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            objects: OrdMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// The object of this name.
    #[must_use]
    pub fn get(&self, key: &NamespacedName) -> Option<&Arc<Object<T>>> {
        self.objects.get(key)
    }

    /// All objects in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object<T>>> {
        self.objects.values()
    }

    /// The objects of one namespace in order. The cost depends on their number.
    pub fn in_namespace<'a>(
        &'a self,
        namespace: &Namespace,
    ) -> impl Iterator<Item = &'a Arc<Object<T>>> {
        let from = NamespacedName::of(namespace.clone(), Arc::default());
        let namespace = namespace.clone();
        self.objects
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// Removes and returns the objects of one namespace. The cost depends on their number.
    pub(super) fn take_namespace(&mut self, namespace: &Namespace) -> Vec<Arc<Object<T>>> {
        let taken: Vec<_> = self.in_namespace(namespace).cloned().collect();
        for object in &taken {
            self.objects.remove(&object.meta.key());
        }
        taken
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Removes and returns the object of this name.
    pub fn remove(&mut self, key: &NamespacedName) -> Option<Arc<Object<T>>> {
        self.objects.remove(key)
    }
}

impl<T: Stored> Table<T> {
    /// Inserts an object, or replaces the object of the same name. Returns whether its output
    /// differs.
    pub fn put(&mut self, object: Arc<Object<T>>) -> bool {
        let new = object.clone();
        let old = self.objects.insert(object.meta.key(), object);
        old.is_none_or(|old| !old.same_output(&new, T::KIND))
    }

    /// Whether the object of this name differs from that in `other`, or is in one of the tables
    /// only.
    #[must_use]
    pub fn differs(&self, other: &Self, key: &NamespacedName) -> bool {
        match (self.get(key), other.get(key)) {
            (Some(a), Some(b)) => !Arc::ptr_eq(a, b) && !a.same_output(b, T::KIND),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        }
    }
}

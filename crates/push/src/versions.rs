//! Reads of objects through a view. Each returns the version that the proxy sees, which during a
//! staged rollout is the new one for some proxies.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use super::fact::FactKey;
use super::name_parts::part_of;
use super::query::{ProxyQuery, Query};
use super::rollouts::of_kind;
use super::view::View;
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object, ObjectRef};
use navarch_api::rollout::Share;
use navarch_store::Stored;

impl View<'_> {
    /// The version that the proxy sees. `None` if the object does not exist, or is new and not
    /// rolled out to the proxy.
    #[must_use]
    pub fn object<T: Stored>(&self, name: &NamespacedName) -> Option<&Arc<Object<T>>> {
        let found = T::table(&self.unrecorded().objects).get(name);
        // The object's own name, not an equal one of a request: it is kept as long as the result.
        let name = found.map_or_else(|| name.clone(), |object| object.meta.key());
        let object = ObjectRef {
            kind: T::KIND,
            name: name.clone(),
        };
        let context = self.read(FactKey::Object(object.clone()));
        let is_staged = context.rollouts.contains_key(&object);
        let sees_new = is_staged && *self.derived(&SeesNew(object));
        if sees_new {
            T::table(&context.new_versions).get(&name)
        } else {
            found
        }
    }

    /// The names of all objects of a kind, in order. Contents of objects affect the reader only if
    /// it reads them.
    pub fn names<T: Stored>(&self) -> impl Iterator<Item = &NamespacedName> {
        let old = T::table(&self.read(FactKey::Names(T::KIND)).objects)
            .iter()
            .map(|object| &object.meta.key);
        Merged::new(old, self.new_names::<T>(|_| true))
    }

    /// The names of the objects of a kind in one part, in order; for kinds with parts.
    pub fn names_in<T: Stored>(&self, part: u8) -> impl Iterator<Item = &NamespacedName> {
        let old = self
            .read(FactKey::NamesIn(T::KIND, part))
            .name_parts
            .get(T::KIND, part);
        Merged::new(old, self.new_names::<T>(|name| part_of(name) == part))
    }

    /// The objects of a kind in one namespace, by name.
    pub fn list<T: Stored>(&self, namespace: &Namespace) -> impl Iterator<Item = &Arc<Object<T>>> {
        let fact = FactKey::List(T::KIND, namespace.clone());
        let old = T::table(&self.read(fact).objects).in_namespace(namespace);
        Merged::new(
            old,
            self.new_objects::<T>(|name| name.namespace == *namespace),
        )
    }

    /// All objects of a kind, by namespace and name.
    pub fn list_all<T: Stored>(&self) -> impl Iterator<Item = &Arc<Object<T>>> {
        let old = T::table(&self.read(FactKey::ListAll(T::KIND)).objects).iter();
        Merged::new(old, self.new_objects::<T>(|_| true))
    }

    /// The names of objects that exist only as new versions of rollouts that the proxy sees, in
    /// order.
    fn new_names<T: Stored>(
        &self,
        is_listed: impl Fn(&NamespacedName) -> bool,
    ) -> Vec<&NamespacedName> {
        let is_new = |name: &NamespacedName| {
            T::table(&self.unrecorded().objects).get(name).is_none() && is_listed(name)
        };
        self.new_objects::<T>(is_new)
            .into_iter()
            .map(|object| &object.meta.key)
            .collect()
    }

    /// The objects whose new version in a rollout the proxy has, in order.
    fn new_objects<T: Stored>(
        &self,
        is_listed: impl Fn(&NamespacedName) -> bool,
    ) -> Vec<&Arc<Object<T>>> {
        if self.unrecorded().rollouts.is_empty() {
            return Vec::new();
        }
        let staged = of_kind(&self.unrecorded().rollouts, T::KIND).map(|(name, _)| name);
        let seen =
            staged.filter(|name| is_listed(&name.name) && *self.derived(&SeesNew((*name).clone())));
        seen.filter_map(|name| T::table(&self.unrecorded().new_versions).get(&name.name))
            .collect()
    }
}

/// Whether a proxy sees the new version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeesNew(ObjectRef);

impl Query for SeesNew {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let context = view.read(FactKey::Rollout(self.0.clone()));
        match context
            .rollouts
            .get(&self.0)
            .map(|rollout| (rollout, rollout.share()))
        {
            None | Some((_, None)) => false,
            Some((_, Some(Share::ALL))) => true,
            Some((rollout, Some(_))) => rollout.is_seen_by(&view.proxy().name()),
        }
    }
}

impl ProxyQuery for SeesNew {}

/// A value with a name by which it is sorted.
trait Named {
    fn name(&self) -> &NamespacedName;
}

impl Named for &NamespacedName {
    fn name(&self) -> &NamespacedName {
        self
    }
}

impl<T> Named for &Arc<Object<T>> {
    fn name(&self) -> &NamespacedName {
        &self.meta.key
    }
}

/// Two sorted lists as one: entries of both come from the second.
struct Merged<I: Iterator> {
    old: Peekable<I>,
    new: Peekable<IntoIter<I::Item>>,
}

impl<I: Iterator> Merged<I> {
    fn new(old: I, new: Vec<I::Item>) -> Self {
        Self {
            old: old.peekable(),
            new: new.into_iter().peekable(),
        }
    }
}

impl<I: Iterator<Item: Named>> Iterator for Merged<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let Some(new) = self.new.peek() else {
            return self.old.next();
        };
        match self.old.peek().map(|old| old.name().cmp(new.name())) {
            Some(std::cmp::Ordering::Less) => self.old.next(),
            Some(std::cmp::Ordering::Equal) => {
                self.old.next();
                self.new.next()
            }
            Some(std::cmp::Ordering::Greater) | None => self.new.next(),
        }
    }
}

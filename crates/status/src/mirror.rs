//! A mirror of the objects of a kind, from a watch.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use navarch_api::object::NamespacedName;

/// The mirrored objects.
#[derive(Debug)]
pub(super) struct Mirror<T> {
    items: BTreeMap<NamespacedName, T>,
    /// The objects of an unfinished list.
    listed: BTreeSet<NamespacedName>,
    /// Whether the initial list is complete.
    complete: bool,
}

/// A changed object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change<T> {
    pub(super) name: NamespacedName,
    /// The previous value.
    pub(super) before: Option<T>,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            listed: BTreeSet::new(),
            complete: false,
        }
    }
}

impl<T: PartialEq> Mirror<T> {
    /// Applies an event. `read` extracts the mirrored value of an object; `None` counts as a
    /// missing object.
    pub(super) fn take(
        &mut self,
        event: Event<DynamicObject>,
        read: impl Fn(DynamicObject) -> Option<T>,
    ) -> Vec<Change<T>> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }

            Event::InitApply(object) => {
                let name = name(&object);
                self.listed.insert(name.clone());
                self.put(name, read(object)).into_iter().collect()
            }
            Event::Apply(object) => self.put(name(&object), read(object)).into_iter().collect(),
            Event::Delete(object) => self.put(name(&object), None).into_iter().collect(),

            Event::InitDone => {
                self.complete = true;
                let listed = std::mem::take(&mut self.listed);
                let gone: Vec<_> = self
                    .items
                    .keys()
                    .filter(|name| !listed.contains(*name))
                    .cloned()
                    .collect();
                gone.into_iter()
                    .filter_map(|name| self.put(name, None))
                    .collect()
            }
        }
    }

    /// Replaces a value; returns the change, if it differs.
    pub(super) fn put(&mut self, name: NamespacedName, now: Option<T>) -> Option<Change<T>> {
        if self.items.get(&name) == now.as_ref() {
            return None;
        }
        let before = match now {
            Some(now) => self.items.insert(name.clone(), now),
            None => self.items.remove(&name),
        };
        Some(Change { name, before })
    }

    /// Whether the initial list is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The mirrored value of an object.
    pub(super) fn get(&self, name: &NamespacedName) -> Option<&T> {
        self.items.get(name)
    }

    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &NamespacedName> {
        self.items.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }

    /// Names and mirrored values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NamespacedName, &T)> {
        self.items.iter()
    }
}

pub(super) fn name(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// References between objects, to find the users of a changed object.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeMap<NamespacedName, BTreeSet<NamespacedName>>);

impl Index {
    /// Changes the reference of `name` from `before` to `now`.
    pub(super) fn change(
        &mut self,
        name: &NamespacedName,
        before: Option<&NamespacedName>,
        now: Option<&NamespacedName>,
    ) {
        if before == now {
            return;
        }
        if let Some(before) = before
            && let Some(all) = self.0.get_mut(before)
        {
            all.remove(name);
            if all.is_empty() {
                self.0.remove(before);
            }
        }
        if let Some(now) = now {
            self.0.entry(now.clone()).or_default().insert(name.clone());
        }
    }

    /// The users of a name.
    pub(super) fn of(&self, name: &NamespacedName) -> impl Iterator<Item = &NamespacedName> {
        self.0.get(name).into_iter().flatten()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &NamespacedName> {
        self.0.values().flatten()
    }
}

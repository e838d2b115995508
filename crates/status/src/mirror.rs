//! What is kept of the objects of a kind, as a watch tells of them.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use navarch_api::object::NamespacedName;

/// What is kept of objects.
#[derive(Debug)]
pub(super) struct Mirror<T> {
    items: BTreeMap<NamespacedName, T>,
    /// The objects of an unfinished list.
    listed: BTreeSet<NamespacedName>,
    /// Whether all are known.
    complete: bool,
}

/// An object of which something else is kept now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change<T> {
    pub(super) name: NamespacedName,
    /// What was kept before.
    pub(super) before: Option<T>,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), listed: BTreeSet::new(), complete: false }
    }
}

impl<T: PartialEq> Mirror<T> {
    /// Takes an event in. `read` gives what is kept of an object; `None` counts as if it were not there.
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
                let gone: Vec<_> = self.items.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.into_iter().filter_map(|name| self.put(name, None)).collect()
            }
        }
    }

    /// Puts something in the place of what was kept; gives the change, if it is one.
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

    /// Whether all are known.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// What is kept of an object.
    pub(super) fn get(&self, name: &NamespacedName) -> Option<&T> {
        self.items.get(name)
    }

    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &NamespacedName> {
        self.items.keys()
    }

    /// What is kept of all.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }

    /// Names, and what is kept.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NamespacedName, &T)> {
        self.items.iter()
    }
}

pub(super) fn name(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// References between objects: whose users are notified when a referenced object changes.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeMap<NamespacedName, BTreeSet<NamespacedName>>);

impl Index {
    /// `who` names `now`, and no longer `before`.
    pub(super) fn change(
        &mut self,
        who: &NamespacedName,
        before: Option<&NamespacedName>,
        now: Option<&NamespacedName>,
    ) {
        if before == now {
            return;
        }
        if let Some(before) = before
            && let Some(all) = self.0.get_mut(before)
        {
            all.remove(who);
            if all.is_empty() {
                self.0.remove(before);
            }
        }
        if let Some(now) = now {
            self.0.entry(now.clone()).or_default().insert(who.clone());
        }
    }

    /// Who names a name.
    pub(super) fn of(&self, name: &NamespacedName) -> impl Iterator<Item = &NamespacedName> {
        self.0.get(name).into_iter().flatten()
    }

    /// All who name any.
    pub(super) fn all(&self) -> impl Iterator<Item = &NamespacedName> {
        self.0.values().flatten()
    }
}

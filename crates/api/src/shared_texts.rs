//! One copy of texts that many objects repeat: namespaces, labels, nodes, names of ports.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::kubernetes::ContainerPort;
use super::names::Namespace;
use super::object::{ControllerRef, NameParts, NamespacedName};
use super::text_map::TextMap;
use navarch_base::interned::Interned;
use navarch_tables::hash::keyed_hash;

/// The maximum number of cached texts, and of cached maps.
const CAPACITY: usize = 1024;
/// The initial number: most kinds have few objects.
const FIRST: usize = 64;

/// Recently seen texts, and maps of texts. Objects come in the order of their names, so most
/// repetitions are close together: a table of fixed size finds nearly all of them and needs no
/// cleanup.
#[derive(Clone, Default)]
pub struct SharedTexts {
    texts: Recent<Arc<str>>,
    /// Whole labels and annotations: pods of one workload mostly have equal ones.
    maps: Recent<TextMap>,
    /// The ports of pods, also as a whole.
    ports: Recent<Arc<[ContainerPort]>>,
    /// The controllers of pods.
    controllers: Recent<Arc<ControllerRef>>,
    pods: PodNames,
}

/// The names of pods, which the readers of pods and of EndpointSlices of a cluster share.
pub type PodNames = Interned<NameParts>;

/// Values by hash. Of two values in the same place, the later one stays.
#[derive(Clone)]
struct Recent<T> {
    /// The places: zero, or a power of two.
    places: Vec<Option<T>>,
    /// The number of missing values since the last growth.
    missed: usize,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            missed: 0,
        }
    }
}

impl<T: Hash + Eq + Clone> Recent<T> {
    /// The cached value with this hash, if `is_it` accepts it.
    fn get(&self, key: &(impl Hash + ?Sized), is_it: impl Fn(&T) -> bool) -> Option<&T> {
        self.places
            .get(self.place_of(key))?
            .as_ref()
            .filter(|known| is_it(known))
    }

    /// The cached value that equals `value`, else `value`, which is cached from then on.
    fn share(&mut self, value: T) -> T {
        match self.get(&value, |known| *known == value) {
            Some(known) => known.clone(),
            None => {
                self.put(value.clone());
                value
            }
        }
    }

    /// Caches a value.
    fn put(&mut self, value: T) {
        self.missed += 1;
        if self.missed > self.places.len() && self.places.len() < CAPACITY {
            self.grow();
        }
        let at = self.place_of(&value);
        if let Some(place) = self.places.get_mut(at) {
            *place = Some(value);
        }
    }

    /// Adds places.
    fn grow(&mut self) {
        let more = FIRST.max(self.places.len() * 4).min(CAPACITY);
        let known = std::mem::replace(&mut self.places, vec![None; more]);
        for value in known.into_iter().flatten() {
            let at = self.place_of(&value);
            if let Some(place) = self.places.get_mut(at) {
                *place = Some(value);
            }
        }
        self.missed = 0;
    }

    /// The place of a value, or of any value with the same hash.
    fn place_of(&self, value: &(impl Hash + ?Sized)) -> usize {
        // The number of places is a power of two, and the low bits of the hash are good.
        #[expect(clippy::cast_possible_truncation, reason = "only low bits count")]
        let hash = keyed_hash(value) as usize;
        hash & self.places.len().wrapping_sub(1)
    }
}

impl fmt::Debug for SharedTexts {
    /// Omits the texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTexts")
    }
}

impl SharedTexts {
    /// Empty, except for the names of pods.
    #[must_use]
    pub fn with_pods(pods: PodNames) -> Self {
        Self {
            pods,
            ..Self::default()
        }
    }

    /// Replaces a text with its cached copy, or caches the text.
    pub fn share(&mut self, text: &mut Arc<str>) {
        // The empty text takes no allocation.
        if text.is_empty() {
            return;
        }
        *text = self.texts.share(text.clone());
    }

    /// Returns the cached copy of a text, or caches the text.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if text.is_empty() {
            return Arc::default();
        }
        if let Some(known) = self.texts.get(text, |known| **known == *text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.put(new.clone());
        new
    }

    /// Returns the cached map of these entries, or caches it. Of entries with the same key, the
    /// last is used.
    pub fn map(&mut self, mut entries: Vec<(&str, &str)>) -> TextMap {
        if entries.is_empty() {
            return TextMap::new();
        }

        if !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            entries.sort_by_key(|(key, _)| *key);
            entries.dedup_by(|later, kept| {
                let is_again = later.0 == kept.0;
                if is_again {
                    *kept = *later;
                }
                is_again
            });
        }

        // What is cached has the same hash as its borrowed content.
        let texts_of = |map: &TextMap| {
            map.iter()
                .map(|(key, value)| (&**key, &**value))
                .eq(entries.iter().copied())
        };
        if let Some(known) = self.maps.get(entries.as_slice(), texts_of) {
            return known.clone();
        }

        let shared = entries
            .into_iter()
            .map(|(key, value)| (self.text(key), self.text(value)));
        let new = TextMap::of_sorted(shared);
        self.maps.put(new.clone());

        new
    }

    /// Returns the cached ports if they are equal, or caches the ports.
    pub(super) fn ports(&mut self, ports: Vec<ContainerPort>) -> Arc<[ContainerPort]> {
        if ports.is_empty() {
            return Arc::default();
        }
        if let Some(known) = self.ports.get(ports.as_slice(), |known| **known == *ports) {
            return known.clone();
        }
        let new: Arc<[ContainerPort]> = ports.into();
        self.ports.put(new.clone());
        new
    }

    /// Replaces ports with their cached copy. No effect on their names once the ports were cloned.
    pub(super) fn share_ports(&mut self, ports: &mut Arc<[ContainerPort]>) {
        for port in Arc::get_mut(ports).into_iter().flatten() {
            port.name.share(self);
        }
        if !ports.is_empty() {
            *ports = self.ports.share(ports.clone());
        }
    }

    /// Returns the cached controller, or caches it.
    pub(super) fn controller(&mut self, kind: &str, name: &str) -> Arc<ControllerRef> {
        let is_it = |known: &Arc<ControllerRef>| *known.kind == *kind && *known.name == *name;
        if let Some(known) = self.controllers.get(&(kind, name), is_it) {
            return known.clone();
        }

        let new = Arc::new(ControllerRef {
            kind: self.text(kind),
            name: self.text(name),
        });
        self.controllers.put(new.clone());
        new
    }

    /// Replaces the controller of an object with its cached copy.
    pub(super) fn share_controller(&mut self, controller: &mut Arc<ControllerRef>) {
        if let Some(owner) = Arc::get_mut(controller) {
            self.share(&mut owner.kind);
            self.share(&mut owner.name);
        }
        *controller = self.controllers.share(controller.clone());
    }

    /// The stored copy of the name of a pod.
    pub(super) fn pod(&mut self, namespace: &str, name: &str) -> NamespacedName {
        let namespace = Namespace::from(self.text(namespace));
        NamespacedName::stored(&namespace, name, &self.pods)
    }

    /// Replaces the name of a pod with its stored copy.
    pub(super) fn share_pod(&mut self, name: &mut NamespacedName) {
        name.intern(&self.pods);
    }

    /// The same for a map. Where it is not known, its texts are shared; of no effect on them once
    /// the map was copied.
    pub(super) fn share_map(&mut self, map: &mut TextMap) {
        if map.is_empty() {
            return;
        }
        match self.maps.get(map, |known| known == map) {
            Some(known) => *map = known.clone(),
            None => {
                map.entries_mut().for_each(|(key, value)| {
                    self.share(key);
                    self.share(value);
                });
                self.maps.put(map.clone());
            }
        }
    }
}

/// What has texts that other objects may repeat.
pub trait HasTexts {
    /// Has equal texts be one with those of other objects.
    fn share(&mut self, texts: &mut SharedTexts);
}

impl HasTexts for Arc<str> {
    fn share(&mut self, texts: &mut SharedTexts) {
        texts.share(self);
    }
}

impl<T: HasTexts> HasTexts for Option<T> {
    fn share(&mut self, texts: &mut SharedTexts) {
        if let Some(inner) = self {
            inner.share(texts);
        }
    }
}

impl<T: HasTexts> HasTexts for Box<[T]> {
    fn share(&mut self, texts: &mut SharedTexts) {
        for item in self {
            item.share(texts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{LOCK_RECORD, ObjectMeta};

    #[test]
    fn repeated_texts_are_shared_and_others_forgotten() {
        let mut texts = SharedTexts::default();
        let mut known: Arc<str> = "app".into();
        texts.share(&mut known);
        for number in 0..10 * CAPACITY {
            let mut again: Arc<str> = "app".into();
            texts.share(&mut again);
            let mut next = again.clone();
            texts.share(&mut next);
            assert!(Arc::ptr_eq(&again, &next));
            texts.share(&mut Arc::from(number.to_string()));
        }
        assert_eq!(texts.texts.places.len(), CAPACITY);
    }

    #[test]
    fn records_of_locks_take_no_places() {
        let mut texts = SharedTexts::default();
        for renewal in 0..3 {
            let record = Arc::from(renewal.to_string());
            let mut meta = ObjectMeta {
                annotations: TextMap::from([(LOCK_RECORD.into(), record)]),
                ..ObjectMeta::default()
            };
            meta.share(&mut texts);
        }
        assert!(texts.texts.places.is_empty() && texts.maps.places.is_empty());
    }

    #[test]
    fn names_of_pods_are_one_for_all_readers() {
        let pods = PodNames::default();
        let mut texts = SharedTexts::with_pods(pods.clone());
        let mut name = NamespacedName::new("shop", "web-1");
        texts.share_pod(&mut name);

        let again = SharedTexts::with_pods(pods).pod("shop", "web-1");
        assert!(std::ptr::eq(&*name, &*again));
        let other = texts.pod("shop", "web-2");
        assert_eq!(other, NamespacedName::new("shop", "web-2"));
        assert!(std::ptr::eq(&*other, &*texts.pod("shop", "web-2")));
    }

    #[test]
    fn maps_are_one_as_a_whole() {
        let mut texts = SharedTexts::default();
        let map = || TextMap::from([("app".into(), "web".into())]);
        let mut one = map();
        let mut other = map();
        one.share(&mut texts);
        other.share(&mut texts);
        let read = texts.map(vec![("app", "api"), ("app", "web")]);
        assert_eq!(read, one);
        let value = |map: &TextMap| map.values().next().cloned().unwrap();
        assert!(
            Arc::ptr_eq(&value(&one), &value(&other)) && Arc::ptr_eq(&value(&one), &value(&read))
        );
        assert_eq!(
            (texts.map(Vec::new()), texts.text("")),
            (TextMap::new(), "".into())
        );
        assert!(Arc::ptr_eq(&texts.text("web"), &value(&one)));
    }
}

//! One copy of texts that many objects repeat: namespaces, labels, nodes, names of ports.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::hash::keyed_hash;
use super::kubernetes::ContainerPort;
use super::object::{ControllerRef, NamespacedName};
use super::shared_names::SharedNames;
use super::text_map::TextMap;

/// How many texts, and how many maps, are remembered at the most.
const CAPACITY: usize = 1024;
/// How many are remembered at first: most kinds have few objects.
const FIRST: usize = 64;

/// Texts, and maps of texts, that were seen lately. What is repeated is mostly repeated soon, for objects come in the order of
/// their names, so a table of fixed size finds nearly all of it and never has to be looked over.
#[derive(Clone, Default)]
pub struct SharedTexts {
    texts: Recent<Arc<str>>,
    /// Labels and annotations as a whole: those of the pods of one workload are mostly alike.
    maps: Recent<TextMap>,
    /// The ports of pods, as a whole as well.
    ports: Recent<Arc<[ContainerPort]>>,
    /// What controls pods.
    controllers: Recent<Arc<ControllerRef>>,
    /// The names of pods.
    pods: SharedNames,
}

/// Values by hash. Of two that fall into one place the later stays.
#[derive(Clone)]
struct Recent<T> {
    /// The places; none, or a power of two of them.
    places: Vec<Option<T>>,
    /// How many values came in that were not there, since the last growth.
    missed: usize,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { places: Vec::new(), missed: 0 }
    }
}

impl<T: Hash + Eq + Clone> Recent<T> {
    /// The value of this hash that was seen before, if it is the one.
    fn get(&self, key: &(impl Hash + ?Sized), is_it: impl Fn(&T) -> bool) -> Option<&T> {
        self.places.get(self.place_of(key))?.as_ref().filter(|known| is_it(known))
    }

    /// Remembers a value.
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

    /// Makes more places.
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

    /// The place of a value, or of what has the same hash.
    fn place_of(&self, value: &(impl Hash + ?Sized)) -> usize {
        // Places are a power of two, and the low bits of the hash are good.
        #[expect(clippy::cast_possible_truncation, reason = "only low bits count")]
        let hash = keyed_hash(value) as usize;
        hash & self.places.len().wrapping_sub(1)
    }
}

impl fmt::Debug for SharedTexts {
    /// Which texts are known tells nothing of whoever has them: it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTexts")
    }
}

impl SharedTexts {
    /// Nothing known yet but the names of pods.
    #[must_use]
    pub fn with_pods(pods: SharedNames) -> Self {
        Self { pods, ..Self::default() }
    }

    /// Puts the known copy of a text in its place; what is not known is from now on.
    pub fn share(&mut self, text: &mut Arc<str>) {
        // The empty text takes no allocation.
        if text.is_empty() {
            return;
        }
        match self.texts.get(text, |known| known == text) {
            Some(known) => *text = known.clone(),
            None => self.texts.put(text.clone()),
        }
    }

    /// The known copy of a text; what is not known is from now on.
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

    /// The known map of these entries; what is not known is from now on. Of entries with one key the last counts.
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
        // Text and map have the hashes of what they are made of.
        let texts_of = |map: &TextMap| map.iter().map(|(key, value)| (&**key, &**value)).eq(entries.iter().copied());
        if let Some(known) = self.maps.get(entries.as_slice(), texts_of) {
            return known.clone();
        }
        let new: TextMap = entries.into_iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        self.maps.put(new.clone());
        new
    }

    /// Ports, those that are known if they are equal.
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

    /// Puts the known copy of ports in their place; of no effect on their names once the ports were copied.
    pub(super) fn share_ports(&mut self, ports: &mut Arc<[ContainerPort]>) {
        for port in Arc::get_mut(ports).into_iter().flatten() {
            port.name.share(self);
        }
        *ports = self.ports(ports.to_vec());
    }

    /// What controls an object.
    pub(super) fn controller(&mut self, kind: &str, name: &str) -> Arc<ControllerRef> {
        let mut controller = Arc::new(ControllerRef { kind: self.text(kind), name: self.text(name) });
        self.share_controller(&mut controller);
        controller
    }

    /// Puts the known copy in place of what controls an object.
    pub(super) fn share_controller(&mut self, controller: &mut Arc<ControllerRef>) {
        if let Some(owner) = Arc::get_mut(controller) {
            self.share(&mut owner.kind);
            self.share(&mut owner.name);
        }
        match self.controllers.get(controller, |known| known == controller) {
            Some(known) => *controller = known.clone(),
            None => self.controllers.put(controller.clone()),
        }
    }

    /// Puts the known copy of a pod's name in its place.
    pub(super) fn share_pod(&mut self, name: &mut NamespacedName) {
        name.share(self);
        self.pods.share(name);
    }

    /// The same for a map. Where it is not known, its texts are shared; of no effect on them once the map was copied.
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

    #[test]
    fn what_is_repeated_is_one_and_what_is_not_is_forgotten() {
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
    fn maps_are_one_as_a_whole() {
        let mut texts = SharedTexts::default();
        let map = || TextMap::from([("app".into(), "web".into())]);
        let (mut one, mut other) = (map(), map());
        one.share(&mut texts);
        other.share(&mut texts);
        let read = texts.map(vec![("app", "api"), ("app", "web")]);
        assert_eq!(read, one);
        let value = |map: &TextMap| map.values().next().cloned().unwrap();
        assert!(Arc::ptr_eq(&value(&one), &value(&other)) && Arc::ptr_eq(&value(&one), &value(&read)));
        assert_eq!((texts.map(Vec::new()), texts.text("")), (TextMap::new(), "".into()));
        assert!(Arc::ptr_eq(&texts.text("web"), &value(&one)));
    }
}

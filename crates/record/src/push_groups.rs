//! Groups of proxies that are sent the same collection.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use navarch_push::resource::{Collection, ResourceType};
use navarch_tables::hash::KeyedMap;

use super::digest::Digest;
use super::format::{PushGroup, ranges};

/// Number of stale entries before they are purged.
const MIN_STALE_ENTRIES: usize = 1024;

/// A collection that at least one proxy has.
#[derive(Debug)]
struct PublishedEntry {
    collection: Arc<Collection>,
    digest: Digest,
}

/// The collection that each proxy has.
#[derive(Debug, Default)]
pub(crate) struct PushGroups {
    of: KeyedMap<(u64, ResourceType), Arc<PublishedEntry>>,
    /// By address in memory, for sharing.
    known: KeyedMap<usize, Weak<PublishedEntry>>,
}

impl PushGroups {
    /// Sets the collections of proxies, by number. Returns the groups, in an order that does not
    /// depend on that of the input.
    pub(crate) fn set(
        &mut self,
        published: impl IntoIterator<Item = (u64, Arc<Collection>)>,
    ) -> Vec<PushGroup> {
        // Of several collections of one proxy and type the last is used.
        let published: KeyedMap<_, _> = published
            .into_iter()
            .map(|(proxy, collection)| ((proxy, collection.resource_type), collection))
            .collect();
        let mut groups: BTreeMap<usize, (Arc<PublishedEntry>, Vec<u64>)> = BTreeMap::new();

        // A group moves from one collection to another.
        let mut steps: KeyedMap<(usize, usize), Arc<PublishedEntry>> = KeyedMap::default();

        for (key, collection) in published {
            let before = self.of.get(&key).cloned();
            let place = |collection: &Arc<Collection>| Arc::as_ptr(collection).addr();
            let step = (
                before.as_ref().map_or(0, |had| place(&had.collection)),
                place(&collection),
            );
            let had = match steps.get(&step) {
                Some(had) => had.clone(),
                None => {
                    let had = self.had(before, collection);
                    steps.insert(step, had.clone());
                    had
                }
            };

            self.of.insert(key, had.clone());
            groups
                .entry(step.1)
                .or_insert_with(|| (had, Vec::new()))
                .1
                .push(key.0);
        }

        merged_groups(groups.into_values())
    }

    /// The groups of all proxies.
    pub(crate) fn all(&self) -> Vec<PushGroup> {
        let mut groups: BTreeMap<usize, (Arc<PublishedEntry>, Vec<u64>)> = BTreeMap::new();
        for ((proxy, _), had) in &self.of {
            let place = Arc::as_ptr(&had.collection).addr();
            groups
                .entry(place)
                .or_insert_with(|| (had.clone(), Vec::new()))
                .1
                .push(*proxy);
        }
        merged_groups(groups.into_values())
    }

    pub(crate) fn of(&self, proxy: u64, resource_type: ResourceType) -> Option<&Arc<Collection>> {
        self.of
            .get(&(proxy, resource_type))
            .map(|had| &had.collection)
    }

    /// Removes a type of a proxy.
    pub(crate) fn forget(&mut self, proxy: u64, resource_type: ResourceType) {
        self.of.remove(&(proxy, resource_type));
    }

    /// Removes a proxy.
    pub(crate) fn forget_all(&mut self, proxy: u64) {
        for resource_type in ResourceType::ALL {
            self.of.remove(&(proxy, resource_type));
        }
    }

    /// A collection with its digest, computed incrementally from the previous one.
    fn had(
        &mut self,
        before: Option<Arc<PublishedEntry>>,
        collection: Arc<Collection>,
    ) -> Arc<PublishedEntry> {
        let place = Arc::as_ptr(&collection).addr();
        // An entry that is alive keeps its address from being reused.
        if let Some(had) = self.known.get(&place).and_then(Weak::upgrade) {
            return had;
        }
        let digest = match before {
            Some(before) => before.digest.after(&before.collection, &collection),
            None => Digest::of(&collection),
        };
        let had = Arc::new(PublishedEntry { collection, digest });
        if self.known.len() > 2 * self.of.len() + MIN_STALE_ENTRIES {
            self.known.retain(|_, had| had.strong_count() > 0);
        }
        self.known.insert(place, Arc::downgrade(&had));
        had
    }
}

/// Groups in the recording format; equal ones are merged.
fn merged_groups(groups: impl Iterator<Item = (Arc<PublishedEntry>, Vec<u64>)>) -> Vec<PushGroup> {
    let mut by_group: BTreeMap<(&str, String, usize), Vec<u64>> = BTreeMap::new();

    for (had, proxies) in groups {
        let resource_type = had.collection.resource_type.short_name();
        let count = had.collection.resources.len();
        by_group
            .entry((resource_type, had.digest.to_string(), count))
            .or_default()
            .extend(proxies);
    }

    let group =
        |((resource_type, digest, resources), proxies): ((&str, String, usize), Vec<u64>)| {
            PushGroup {
                r#type: resource_type.to_owned(),
                proxies: ranges(proxies),
                resources,
                digest,
            }
        };

    let mut all: Vec<PushGroup> = by_group.into_iter().map(group).collect();
    all.sort();
    all
}

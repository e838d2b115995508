//! Diffs and their encoded bytes, computed once for all streams that make the same step.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::session::diff::{Base, Diff, Names};
use crate::session::initial_resource_versions::InitialVersions;
use crate::session::payload::HeldBytes;
use navarch_api::names::ResourceName;
use navarch_base::interned::Interned;
use navarch_push::resource::Collection;
use navarch_tables::hash::KeyedMap;

/// Diffs kept per generation. Streams that progress together need the same few diffs; old ones are
/// not needed again.
const MAX_DIFFS: usize = 1024;
/// Bytes of resource bodies kept per generation. They are there once for each of the responses that
/// streams get: delta with and without versions, and the state of the world. Compressed forms come on
/// top: less than three quarters as much each, usually a twentieth.
const MAX_BYTES: usize = 32 << 20;
/// Bytes of resource bodies above which a diff is not kept for later: the first diff of a ztunnel
/// has 20 MB, and takes 20 ms to compute again for the next ztunnel.
const LARGE_BYTES: usize = 1 << 20;
/// Bytes of resource bodies in new diffs after which unreachable diffs are removed.
const SWEEP_BYTES: usize = 1 << 20;
/// How long an unreachable diff, or a large unused one, is kept at most. The diff of a client that
/// subscribed to 80,000 names has as many small allocations, and each can keep a page of the
/// allocator from being returned.
pub(crate) const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// The cache. It has two generations of diffs: a full young one becomes the old one, and the old
/// one is dropped.
#[derive(Debug, Default)]
pub(crate) struct EncodingCache {
    generations: Mutex<Generations>,
    /// Clients that reconnect after a restart mostly send the same `initial_resource_versions`.
    pub(crate) initial_versions: Interned<InitialVersions>,
    /// Identical clients subscribe to the same names.
    pub(crate) names: Interned<BTreeSet<ResourceName>>,
}

/// Cached diffs. Those of the old generation that were not used again are dropped with it.
#[derive(Debug, Default)]
struct Generations {
    /// Diffs that were computed or used in this generation.
    young: KeyedMap<DiffKey, Arc<CachedDiff>>,
    /// Diffs of the generation before.
    old: KeyedMap<DiffKey, Arc<CachedDiff>>,
    /// Bytes of resource bodies in the young diffs.
    bytes: usize,
    /// Bytes of resource bodies in diffs that were computed since unreachable ones were last
    /// removed.
    fresh: usize,
}

/// A key of the addresses of the collections that a diff is between. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DiffKey {
    /// The collection that the client has.
    base: usize,
    /// The collection that the client gets.
    latest: usize,
    /// The collection that must be sent again.
    forced: usize,
}

/// A cached diff. The weak references keep the addresses in the key from being reused while the
/// entry exists, but do not keep the collections alive.
#[derive(Debug)]
struct CachedDiff {
    /// The diff, once it is computed.
    changes: OnceLock<Arc<Diff>>,
    /// Whether it was used since the last [`EncodingCache::release`].
    is_used: AtomicBool,
    /// Guards [`DiffKey::base`].
    base: Guard,
    /// Guards [`DiffKey::latest`].
    latest: Weak<Collection>,
    /// Guards [`DiffKey::forced`].
    forced: Option<Weak<BTreeSet<ResourceName>>>,
}

/// Guards the address of a base.
#[derive(Debug)]
enum Guard {
    /// No base.
    Nothing,
    Sent(Weak<Collection>),
    /// Of a client's `initial_resource_versions`.
    InitialVersions(Weak<InitialVersions>),
}

impl CachedDiff {
    /// Whether a stream may still need this diff: both collections and the forced names are still
    /// alive.
    fn is_possible(&self) -> bool {
        let base = match &self.base {
            Guard::Nothing => true,
            Guard::Sent(sent) => sent.strong_count() > 0,
            Guard::InitialVersions(initial_versions) => initial_versions.strong_count() > 0,
        };
        base && self.latest.strong_count() > 0
            && self
                .forced
                .as_ref()
                .is_none_or(|names| names.strong_count() > 0)
    }

    /// Whether it is large and was not used since the last call.
    fn is_idle(&self) -> bool {
        !self.is_used.swap(false, Ordering::Relaxed)
            && self
                .changes
                .get()
                .is_some_and(|changes| changes.size() > LARGE_BYTES)
    }
}

impl EncodingCache {
    /// The diff from `base` to `latest`. `forced` are sent even if unchanged. Streams that make the
    /// same step share the diff; while one computes it, the others wait.
    pub(crate) fn changes(
        &self,
        base: &Base,
        latest: &Arc<Collection>,
        forced: Option<&Names>,
    ) -> Arc<Diff> {
        let kept = self.get_or_insert(base, latest, forced);
        let mut computed = None;
        let changes = kept
            .changes
            .get_or_init(|| {
                let changes = Diff::between(base, latest, forced.map(|names| &**names));
                computed = Some(changes.size());
                Arc::new(changes)
            })
            .clone();
        if let Some(bytes) = computed {
            // Freed after the lock is released.
            drop(self.charge(bytes));
        }
        changes
    }

    /// Removes unreachable diffs, and large ones that were not used since the last call. Walks over
    /// all entries, and frees them on this thread.
    pub(crate) fn release(&self) {
        let mut generations = self.generations.lock();
        let impossible = generations.take_unreachable();
        let idle = generations.take(CachedDiff::is_idle);
        drop(generations);
        drop((impossible, idle));
    }

    /// Bytes of the encoded diffs that are kept. Walks over all entries.
    pub(crate) fn held(&self) -> HeldBytes {
        let generations = self.generations.lock();
        let all = [&generations.young, &generations.old];
        all.into_iter()
            .flat_map(|generation| generation.values())
            .filter_map(|kept| kept.changes.get())
            .map(|changes| changes.held())
            .sum()
    }

    /// Counts a new diff, and starts a new generation if the young one is full. Returns the entries
    /// to free.
    fn charge(&self, bytes: usize) -> (Vec<Arc<CachedDiff>>, KeyedMap<DiffKey, Arc<CachedDiff>>) {
        let mut generations = self.generations.lock();
        generations.bytes += bytes;
        generations.fresh += bytes;

        let impossible = if generations.fresh > SWEEP_BYTES {
            generations.take_unreachable()
        } else {
            Vec::new()
        };

        if generations.bytes <= MAX_BYTES && generations.young.len() <= MAX_DIFFS {
            return (impossible, KeyedMap::default());
        }

        generations.bytes = 0;
        let young = std::mem::take(&mut generations.young);
        (impossible, std::mem::replace(&mut generations.old, young))
    }

    /// Returns the entry of a diff, and inserts it if it is missing.
    fn get_or_insert(
        &self,
        base: &Base,
        latest: &Arc<Collection>,
        forced: Option<&Names>,
    ) -> Arc<CachedDiff> {
        let (base_address, guard) = match base {
            Base::Nothing => (0, Guard::Nothing),
            Base::Sent(sent) => (Arc::as_ptr(sent).addr(), Guard::Sent(Arc::downgrade(sent))),
            Base::InitialVersions(initial_versions) => (
                Arc::as_ptr(initial_versions).addr(),
                Guard::InitialVersions(Arc::downgrade(initial_versions)),
            ),
        };

        let step = DiffKey {
            base: base_address,
            latest: Arc::as_ptr(latest).addr(),
            forced: forced.map_or(0, |names| Arc::as_ptr(names).addr()),
        };
        let mut generations = self.generations.lock();

        if let Some(kept) = generations.young.get(&step) {
            kept.is_used.store(true, Ordering::Relaxed);
            return kept.clone();
        }

        let kept = generations.old.remove(&step).unwrap_or_else(|| {
            Arc::new(CachedDiff {
                changes: OnceLock::new(),
                is_used: AtomicBool::new(true),
                base: guard,
                latest: Arc::downgrade(latest),
                forced: forced.map(Arc::downgrade),
            })
        });

        kept.is_used.store(true, Ordering::Relaxed);
        generations.young.insert(step, kept.clone());
        kept
    }
}

impl Generations {
    /// Removes unreachable diffs, such as those based on the state of all clients before the last
    /// push.
    fn take_unreachable(&mut self) -> Vec<Arc<CachedDiff>> {
        self.fresh = 0;
        self.take(|kept| !kept.is_possible())
    }

    /// Removes the diffs that match.
    fn take(&mut self, selects: impl Fn(&CachedDiff) -> bool) -> Vec<Arc<CachedDiff>> {
        let Self { young, old, .. } = self;
        let all = [young, old].into_iter();
        all.flat_map(|steps| steps.extract_if(|_, kept| selects(kept)))
            .map(|(_, kept)| kept)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::session::diff::{SubscribedBy, Versions};
    use navarch_push::resource::{Resource, ResourceType};

    fn collection(resources: &[(&str, &str)]) -> Arc<Collection> {
        let resource_type = ResourceType::Endpoint;
        let one = |(name, body): &(&str, &str)| {
            Arc::new(Resource::new(
                resource_type,
                ResourceName::new(name),
                Bytes::copy_from_slice(body.as_bytes()),
            ))
        };
        Arc::new(Collection::new(
            resource_type,
            resources.iter().map(one).collect(),
        ))
    }

    fn bytes_of(diff: &Diff) -> Bytes {
        diff.delta(SubscribedBy::ForAll, Versions::Sent)
            .into_plain()
    }

    #[test]
    fn streams_that_make_the_same_step_share_its_bytes() {
        let cache = EncodingCache::default();
        let old = collection(&[("a", "1"), ("b", "1")]);
        let new = collection(&[("a", "2"), ("b", "1")]);
        let base = Base::Sent(old);
        let one = cache.changes(&base, &new, None);
        let other = cache.changes(&base, &new, None);
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!(bytes_of(&one).as_ptr(), bytes_of(&other).as_ptr());

        let forced: Names = Arc::new([ResourceName::new("b")].into());
        assert_eq!(cache.changes(&base, &new, Some(&forced)).resources.len(), 2);
        assert_eq!(cache.changes(&Base::Nothing, &new, None).resources.len(), 2);
    }

    #[test]
    fn delta_encodings_from_dropped_versions_are_evicted() {
        let cache = EncodingCache::default();
        let large = "x".repeat(SWEEP_BYTES);
        let old = collection(&[("a", "")]);
        let new = collection(&[("a", &large)]);
        let newest = collection(&[("a", &format!("{large}y"))]);
        let step = Arc::downgrade(&cache.changes(&Base::Sent(old), &new, None));
        let kept = Arc::downgrade(&cache.changes(&Base::Nothing, &newest, None));
        cache.changes(&Base::Sent(new), &newest, None);
        assert!(step.upgrade().is_none(), "what it went from is gone");
        assert!(kept.upgrade().is_some());
    }

    #[test]
    fn a_delta_encoding_is_evicted_with_its_collection() {
        let cache = EncodingCache::default();
        let one = collection(&[("a", "1")]);
        let other = collection(&[("a", "2")]);
        let gone = Arc::downgrade(&cache.changes(&Base::Nothing, &one, None));
        let kept = Arc::downgrade(&cache.changes(&Base::Nothing, &other, None));
        cache.release();
        assert!(gone.upgrade().is_some());
        drop(one);
        cache.release();
        assert_eq!((gone.strong_count(), kept.strong_count()), (0, 1));
    }

    #[test]
    fn an_unused_large_delta_encoding_is_evicted_and_recomputed() {
        let cache = EncodingCache::default();
        let small = collection(&[("a", "1")]);
        let large = collection(&[("a", &"x".repeat(LARGE_BYTES + 1))]);
        let made = || Arc::downgrade(&cache.changes(&Base::Nothing, &large, None));
        let kept = Arc::downgrade(&cache.changes(&Base::Nothing, &small, None));
        let first = made();
        let again = {
            cache.release();
            made()
        };
        assert!(again.ptr_eq(&first));

        cache.release();
        assert_eq!(first.strong_count(), 1, "it was made since");
        cache.release();
        assert_eq!((first.strong_count(), kept.strong_count()), (0, 1));
        assert_eq!(
            cache.changes(&Base::Nothing, &large, None).size(),
            LARGE_BYTES + 1
        );
    }

    #[test]
    fn the_memo_is_bounded_and_right_however_addresses_are_used_again() {
        let cache = EncodingCache::default();

        for round in 0..3 * MAX_DIFFS {
            let text = round.to_string();
            let old = collection(&[("a", "0"), ("b", "0")]);
            let new = collection(&[("a", &text)]);
            let changes = cache.changes(&Base::Sent(old), &new, None);
            assert_eq!(
                (changes.resources.len(), changes.removed.len()),
                (usize::from(round > 0), 1)
            );

            assert!(
                changes
                    .resources
                    .iter()
                    .all(|resource| *resource.body == *text.as_bytes())
            );
        }

        let generations = cache.generations.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * MAX_DIFFS + 2);
    }
}

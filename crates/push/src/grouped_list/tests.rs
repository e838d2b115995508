//! Incremental updates against new lists, and the work that one update does.

use std::cell::Cell;
use std::cmp::Ordering;
use std::hash::Hasher;

use proptest::collection::btree_set;
use proptest::prelude::*;

use super::*;

thread_local! {
    /// Comparisons and hashes of items on this thread.
    static WORK: Cell<usize> = const { Cell::new(0) };
}

/// An item whose comparisons and hashes are counted.
#[derive(Clone, Debug)]
struct Counted(u32);

fn count_work() {
    WORK.set(WORK.get() + 1);
}

/// The work of a closure.
fn work_of(does: impl FnOnce()) -> usize {
    let before = WORK.get();
    does();
    WORK.get() - before
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Counted {}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        count_work();
        self.0.cmp(&other.0)
    }
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        count_work();
        self.0.hash(state);
    }
}

/// A new list of numbers.
fn list(numbers: &BTreeSet<u32>) -> GroupedList<u32> {
    GroupedList::of_sorted(numbers.iter().copied())
}

/// The numbers of a list, each chunk and group of which must have some.
fn numbers(list: &GroupedList<u32>) -> Vec<u32> {
    let chunks = || list.groups().iter().flat_map(Chunk::items);
    assert!(list.groups().iter().all(|group| !group.items().is_empty()));
    assert!(chunks().all(|chunk| !chunk.items().is_empty()));
    list.items().copied().collect()
}

#[test]
fn groups_of_chunks_are_the_list() {
    for count in [0, 1, 31, 5_000, 100_000] {
        let all: BTreeSet<u32> = (0..count).collect();
        let list = list(&all);
        assert!(numbers(&list).into_iter().eq(all.iter().copied()));
        assert_eq!(list.is_empty(), count == 0);
        assert_eq!(GroupedList::sort(all.iter().rev().chain(&all)), list);
    }

    let groups = list(&(0..100_000).collect()).groups().len();
    assert!((40..250).contains(&groups), "{groups}");
}

#[test]
fn a_list_of_one_chunk_is_told_from_others() {
    let only = |numbers: &[u32]| {
        list(&numbers.iter().copied().collect())
            .only_chunk()
            .map(|chunk| chunk.items().to_vec())
    };
    assert_eq!(only(&[]), None);
    assert_eq!(only(&[7]), Some(vec![7]));

    let many: Vec<u32> = (0..1_000).collect();
    assert_eq!(only(&many), None);
}

#[test]
fn items_after_the_last_one_join_its_chunk_and_group() {
    let mut all = BTreeSet::new();
    let mut grown = GroupedList::default();
    for number in 0..3_000 {
        all.insert(number);
        grown = grown.update(&BTreeSet::from([number]), &BTreeSet::new());
        assert_eq!(grown, list(&all), "{number}");
    }
    assert!(grown.update(&BTreeSet::new(), &all).is_empty());
}

#[test]
fn chunks_continue_after_any_item() {
    let all: BTreeSet<u32> = (0..20_000).collect();
    let list = list(&all);
    for last in (0..20_000).step_by(331).chain([19_999, 30_000]) {
        let further: Vec<u32> = list
            .chunks_from(|number| *number > last)
            .flat_map(Chunk::items)
            .copied()
            .filter(|number| *number > last)
            .collect();
        assert!(further.into_iter().eq(last + 1..20_000), "{last}");
    }

    let whole = list.chunks_from(|_| true).map(|chunk| chunk.items().len());
    assert_eq!(whole.sum::<usize>(), 20_000);
}

#[test]
fn one_change_among_many_items_passes_over_whole_groups() {
    let before = GroupedList::of_sorted((0..100_000).map(|number| Counted(2 * number)));
    let chunks: usize = before
        .groups()
        .iter()
        .map(|group| group.items().len())
        .sum();
    let nothing = BTreeSet::new();

    for number in [0, 77_777, 123_456, 199_998, 200_001] {
        let one = BTreeSet::from([Counted(number)]);
        let is_there = before.items().any(|item| item.0 == number);
        let work = work_of(|| {
            let after = match is_there {
                true => before.update(&nothing, &one),
                false => before.update(&one, &nothing),
            };
            assert!(!after.is_empty());
        });
        assert!(work < chunks * 2 / 3, "{work} with {chunks} chunks");
    }
}

proptest! {
    #[test]
    fn an_updated_list_equals_a_new_one(
        first in btree_set(0..20_000_u32, 0..6_000),
        steps in proptest::collection::vec(
            (btree_set(0..20_000_u32, 0..40), btree_set(0..20_000_u32, 0..40), 0..20_000_u32),
            1..8,
        ),
    ) {
        let mut present = first;
        let mut updated = list(&present);
        for (added, removed, from) in steps {
            // Scattered items, and in some steps all from one on.
            let tail = present.iter().copied().filter(|number| from > 15_000 && *number > from);
            let removed: BTreeSet<u32> = removed
                .into_iter()
                .chain(tail)
                .filter(|number| !added.contains(number))
                .collect();

            present.extend(&added);
            present.retain(|number| !removed.contains(number));
            updated = updated.update(&added, &removed);
            prop_assert_eq!(&updated, &list(&present));
            prop_assert!(numbers(&updated).into_iter().eq(present.iter().copied()));
        }
    }
}

//! The resources of a collection: a sorted list in pieces, the pieces in groups. Collections before
//! and after a change share all pieces and groups that did not change.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::FlatMap;
use std::ops::Bound;
use std::slice;
use std::sync::Arc;

use super::Resource;
use navarch_api::names::ResourceName;
use navarch_tables::hash::KeyedSet;

/// Consecutive resources of a collection, sorted by name.
pub type Piece = Arc<Vec<Arc<Resource>>>;

/// Consecutive pieces of a collection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PieceGroup {
    /// In order; no piece is empty.
    pieces: Vec<Piece>,
    /// Number of resources in all pieces.
    count: usize,
}

/// Resources sorted by name, each at most once. Collecting an iterator makes one piece: the items
/// must be sorted.
#[derive(Clone, Default)]
pub struct Resources {
    /// In order; no group is empty.
    groups: Vec<Arc<PieceGroup>>,
    /// Number of resources in all groups.
    count: usize,
}

/// Iterator over all resources by name.
pub type Iter<'a> = FlatMap<Pieces<'a>, slice::Iter<'a, Arc<Resource>>, PieceIter>;

/// Iterator over all pieces.
type Pieces<'a> = FlatMap<slice::Iter<'a, Arc<PieceGroup>>, slice::Iter<'a, Piece>, GroupIter>;

/// The iterator over the pieces of a group.
type GroupIter = fn(&Arc<PieceGroup>) -> slice::Iter<'_, Piece>;

/// The iterator over the resources of a piece.
type PieceIter = fn(&Piece) -> slice::Iter<'_, Arc<Resource>>;

impl PieceGroup {
    /// A group of consecutive pieces.
    pub(crate) fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces: Vec<Piece> = pieces
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .collect();
        let count = pieces.iter().map(|piece| piece.len()).sum();
        Self { pieces, count }
    }

    fn first(&self) -> Option<&Arc<Resource>> {
        self.pieces.first()?.first()
    }

    fn last(&self) -> Option<&Arc<Resource>> {
        self.pieces.last()?.last()
    }

    /// As [`Resources::find`].
    fn find(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        let after = self
            .pieces
            .partition_point(|piece| is_not_after(piece.first(), name));
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let at = piece
            .binary_search_by(|resource| resource.name.cmp(name))
            .ok()?;
        piece.get(at)
    }

    /// As [`Resources::replaced`].
    fn replaced(&self, names: &BTreeSet<ResourceName>, others: &Resources) -> Self {
        let replace = |resource: &Arc<Resource>| match names.contains(&resource.name) {
            true => others.find(&resource.name).cloned(),
            false => Some(resource.clone()),
        };
        let pieces = self.pieces.iter().map(|piece| {
            match is_any_between(names, piece.first(), piece.last()) {
                true => Arc::new(piece.iter().filter_map(replace).collect()),
                false => piece.clone(),
            }
        });
        Self::new(pieces)
    }
}

impl Resources {
    /// The resources of consecutive pieces, in one group.
    #[must_use]
    pub fn of_pieces(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self::of_groups([Arc::new(PieceGroup::new(pieces))])
    }

    /// The resources of consecutive groups.
    pub(crate) fn of_groups(groups: impl IntoIterator<Item = Arc<PieceGroup>>) -> Self {
        let groups: Vec<Arc<PieceGroup>> =
            groups.into_iter().filter(|group| group.count > 0).collect();
        let count = groups.iter().map(|group| group.count).sum();
        Self { groups, count }
    }

    /// Number of resources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no resources.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All resources by name.
    pub fn iter(&self) -> Iter<'_> {
        self.into_iter()
    }

    /// The first resource by name.
    #[must_use]
    pub fn first(&self) -> Option<&Arc<Resource>> {
        self.groups.first()?.first()
    }

    /// The resource of this name.
    #[must_use]
    pub fn find(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        let after = self
            .groups
            .partition_point(|group| is_not_after(group.first(), name));
        self.groups.get(after.checked_sub(1)?)?.find(name)
    }

    /// The same list, in which resources of these names are as in `others`, or missing if they are
    /// there. Groups and pieces without any are shared: the cost is proportional to the number of
    /// groups, the pieces of the other groups, and the resources of the other pieces.
    #[must_use]
    pub fn replaced(&self, names: &BTreeSet<ResourceName>, others: &Self) -> Self {
        let groups = self.groups.iter().map(|group| {
            match is_any_between(names, group.first(), group.last()) {
                true => Arc::new(group.replaced(names, others)),
                false => group.clone(),
            }
        });
        Self::of_groups(groups)
    }

    /// The resources of each list, by name, that are in no shared piece: all differences are among
    /// them. The cost is proportional to the number of groups, the pieces of groups that are not
    /// shared, and these resources.
    pub fn apart<'a>(
        &'a self,
        other: &'a Self,
    ) -> [impl Iterator<Item = &'a Arc<Resource>> + Clone + use<'a>; 2] {
        // Names are unique, so that a piece in a shared group is in no other group.
        let groups = unshared([&self.groups, &other.groups].map(|groups| groups.iter()));
        let pieces = groups.map(|groups| groups.into_iter().flat_map(|group| group.pieces.iter()));
        unshared(pieces).map(|pieces| pieces.into_iter().flat_map(|piece| piece.iter()))
    }
}

/// Whether the first resource of some, if there is one, has this name or one before it.
fn is_not_after(first: Option<&Arc<Resource>>, name: &ResourceName) -> bool {
    first.is_some_and(|first| first.name <= *name)
}

/// Whether any of the names may belong to a list with these ends.
fn is_any_between(
    names: &BTreeSet<ResourceName>,
    first: Option<&Arc<Resource>>,
    last: Option<&Arc<Resource>>,
) -> bool {
    first.zip(last).is_some_and(|(first, last)| {
        let range = (Bound::Included(&first.name), Bound::Included(&last.name));
        names.range::<ResourceName, _>(range).next().is_some()
    })
}

/// The entries of each list that are not in the other one, by identity.
fn unshared<'a, T: 'a>(
    lists: [impl Iterator<Item = &'a Arc<T>> + Clone; 2],
) -> [Vec<&'a Arc<T>>; 2] {
    let place = |entry: &Arc<T>| Arc::as_ptr(entry).addr();
    let [own, others] = lists;
    let in_own: KeyedSet<usize> = own.clone().map(place).collect();
    let in_others: KeyedSet<usize> = others.clone().map(place).collect();
    [
        own.filter(|entry| !in_others.contains(&place(entry)))
            .collect(),
        others
            .filter(|entry| !in_own.contains(&place(entry)))
            .collect(),
    ]
}

impl<'a> IntoIterator for &'a Resources {
    type Item = &'a Arc<Resource>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        let pieces: GroupIter = |group| group.pieces.iter();
        let resources: PieceIter = |piece| piece.iter();
        self.groups.iter().flat_map(pieces).flat_map(resources)
    }
}

impl FromIterator<Arc<Resource>> for Resources {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Self {
        Self::of_pieces([Arc::new(resources.into_iter().collect())])
    }
}

impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        if self.count != other.count {
            return false;
        }
        let [own, others] = self.apart(other);
        own.eq(others)
    }
}

impl Eq for Resources {}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::resource::ResourceType;

    fn piece(resources: &[(&str, &str)]) -> Piece {
        let one = |(name, body): &(&str, &str)| {
            let body = Bytes::copy_from_slice(body.as_bytes());
            Arc::new(Resource::new(
                ResourceType::Cluster,
                ResourceName::new(name),
                body,
            ))
        };
        Arc::new(resources.iter().map(one).collect())
    }

    fn names<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> Vec<&'a str> {
        resources.map(|resource| resource.name.as_str()).collect()
    }

    #[test]
    fn pieces_are_one_list() {
        let pieces = [
            piece(&[]),
            piece(&[("b", "1"), ("d", "1")]),
            piece(&[]),
            piece(&[("f", "1")]),
        ];

        let all = Resources::of_pieces(pieces);
        assert_eq!(
            (all.len(), all.is_empty(), names(all.iter())),
            (3, false, vec!["b", "d", "f"])
        );
        assert_eq!(all.first().map(|first| first.name.as_str()), Some("b"));

        for (name, there) in [
            ("a", false),
            ("b", true),
            ("c", false),
            ("d", true),
            ("e", false),
            ("f", true),
            ("g", false),
        ] {
            assert_eq!(
                all.find(&ResourceName::new(name))
                    .map(|found| found.name.as_str()),
                there.then_some(name)
            );
        }

        assert!(Resources::default().find(&ResourceName::new("a")).is_none());
    }

    #[test]
    fn lists_are_equal_however_they_are_cut() {
        let a = piece(&[("a", "1")]);
        let b = piece(&[("b", "1")]);
        let cut = Resources::of_pieces([a.clone(), b]);
        let whole: Resources = piece(&[("a", "1"), ("b", "1")]).iter().cloned().collect();
        assert_eq!(cut, whole);
        assert_ne!(cut, Resources::of_pieces([a.clone(), piece(&[("b", "2")])]));
        assert_ne!(cut, Resources::of_pieces([a]));
    }

    #[test]
    fn a_diff_skips_shared_pieces() {
        let a = piece(&[("a", "1")]);
        let c = piece(&[("c", "1"), ("d", "1")]);
        let old = Resources::of_pieces([a.clone(), piece(&[("b", "1")]), c.clone()]);
        let new = Resources::of_pieces([a, piece(&[("b", "2")]), piece(&[("bb", "1")]), c]);
        let [before, after] = old.apart(&new);
        assert_eq!((names(before), names(after)), (vec!["b"], vec!["b", "bb"]));
    }

    #[test]
    fn a_diff_finds_shared_pieces_in_other_groups() {
        let group = |pieces: &[&Piece]| Arc::new(PieceGroup::new(pieces.iter().copied().cloned()));
        let a = piece(&[("a", "1")]);
        let b = piece(&[("b", "1")]);
        let c = piece(&[("c", "1")]);
        let d = piece(&[("d", "1")]);
        let changed = piece(&[("b", "2")]);
        let shared = group(&[&d]);

        let old = Resources::of_groups([group(&[&a, &b]), group(&[&c]), shared.clone()]);
        let new = Resources::of_groups([group(&[&a]), group(&[]), group(&[&changed, &c]), shared]);
        let [before, after] = old.apart(&new);
        assert_eq!((names(before), names(after)), (vec!["b"], vec!["b"]));
        assert_ne!(old, new);

        let same = Resources::of_pieces([a, b, c, d]);
        assert_eq!(old, same);
        assert_eq!(names(same.iter()), names(new.iter()));
        for name in ["a", "b", "c", "d"] {
            assert!(new.find(&ResourceName::new(name)).is_some(), "{name}");
        }
        assert!(new.find(&ResourceName::new("bb")).is_none());
    }

    #[test]
    fn replaced_resources_are_those_of_another_list_or_missing() {
        let kept = piece(&[("a", "1"), ("b", "1")]);
        let all = Resources::of_pieces([kept.clone(), piece(&[("c", "1"), ("d", "1")])]);
        let names: BTreeSet<ResourceName> = ["bb", "c", "d"].map(ResourceName::new).into();
        let others = Resources::of_pieces([piece(&[("bb", "0"), ("c", "0"), ("e", "0")])]);

        let replaced = all.replaced(&names, &others);
        let expected = Resources::of_pieces([kept.clone(), piece(&[("c", "0")])]);
        assert_eq!(replaced, expected);
        assert!(
            replaced
                .groups
                .iter()
                .flat_map(|group| &group.pieces)
                .any(|piece| Arc::ptr_eq(piece, &kept))
        );
        assert_eq!(all.replaced(&BTreeSet::new(), &others), all);
    }
}

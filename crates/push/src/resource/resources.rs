//! The resources of a collection: a sorted list in pieces. Collections before and after a change
//! share all pieces that did not change.

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

/// Resources sorted by name, each at most once. Collecting an iterator makes one piece: the items
/// must be sorted.
#[derive(Clone, Default)]
pub struct Resources {
    /// In order; no piece is empty.
    pieces: Vec<Piece>,
    /// Number of resources in all pieces.
    count: usize,
}

/// Iterator over all resources by name.
pub type Iter<'a> = FlatMap<slice::Iter<'a, Piece>, slice::Iter<'a, Arc<Resource>>, PieceIter>;

/// The iterator over the resources of a piece.
type PieceIter = fn(&Piece) -> slice::Iter<'_, Arc<Resource>>;

impl Resources {
    /// The resources of consecutive pieces.
    #[must_use]
    pub fn of_pieces(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces: Vec<Piece> = pieces
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .collect();
        let count = pieces.iter().map(|piece| piece.len()).sum();
        Self { pieces, count }
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
        self.pieces.first()?.first()
    }

    /// The resource of this name.
    #[must_use]
    pub fn find(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        let after = self
            .pieces
            .partition_point(|piece| piece.first().is_some_and(|first| first.name <= *name));
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let at = piece
            .binary_search_by(|resource| resource.name.cmp(name))
            .ok()?;
        piece.get(at)
    }

    /// The same list, in which resources of these names are as in `others`, or missing if they are
    /// there. Pieces without any are shared: the cost is proportional to the number of pieces, and to
    /// the resources of the others.
    #[must_use]
    pub fn replaced(&self, names: &BTreeSet<ResourceName>, others: &Self) -> Self {
        let replace = |resource: &Arc<Resource>| match names.contains(&resource.name) {
            true => others.find(&resource.name).cloned(),
            false => Some(resource.clone()),
        };
        let pieces = self.pieces.iter().map(|piece| {
            let ends = piece.first().zip(piece.last());
            let is_concerned = ends.is_some_and(|(first, last)| {
                let range = (Bound::Included(&first.name), Bound::Included(&last.name));
                names.range::<ResourceName, _>(range).next().is_some()
            });
            match is_concerned {
                true => Arc::new(piece.iter().filter_map(replace).collect()),
                false => piece.clone(),
            }
        });
        Self::of_pieces(pieces)
    }

    /// The resources of each list, by name, that are in no shared piece: all differences are among
    /// them. The cost is proportional to the number of pieces and of these resources.
    pub fn apart<'a>(
        &'a self,
        other: &'a Self,
    ) -> [impl Iterator<Item = &'a Arc<Resource>> + Clone + use<'a>; 2] {
        let places = |of: &Self| {
            of.pieces
                .iter()
                .map(|piece| Arc::as_ptr(piece).addr())
                .collect::<KeyedSet<usize>>()
        };
        let own = places(self);
        let others = places(other);
        let walk = |of: &'a Self, in_other: KeyedSet<usize>| {
            let pieces: Vec<&'a Piece> = of
                .pieces
                .iter()
                .filter(|piece| !in_other.contains(&Arc::as_ptr(piece).addr()))
                .collect();
            pieces.into_iter().flat_map(|piece| piece.iter())
        };
        [walk(self, others), walk(other, own)]
    }
}

impl<'a> IntoIterator for &'a Resources {
    type Item = &'a Arc<Resource>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        let walk: PieceIter = |piece| piece.iter();
        self.pieces.iter().flat_map(walk)
    }
}

impl FromIterator<Arc<Resource>> for Resources {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Self {
        Self::of_pieces([Arc::new(resources.into_iter().collect())])
    }
}

impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        let [mut own, mut others] = self.apart(other);
        self.count == other.count && own.by_ref().eq(others.by_ref())
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
                .pieces
                .iter()
                .any(|piece| Arc::ptr_eq(piece, &kept))
        );
        assert_eq!(all.replaced(&BTreeSet::new(), &others), all);
    }
}

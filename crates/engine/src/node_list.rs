//! Lists of results that read a fact or a result. Most have one entry, which is stored inline; a
//! `Vec` would take 24 bytes and an allocation for four entries.

use super::ids::NodeId;
use navarch_tables::growth::push_tight;

/// Ids of results, in insertion order until they are sorted.
#[derive(Clone, Default)]
pub(crate) struct NodeList(Entries);

#[derive(Clone, Default)]
enum Entries {
    #[default]
    None,
    One(NodeId),
    Many(Box<Many>),
}

#[derive(Clone)]
struct Many(Vec<NodeId>);

impl NodeList {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[NodeId] {
        match &self.0 {
            Entries::None => &[],
            Entries::One(id) => std::slice::from_ref(id),
            Entries::Many(many) => &many.0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    #[inline]
    pub(crate) fn push(&mut self, id: NodeId) {
        match &mut self.0 {
            Entries::None => self.0 = Entries::One(id),
            Entries::One(first) => self.0 = Entries::Many(Box::new(Many(vec![*first, id]))),
            Entries::Many(many) => push_tight(&mut many.0, id),
        }
    }

    /// Sorts the list and removes repeated ids.
    pub(crate) fn sort_and_dedup(&mut self) {
        if let Entries::Many(many) = &mut self.0 {
            many.0.sort_unstable();
            many.0.dedup();
        }
    }

    /// Removes the ids for which `keeps` returns false, and frees unused capacity.
    pub(crate) fn retain_and_shrink(&mut self, keeps: impl Fn(&NodeId) -> bool) {
        self.retain(keeps);
        if let Entries::Many(many) = &mut self.0 {
            match many.0[..] {
                [] => self.0 = Entries::None,
                [one] => self.0 = Entries::One(one),
                _ => many.0.shrink_to_fit(),
            }
        }
    }

    /// Removes the ids for which `keeps` returns false.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&NodeId) -> bool) {
        match &mut self.0 {
            Entries::One(id) if !keeps(id) => self.0 = Entries::None,
            Entries::None | Entries::One(_) => {}
            Entries::Many(many) => many.0.retain(keeps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_lists_contain_pushed_and_not_removed_nodes() {
        let mut list = NodeList::default();
        assert!(list.is_empty());
        for id in [7, 3, 7, 5] {
            list.push(NodeId(id));
        }

        assert_eq!(list.as_slice(), [7, 3, 7, 5].map(NodeId));
        list.sort_and_dedup();
        assert_eq!(list.as_slice(), [3, 5, 7].map(NodeId));
        list.retain(|id| *id != NodeId(5));
        assert_eq!(
            (list.as_slice(), list.len()),
            (&[NodeId(3), NodeId(7)][..], 2)
        );

        list.retain_and_shrink(|id| *id == NodeId(7));
        assert!(matches!(list.0, Entries::One(NodeId(7))));
        list.retain(|_| false);
        assert!(list.is_empty());
        list.push(NodeId(1));
        assert_eq!(list.as_slice(), [NodeId(1)]);
    }
}

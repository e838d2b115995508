//! The decision tree that finds a query's node for a subscriber.
//!
//! A tree reads exactly the attributes that computations read, in the same order; a leaf is reached
//! exactly if the recorded values are the subscriber's.

use super::ids::{AttrId, NodeId, ValueId};
use navarch_tables::hash::KeyedMap;

/// Finds the node for a subscriber.
#[derive(Clone)]
pub(crate) enum Tree {
    /// All attributes are read.
    Leaf(NodeId),
    /// The next attribute. Boxed: there is a tree for each query, and most are leaves.
    Branch(Box<Branch>),
}

/// An attribute and the subtree of each of its values.
#[derive(Clone)]
pub(crate) struct Branch {
    pub(crate) attr: AttrId,
    /// The subtree of each value.
    pub(crate) children: Children,
}

/// Subtrees by value. Most attributes only ever have one value, for which a table would allocate
/// room for four.
#[derive(Clone)]
pub(crate) enum Children {
    /// One value.
    One(ValueId, Box<Option<Tree>>),
    /// Several values, or one that remains of several; never empty.
    Many(Box<KeyedMap<ValueId, Option<Tree>>>),
}

impl Children {
    /// The subtree of a value.
    #[inline]
    pub(crate) fn get(&self, value: &ValueId) -> Option<&Tree> {
        match self {
            Self::One(known, tree) if known == value => tree.as_ref().as_ref(),
            Self::One(..) => None,
            Self::Many(trees) => trees.get(value)?.as_ref(),
        }
    }

    /// The slot of a value, inserted if missing. A caller that inserts it fills it.
    fn place(&mut self, value: ValueId) -> &mut Option<Tree> {
        if let Self::One(known, tree) = self
            && *known != value
        {
            *self = Self::Many(Box::new(KeyedMap::from_iter([(*known, tree.take())])));
        }
        match self {
            Self::One(_, tree) => tree,
            Self::Many(trees) => trees.entry(value).or_default(),
        }
    }

    /// Removes `node` from the path of a value and `rest`. Returns whether the table is now
    /// empty.
    fn remove(&mut self, value: ValueId, rest: &[(AttrId, ValueId)], node: NodeId) -> bool {
        match self {
            Self::One(known, tree) => {
                if *known == value {
                    Tree::remove(tree, rest, node);
                }
                tree.is_none()
            }
            Self::Many(trees) => {
                if let Some(tree) = trees.get_mut(&value) {
                    Tree::remove(tree, rest, node);
                    if tree.is_none() {
                        trees.remove(&value);
                    }
                }
                trees.is_empty()
            }
        }
    }
}

impl Tree {
    /// A path through all `attrs` to `node`.
    fn path(attrs: &[(AttrId, ValueId)], node: NodeId) -> Self {
        attrs
            .iter()
            .rev()
            .fold(Self::Leaf(node), |below, (attr, value)| {
                Self::Branch(Box::new(Branch {
                    attr: *attr,
                    children: Children::One(*value, Box::new(Some(below))),
                }))
            })
    }

    /// Inserts `node` at the path of `attrs`. Leaves with other attributes on this path are out of
    /// date and are added to `dropped`.
    pub(crate) fn insert(
        slot: &mut Option<Self>,
        attrs: &[(AttrId, ValueId)],
        node: NodeId,
        dropped: &mut Vec<NodeId>,
    ) {
        let Some(tree) = slot else {
            *slot = Some(Self::path(attrs, node));
            return;
        };
        match (tree, attrs) {
            (Self::Branch(branch), [(attr, value), rest @ ..]) if branch.attr == *attr => {
                Self::insert(branch.children.place(*value), rest, node, dropped);
            }
            (stale, _) => {
                stale.leaves(dropped);
                dropped.retain(|id| *id != node);
                *stale = Self::path(attrs, node);
            }
        }
    }

    /// Removes the leaf `node` from the path of `attrs`.
    pub(crate) fn remove(slot: &mut Option<Self>, attrs: &[(AttrId, ValueId)], node: NodeId) {
        let empty = match (slot.as_mut(), attrs) {
            (Some(Self::Leaf(id)), []) => *id == node,
            (Some(Self::Branch(branch)), [(attr, value), rest @ ..]) if branch.attr == *attr => {
                branch.children.remove(*value, rest, node)
            }
            _ => false,
        };
        if empty {
            *slot = None;
        }
    }

    /// All leaves below.
    fn leaves(&self, into: &mut Vec<NodeId>) {
        match self {
            Self::Leaf(id) => into.push(*id),
            Self::Branch(branch) => match &branch.children {
                Children::One(_, child) => child.iter().for_each(|child| child.leaves(into)),
                Children::Many(trees) => trees
                    .values()
                    .flatten()
                    .for_each(|child| child.leaves(into)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute and its value.
    fn read(attr: usize, value: usize) -> (AttrId, ValueId) {
        (AttrId(attr), ValueId(value))
    }

    /// Where these values lead.
    fn find(tree: Option<&Tree>, attrs: &[(AttrId, ValueId)]) -> Option<u64> {
        match (tree?, attrs) {
            (Tree::Leaf(id), []) => Some(id.0),
            (Tree::Branch(branch), [(attr, value), rest @ ..]) if branch.attr == *attr => {
                find(branch.children.get(value), rest)
            }
            _ => None,
        }
    }

    #[test]
    fn each_value_selects_its_own_node() {
        let mut tree = None;
        let mut dropped = Vec::new();
        let paths = [
            [read(1, 1), read(2, 1)],
            [read(1, 1), read(2, 2)],
            [read(1, 2), read(3, 1)],
        ];
        for (node, path) in paths.iter().enumerate() {
            Tree::insert(&mut tree, path, NodeId(node as u64), &mut dropped);
        }

        assert!(dropped.is_empty());
        for (node, path) in paths.iter().enumerate() {
            assert_eq!(find(tree.as_ref(), path), Some(node as u64));
        }

        assert_eq!(find(tree.as_ref(), &[read(1, 3), read(2, 1)]), None);
        Tree::remove(&mut tree, &paths[1], NodeId(7));
        assert_eq!(
            find(tree.as_ref(), &paths[1]),
            Some(1),
            "that was another node"
        );

        for (node, path) in paths.iter().enumerate() {
            Tree::remove(&mut tree, path, NodeId(node as u64));
            assert_eq!(find(tree.as_ref(), path), None);
        }

        assert!(tree.is_none());
    }

    #[test]
    fn different_attributes_drop_the_previous_nodes() {
        let mut tree = None;
        let mut dropped = Vec::new();
        Tree::insert(
            &mut tree,
            &[read(1, 1), read(2, 1)],
            NodeId(1),
            &mut dropped,
        );
        Tree::insert(
            &mut tree,
            &[read(1, 1), read(2, 2)],
            NodeId(2),
            &mut dropped,
        );
        Tree::insert(
            &mut tree,
            &[read(1, 1), read(3, 1)],
            NodeId(3),
            &mut dropped,
        );
        dropped.sort_unstable();
        assert_eq!(dropped, [NodeId(1), NodeId(2)]);
        assert_eq!(find(tree.as_ref(), &[read(1, 1), read(3, 1)]), Some(3));
        Tree::insert(&mut tree, &[], NodeId(4), &mut dropped);
        assert_eq!(find(tree.as_ref(), &[]), Some(4));
    }
}

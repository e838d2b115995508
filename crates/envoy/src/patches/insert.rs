//! Insertion into, and removal from, ordered lists.

use navarch_api::istio::PatchOperation;

/// Applies a patch operation other than MERGE to a list, and returns whether it changed the list.
/// `matches` selects the items; `selective` is whether the patch selects any: otherwise, insertion
/// is at the ends, and nothing is replaced or removed.
pub(super) fn place<T>(
    list: &mut Vec<T>,
    operation: PatchOperation,
    value: Option<T>,
    selective: bool,
    matches: impl Fn(&T) -> bool,
) -> bool {
    let found = list.iter().position(&matches);

    match (operation, value) {
        (PatchOperation::Add, Some(value)) => list.push(value),
        (PatchOperation::InsertFirst, Some(value)) => list.insert(0, value),
        (PatchOperation::InsertAfter, Some(value)) if !selective => list.push(value),
        (PatchOperation::InsertBefore, Some(value)) if !selective => list.insert(0, value),
        (PatchOperation::InsertAfter, Some(value)) => match found {
            Some(found) => list.insert(found + 1, value),
            None => return false,
        },
        (PatchOperation::InsertBefore, Some(value)) => match found {
            Some(found) => list.insert(found, value),
            None => return false,
        },
        (PatchOperation::Replace, Some(value)) if selective => {
            match found.and_then(|found| list.get_mut(found)) {
                Some(item) => *item = value,
                None => return false,
            }
        }
        (PatchOperation::Remove, _) if selective => {
            list.retain(|item| !matches(item));
            return found.is_some();
        }
        (
            PatchOperation::Invalid
            | PatchOperation::Merge
            | PatchOperation::MergeAndReplaceList
            | PatchOperation::Add
            | PatchOperation::InsertFirst
            | PatchOperation::InsertAfter
            | PatchOperation::InsertBefore
            | PatchOperation::Replace
            | PatchOperation::Remove,
            _,
        ) => return false,
    }

    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list `abb` after `x` is inserted, relative to `b` if `selective`.
    fn placed(operation: PatchOperation, selective: bool) -> String {
        let mut list = vec!['a', 'b', 'b'];
        place(&mut list, operation, Some('x'), selective, |item| {
            !selective || *item == 'b'
        });
        list.into_iter().collect()
    }

    #[test]
    fn named_patches_are_placed_relative_to_their_match() {
        assert_eq!(placed(PatchOperation::Add, true), "abbx");
        assert_eq!(placed(PatchOperation::InsertFirst, true), "xabb");
        assert_eq!(placed(PatchOperation::InsertBefore, true), "axbb");
        assert_eq!(placed(PatchOperation::InsertAfter, true), "abxb");
        assert_eq!(placed(PatchOperation::Replace, true), "axb");
        assert_eq!(placed(PatchOperation::Remove, true), "a");
        assert_eq!(placed(PatchOperation::Merge, true), "abb");
    }

    #[test]
    fn unnamed_patches_apply_at_the_ends() {
        assert_eq!(placed(PatchOperation::InsertBefore, false), "xabb");
        assert_eq!(placed(PatchOperation::InsertAfter, false), "abbx");
        assert_eq!(placed(PatchOperation::Replace, false), "abb");
        assert_eq!(placed(PatchOperation::Remove, false), "abb");
    }
}

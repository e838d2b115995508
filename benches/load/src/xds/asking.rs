//! Subscriptions that follow from resources of another type: clusters refer to endpoints, listeners
//! to routes.

use crate::xds::names::Id;

/// The names to which one resource refers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asks {
    #[default]
    Nothing,
    /// One name, which is by far the most frequent case.
    One(Id),
    Several(Box<[Id]>),
}

impl Asks {
    /// From a list of names.
    pub(crate) fn of(names: &[Id]) -> Self {
        match names {
            [] => Self::Nothing,
            [one] => Self::One(*one),
            several => Self::Several(several.into()),
        }
    }

    fn names(&self) -> &[Id] {
        match self {
            Self::Nothing => &[],
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// The references to a name.
#[derive(Clone, Copy, Debug, Default)]
struct Want {
    /// The number of resources that refer to it.
    times: u32,
    /// Whether no response has contained it since the first reference.
    is_missing: bool,
}

/// The references of all resources of one type, in vectors indexed by number: the state of a
/// thousand proxies does not fit into the CPU's cache, and an access to a vector costs one cache
/// miss.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// The references of each resource.
    asks: Vec<Asks>,
    /// The references to each name.
    wants: Vec<Want>,
    /// The number of names that no response has contained yet.
    missing: usize,
}

/// A change of the subscription.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Names to subscribe to.
    pub(crate) more: Vec<Id>,
    /// Names to unsubscribe from.
    pub(crate) less: Vec<Id>,
}

impl Asking {
    /// Replaces the references of a resource.
    pub(crate) fn replace(&mut self, resource: Id, asks: Asks, difference: &mut Difference) {
        let place = place(&mut self.asks, resource);
        if *place == asks {
            return;
        }

        for name in asks.names() {
            let want = self::place(&mut self.wants, *name);
            want.times += 1;
            if want.times == 1 {
                want.is_missing = true;
                self.missing += 1;
                difference.more.push(*name);
            }
        }

        for name in std::mem::replace(place, asks).names() {
            let want = self::place(&mut self.wants, *name);
            want.times = want.times.saturating_sub(1);
            if want.times == 0 {
                self.missing -= usize::from(std::mem::take(want).is_missing);
                difference.less.push(*name);
            }
        }
    }

    /// A response contained these names, as resources or as removed.
    pub(crate) fn mark_received(&mut self, names: impl Iterator<Item = Id>) {
        if self.missing == 0 {
            return;
        }
        for name in names {
            if let Some(want) = self
                .wants
                .get_mut(name as usize)
                .filter(|want| want.is_missing)
            {
                want.is_missing = false;
                self.missing -= 1;
            }
        }
    }

    /// Whether responses have contained all names.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// All names of the subscription.
    pub(crate) fn names(&self) -> impl Iterator<Item = Id> {
        (0..)
            .zip(&self.wants)
            .filter(|(_, want)| want.times > 0)
            .map(|(name, _)| name)
    }
}

/// The element at a number; the vector is extended if it is too short.
pub(crate) fn place<T: Clone + Default>(row: &mut Vec<T>, number: Id) -> &mut T {
    let place = number as usize;
    if row.len() <= place {
        row.resize(place + 1, T::default());
    }
    #[expect(
        clippy::indexing_slicing,
        reason = "the row was just extended beyond that index"
    )]
    &mut row[place]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_subscribed_while_any_resource_refers_to_it() {
        let mut asking = Asking::default();
        let mut replace = |resource, names: &[Id]| {
            let mut difference = Difference::default();
            asking.replace(resource, Asks::of(names), &mut difference);
            let Difference { more, less } = difference;
            (
                more,
                less,
                asking.missing,
                asking.names().collect::<Vec<_>>(),
            )
        };

        assert_eq!(replace(1, &[5, 9]), (vec![5, 9], vec![], 2, vec![5, 9]));
        assert_eq!(replace(1, &[5, 9]), (vec![], vec![], 2, vec![5, 9]));
        assert_eq!(replace(2, &[5]), (vec![], vec![], 2, vec![5, 9]));
        assert_eq!(replace(1, &[9]), (vec![], vec![], 2, vec![5, 9]));
        assert_eq!(replace(2, &[9, 7]), (vec![7], vec![5], 2, vec![7, 9]));
        asking.mark_received([5, 7, 7, 100].into_iter());
        assert_eq!((asking.missing, asking.is_complete()), (1, false));
        asking.mark_received([9].into_iter());

        assert!(asking.is_complete());
        let mut difference = Difference::default();
        asking.replace(2, Asks::Nothing, &mut difference);
        assert_eq!(
            difference,
            Difference {
                more: vec![],
                less: vec![7]
            }
        );

        asking.replace(3, Asks::One(7), &mut difference);
        assert!(
            !asking.is_complete(),
            "released resources must be sent again"
        );
    }
}

//! The sets of names in subscriptions: each is written once, as a difference to the previous one if
//! that is shorter.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch_api::names::ResourceName;
use navarch_tables::hash::KeyedMap;

use super::format::NameSet;

/// A shared set of names.
pub(crate) type Names = Arc<BTreeSet<ResourceName>>;

/// The sets of a segment.
#[derive(Debug, Default)]
pub(crate) struct NameSets {
    numbers: KeyedMap<Names, u64>,
}

impl NameSets {
    /// The number of a set, and its definition unless that was written. `before` is the previous
    /// subscription.
    pub(crate) fn number(
        &mut self,
        names: &Names,
        before: Option<&Names>,
    ) -> (u64, Option<NameSet>) {
        if let Some(number) = self.numbers.get(names) {
            return (*number, None);
        }

        let number = u64::try_from(self.numbers.len()).unwrap_or(u64::MAX) + 1;
        let from = before.and_then(|before| Some((before, *self.numbers.get(before)?)));
        let texts = |names: &mut dyn Iterator<Item = &ResourceName>| {
            names.map(ToString::to_string).collect()
        };
        let difference = from.map(|(before, from)| NameSet {
            set: number,
            from: Some(from),
            add: texts(&mut names.difference(before)),
            remove: texts(&mut before.difference(names)),
        });

        let shorter = difference
            .filter(|difference| difference.add.len() + difference.remove.len() < names.len());
        let whole = || NameSet {
            set: number,
            from: None,
            add: texts(&mut names.iter()),
            remove: Vec::new(),
        };

        self.numbers.insert(names.clone(), number);
        (number, Some(shorter.unwrap_or_else(whole)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct DefinedSets {
    sets: KeyedMap<u64, Names>,
}

impl DefinedSets {
    /// Adds a set. False if it is a difference to one that is unknown.
    pub(crate) fn add(&mut self, set: NameSet) -> bool {
        let mut names = match set.from {
            None => BTreeSet::new(),
            Some(from) => match self.sets.get(&from) {
                Some(names) => (**names).clone(),
                None => return false,
            },
        };
        for name in set.remove {
            names.remove(&ResourceName::new(name));
        }
        names.extend(set.add.into_iter().map(ResourceName::new));
        self.sets.insert(set.set, Arc::new(names));
        true
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Names> {
        self.sets.get(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_sets_are_recorded_once_and_then_as_differences() {
        let set =
            |names: &[&str]| Arc::new(names.iter().map(ResourceName::new).collect::<BTreeSet<_>>());
        let first = set(&["a", "b", "c"]);
        let second = set(&["a", "b", "d"]);
        let mut sets = NameSets::default();
        let mut defined = DefinedSets::default();
        let (one, line) = sets.number(&first, None);
        assert!(defined.add(line.unwrap()));

        assert_eq!(sets.number(&set(&["a", "b", "c"]), None), (one, None));
        let (two, line) = sets.number(&second, Some(&first));
        let line = line.unwrap();
        assert_eq!(
            (line.from, &line.add, &line.remove),
            (Some(one), &vec!["d".to_owned()], &vec!["c".to_owned()])
        );
        assert!(defined.add(line));

        assert_eq!(
            (defined.get(one), defined.get(two)),
            (Some(&first), Some(&second))
        );
        assert!(!defined.add(NameSet {
            set: 9,
            from: Some(8),
            ..NameSet::default()
        }));
    }
}

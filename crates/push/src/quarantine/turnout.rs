//! Who of those that decided a quarantine is connected to a replica, and who is against them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::instance::{Instance, find, instances_from_json, instances_to_json};

/// Who of the deciders is connected, and who is against them, at one replica or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turnout {
    /// Deciders that are connected.
    pub deciders: BTreeSet<Instance>,
    /// Other workloads that the object reaches, or might reach.
    pub opponents: BTreeSet<Instance>,
    /// The number of connected deciders that replicas have no room to list: any of them.
    pub unlisted_deciders: usize,
    /// The number of all opponents at a replica that has no room to list them: the highest of
    /// several, since two replicas may count the same.
    pub min_opponents: usize,
    /// The number of clients without a voice that the object reaches, or might reach.
    pub strangers: usize,
    /// Whether the object reaches clients of other namespaces, or without a voice: they are
    /// opponents once no decider is left.
    pub reaches_outside: bool,
}

impl Turnout {
    /// Adds that of another replica.
    pub fn add(&mut self, other: Self) {
        add_once(&mut self.deciders, other.deciders);
        add_once(&mut self.opponents, other.opponents);
        let unlisted = self.unlisted_deciders;
        self.unlisted_deciders = unlisted.saturating_add(other.unlisted_deciders);
        self.min_opponents = self.min_opponents.max(other.min_opponents);
        self.strangers = self.strangers.saturating_add(other.strangers);
        self.reaches_outside |= other.reaches_outside;
    }

    /// As JSON, for other replicas: the deciders with `true`, the opponents with `false`. If there
    /// are too many to list, the numbers tell how many are missing.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let deciders = self.deciders.iter().map(|one| (one, &true));
        let opponents = self.opponents.iter().map(|one| (one, &false));
        let listed = instances_to_json(in_turn(deciders, opponents));
        json!({
            "workloads": listed.json,
            "deciders": self.deciders.len(),
            "opponents": self.opponents.len(),
            "strangers": self.strangers,
            "reachesOutside": self.reaches_outside,
        })
    }

    /// Reads what [`Turnout::to_json`] wrote, or an earlier release, which wrote no numbers; `None`
    /// if it is not valid.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| match value.get(name) {
            Some(number) => usize::try_from(number.as_u64()?).ok(),
            None => Some(0),
        };
        let deciders = number("deciders")?;
        let opponents = number("opponents")?;

        let mut turnout = Self {
            strangers: usize::try_from(value.get("strangers")?.as_u64()?).ok()?,
            reaches_outside: value.get("reachesOutside")?.as_bool()?,
            ..Self::default()
        };
        for (instance, is_decider) in instances_from_json(value.get("workloads")?)? {
            let place = if is_decider {
                &mut turnout.deciders
            } else {
                &mut turnout.opponents
            };
            place.insert(instance);
        }

        turnout.unlisted_deciders = deciders.saturating_sub(turnout.deciders.len());
        if opponents > turnout.opponents.len() {
            turnout.min_opponents = opponents;
        }
        Some(turnout)
    }
}

/// Adds workloads to a set that has not the same ones.
fn add_once(set: &mut BTreeSet<Instance>, others: BTreeSet<Instance>) {
    for one in others {
        if find(set, &one).is_none() {
            set.insert(one);
        }
    }
}

/// The items of both in turn, so that neither takes the room of the other.
fn in_turn<T>(
    mut one: impl Iterator<Item = T>,
    mut other: impl Iterator<Item = T>,
) -> impl Iterator<Item = T> {
    let mut is_others = true;
    std::iter::from_fn(move || {
        is_others = !is_others;
        if is_others {
            other.next().or_else(|| one.next())
        } else {
            one.next().or_else(|| other.next())
        }
    })
}

#[cfg(test)]
mod tests {
    use navarch_api::object::NamespacedName;

    use super::super::instance::Mark;
    use super::*;

    /// Workloads with long names: some 400 reach the size limit of a list.
    fn many(prefix: &str, count: usize) -> BTreeSet<Instance> {
        let name = "w".repeat(150);
        let instance = |number| Instance {
            workload: NamespacedName::new("shop", &format!("{prefix}-{number}-{name}")),
            mark: Mark::Uid("u".into()),
        };
        (0..count).map(instance).collect()
    }

    #[test]
    fn a_turnout_without_room_for_all_tells_how_many_there_are() {
        let turnout = Turnout {
            deciders: many("decider", 1_000),
            opponents: many("opponent", 2_000),
            ..Turnout::default()
        };
        let read = Turnout::from_json(&turnout.to_json()).unwrap();

        let listed = read.deciders.len();
        assert!(listed > 100, "opponents do not take all of the room");
        assert_eq!(read.unlisted_deciders, 1_000 - listed);
        assert!(read.opponents.len() > 100, "nor do deciders");
        assert_eq!(read.min_opponents, 2_000);

        // Two replicas may count the same opponents.
        let mut sum = read.clone();
        sum.add(read);
        assert_eq!(sum.unlisted_deciders, 2 * (1_000 - listed));
        assert_eq!(sum.min_opponents, 2_000);
    }

    #[test]
    fn turnouts_of_an_earlier_release_have_no_numbers() {
        let json = json!({
            "workloads": { "shop/web-1@a": true, "shop/web-2@b": false },
            "strangers": 0, "reachesOutside": false,
        });
        let read = Turnout::from_json(&json).unwrap();
        assert_eq!((read.deciders.len(), read.opponents.len()), (1, 1));
        assert_eq!((read.unlisted_deciders, read.min_opponents), (0, 0));
    }
}

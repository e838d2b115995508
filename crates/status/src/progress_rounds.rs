//! Which objects are checked in each round, and their progress so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::distribution::Progresses;
use super::reconciled::Progress;
use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;

/// Number of objects with a correct status that are checked per round, because proxies come and go.
const IN_TURN: usize = 100;

/// Follows the progress of all objects in rounds: changed and pending ones are checked in each
/// round, the others in turn.
#[derive(Debug, Default)]
pub struct ProgressRounds {
    known: BTreeMap<ObjectRef, Progress>,
    /// The index of the first of the objects whose turn it is.
    turn: usize,
    /// Whether objects have gone since the last result.
    is_fewer: bool,
}

impl ProgressRounds {
    /// Begins a round with `all` objects of the mesh, and returns those that are checked in it.
    pub fn begin(&mut self, mut all: Vec<AnyObject>) -> Vec<AnyObject> {
        let number = all.len();
        let before = self.known.len();
        let names: BTreeSet<_> = all.iter().map(AnyObject::object_ref).collect();
        self.known.retain(|object, _| names.contains(object));
        self.is_fewer |= self.known.len() != before;

        let mut indices = 0..number;
        all.retain(|object| {
            let index = indices.next().unwrap_or_default();
            !self.is_done(object) || is_in_turn(index, self.turn, number)
        });

        self.turn = (self.turn + IN_TURN) % number.max(1);
        all
    }

    /// Whether all proxies that an object reaches have its current version.
    fn is_done(&self, object: &AnyObject) -> bool {
        self.known
            .get(&object.object_ref())
            .is_some_and(|progress| {
                progress.generation == object.meta().generation
                    && progress.current == progress.reached
            })
    }

    /// Ends a round with the progress of the checked objects. Returns that of all objects if it has
    /// changed, or if an object is pending: the writer retries failed objects when it receives them
    /// again.
    pub fn end(&mut self, checked: BTreeMap<ObjectRef, Progress>) -> Option<Progresses> {
        let mut is_changed = std::mem::take(&mut self.is_fewer);
        for (object, progress) in checked {
            is_changed |= self.known.insert(object, progress) != Some(progress);
        }

        let mut known = self.known.values();
        let is_due = is_changed || known.any(|progress| progress.current != progress.reached);
        is_due.then(|| Arc::new(self.known.clone()))
    }
}

/// Whether the object at `index` of `all` is one of the [`IN_TURN`] objects from `turn` on, which
/// wraps around. There may have been more objects when `turn` was chosen.
fn is_in_turn(index: usize, turn: usize, all: usize) -> bool {
    let first = turn % all.max(1);
    let distance = if index >= first {
        index - first
    } else {
        index + all - first
    };
    distance < IN_TURN
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::testing::object;

    fn indices(turn: usize, all: usize) -> Vec<usize> {
        let in_turn = |index: &usize| is_in_turn(*index, turn, all);
        (0..all).filter(in_turn).collect()
    }

    fn rule(name: &str, generation: i64) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
             metadata: {{name: {name}, namespace: shop, generation: {generation}}}\nspec: {{host: a}}\n"
        );
        object(&yaml)
    }

    #[test]
    fn each_object_has_its_turn_also_when_others_have_gone() {
        assert_eq!(indices(100, 250), (100..200).collect::<Vec<_>>());
        let around: Vec<usize> = (0..50).chain(200..250).collect();
        assert_eq!(indices(200, 250), around);
        // All of fewer, and those that are left of more.
        assert_eq!(indices(30, 20), (0..20).collect::<Vec<_>>());
        assert_eq!(indices(340, 120).len(), IN_TURN);
        assert!(indices(7, 0).is_empty());
    }

    #[test]
    fn changed_and_pending_objects_are_checked_in_each_round() {
        let progress = |current| Progress {
            generation: 1,
            reached: 2,
            current,
        };
        let mesh: Vec<_> = (0..4 * IN_TURN)
            .map(|number| rule(&format!("rule-{number:03}"), 1))
            .collect();
        let last = mesh.last().unwrap().object_ref();
        let all_but_last = |object: &AnyObject| {
            let name = object.object_ref();
            let is_last = name == last;
            (name, progress(if is_last { 1 } else { 2 }))
        };

        let mut rounds = ProgressRounds::default();
        let first = rounds.begin(mesh.clone());
        assert_eq!(first.len(), mesh.len(), "nothing is known of them");
        assert!(
            rounds
                .end(first.iter().map(all_but_last).collect())
                .is_some()
        );

        let second = rounds.begin(mesh.clone());
        assert_eq!(second.len(), IN_TURN + 1, "those in turn, and the last");
        assert!(
            rounds
                .end(second.iter().map(all_but_last).collect())
                .is_some(),
            "the last is pending"
        );
        let third = rounds.begin(mesh.clone());
        let done = |object: &AnyObject| (object.object_ref(), progress(2));
        assert!(rounds.end(third.iter().map(done).collect()).is_some());
        let fourth = rounds.begin(mesh.clone());
        assert!(rounds.end(fourth.iter().map(done).collect()).is_none());

        let mut edited = mesh;
        edited.truncate(IN_TURN);
        edited.push(rule("rule-of-others", 2));
        assert_eq!(rounds.begin(edited).len(), IN_TURN + 1);
        assert!(rounds.end(BTreeMap::new()).is_some(), "objects have gone");
    }
}

//! Room for rejected objects. They count to the share of the namespace whose proxies reject them, so
//! that none uses up the places of others.

use std::collections::BTreeMap;
use std::time::Duration;

use navarch_api::names::Namespace;
use navarch_api::object::ObjectRef;
use tokio::time::Instant;

use super::QuarantineWork;
use super::case::Case;

/// Maximum number of rejected objects that are remembered, beside the first places of namespaces.
const MAX_CASES: usize = 1_024;
/// Maximum number of those that count to the share of one namespace.
const MAX_CASES_OF_NAMESPACE: usize = 64;
/// Number of places that a namespace has whatever others hold. So all cases are limited by the
/// number of namespaces with proxies that reject something.
const FIRST_PLACES: usize = 8;
/// Minimum interval of log lines that there is no room.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Where a place for another rejected object is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// There is one.
    Free,
    /// An object of this share has to make room.
    InShareOf(Namespace),
    /// An object of this share should make room; if none can, there is one nevertheless.
    BesideShareOf(Namespace),
}

impl QuarantineWork {
    /// Makes room for another object that proxies of a namespace reject; false if there is none.
    pub(super) fn has_room(&mut self, rejecting: &Namespace) -> bool {
        let context = self.push.context();
        self.cases.retain(|_, case| case.is_current(&context));

        let has_room = match place(&self.cases, rejecting) {
            Place::Free => true,
            Place::InShareOf(share) => self.replace(&share),
            Place::BesideShareOf(share) => {
                self.replace(&share);
                true
            }
        };
        if !has_room {
            self.log_no_room(rejecting);
        }
        has_room
    }

    /// Forgets an object of a namespace's share; false if none can be forgotten.
    fn replace(&mut self, share: &Namespace) -> bool {
        let found = replaceable(
            &self.cases,
            |case| case.rejecting == *share,
            |case| case.has_rejecters(&self.connections),
        );
        found.is_some_and(|name| self.cases.remove(&name).is_some())
    }

    /// Logs that there is no room, at most once in a while.
    fn log_no_room(&mut self, rejecting: &Namespace) {
        let is_logged = self
            .no_room_logged_at
            .is_some_and(|at| at.elapsed() < LOG_INTERVAL);
        if is_logged {
            return;
        }

        self.no_room_logged_at = Some(Instant::now());
        tracing::warn!(
            ns = %rejecting,
            objects = self.cases.len(),
            of_namespace = share(&self.cases, rejecting),
            "failed to judge an object that proxies of the namespace reject, and perhaps further ones: \
             as many others as are remembered are quarantined or judged; it stays in force"
        );
    }
}

/// Where the place is for another object that proxies of a namespace reject.
fn place(cases: &BTreeMap<ObjectRef, Case>, rejecting: &Namespace) -> Place {
    let share = share(cases, rejecting);
    if share >= MAX_CASES_OF_NAMESPACE {
        return Place::InShareOf(rejecting.clone());
    }
    if cases.len() < MAX_CASES {
        return Place::Free;
    }

    match largest_share(cases) {
        Some(largest) if share < FIRST_PLACES => Place::BesideShareOf(largest),
        Some(largest) => Place::InShareOf(largest),
        None => Place::Free,
    }
}

/// Number of cases that count to the share of a namespace.
fn share(cases: &BTreeMap<ObjectRef, Case>, namespace: &Namespace) -> usize {
    let share = cases.values().filter(|case| case.rejecting == *namespace);
    share.count()
}

/// The case that makes room for another one, among those that `is_of_share` selects: only those
/// whose object stays in force do, and was not judged again, since the number of times decides how
/// long it may be quarantined. Those without rejecting streams come first, then the oldest.
fn replaceable(
    cases: &BTreeMap<ObjectRef, Case>,
    is_of_share: impl Fn(&Case) -> bool,
    has_rejecters: impl Fn(&Case) -> bool,
) -> Option<ObjectRef> {
    cases
        .iter()
        .filter(|(_, case)| case.judgement.is_kept() && case.judgement.rejudged() == 0)
        .filter(|(_, case)| is_of_share(case))
        .min_by_key(|(_, case)| (has_rejecters(case), case.number))
        .map(|(name, _)| name.clone())
}

/// The namespace to whose share most cases count.
fn largest_share(cases: &BTreeMap<ObjectRef, Case>) -> Option<Namespace> {
    let mut shares: BTreeMap<&Namespace, usize> = BTreeMap::new();
    for case in cases.values() {
        *shares.entry(&case.rejecting).or_default() += 1;
    }
    shares
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(namespace, _)| namespace.clone())
}

#[cfg(test)]
mod tests {
    use navarch_api::testing::object;
    use navarch_push::quarantine::judgement::Judgement;

    use super::*;

    /// A case of the share of a namespace.
    fn case(name: &str, share: &str, number: u64) -> (ObjectRef, Case) {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
             metadata: {{name: {name}, namespace: shop}}\nspec: {{host: a}}\n"
        );
        let object = object(&yaml);
        let case = Case {
            rejecting: Namespace::new(share),
            number,
            ..Case::new(object.clone(), Judgement::kept())
        };
        (object.object_ref(), case)
    }

    #[test]
    fn a_namespaces_rejections_make_room_among_themselves() {
        let mut cases: BTreeMap<ObjectRef, Case> = [
            case("a", "evil", 1),
            case("b", "evil", 2),
            case("c", "evil", 3),
            case("d", "shop", 0),
        ]
        .into();
        let evil = Namespace::new("evil");
        let is_evil = |case: &Case| case.rejecting == evil;
        let is_first = |case: &Case| case.number == 1;
        let name = |found: Option<ObjectRef>| found.map(|found| found.name.name.to_string());

        assert_eq!(largest_share(&cases), Some(evil.clone()));
        let all_open = name(replaceable(&cases, is_evil, |_| true));
        assert_eq!(all_open.as_deref(), Some("a"), "the oldest of its share");
        let some_gone = name(replaceable(&cases, is_evil, is_first));
        assert_eq!(some_gone.as_deref(), Some("b"), "its streams are closed");

        // One that was judged again keeps its number of times.
        for (again, next) in [("a", Some("b")), ("b", Some("c")), ("c", None)] {
            let (again, _) = case(again, "evil", 0);
            cases.get_mut(&again).unwrap().judgement.judge_again();
            let found = name(replaceable(&cases, is_evil, |_| true));
            assert_eq!(found.as_deref(), next);
        }

        // A judgement that is made or awaited is never forgotten.
        for case in cases.values_mut() {
            case.judgement = Judgement::open(Duration::ZERO);
        }
        assert_eq!(replaceable(&cases, is_evil, is_first), None);
    }

    #[test]
    fn a_namespace_has_its_first_places_whatever_others_hold() {
        // 16 namespaces hold all places, by objects that are quarantined or judged.
        let mut cases = BTreeMap::new();
        for number in 0..MAX_CASES {
            let share = format!("evil{}", number % 16);
            let (name, mut case) = case(&format!("c{number}"), &share, 0);
            case.judgement = Judgement::open(Duration::ZERO);
            cases.insert(name, case);
        }
        let shop = Namespace::new("shop");
        let evil = Namespace::new("evil0");
        assert_eq!(place(&cases, &evil), Place::InShareOf(evil.clone()));

        for number in 0..FIRST_PLACES {
            let found = place(&cases, &shop);
            assert!(matches!(found, Place::BesideShareOf(_)), "{found:?}");
            let (name, case) = case(&format!("s{number}"), "shop", 0);
            cases.insert(name, case);
        }
        let found = place(&cases, &shop);
        assert!(matches!(found, Place::InShareOf(_)), "{found:?}");
    }
}
